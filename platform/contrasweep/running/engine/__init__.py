"""On the head: the loop over Ray Tune, which trial is next, where it goes, and what is watched while it runs."""
