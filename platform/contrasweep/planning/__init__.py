"""What a study would run, on which hosts, for how long and at what cost. Pure: nothing is written and no Ray is
started."""
