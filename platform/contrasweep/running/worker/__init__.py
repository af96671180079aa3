"""What runs on a node: one trial after the other, from its generator to its record."""
