"""What a study would run, on which hosts, for how long and at what cost. Nothing is written and no Ray is started."""
