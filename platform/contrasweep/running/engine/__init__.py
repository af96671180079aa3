"""What runs on the head: the loop over Ray Tune, the choice of the next trial and its place, and the watchdogs."""
