"""Fused trials: several trials of one architecture trained as one network, or one by a compiled engine.

The platform reaches all of this through the attribute `lane` of a trainable (`lane.open_fusing`), and knows none of it.
`protocol` is what a trainable gives; `choices` decides which trials are fused; `host` is the process that trains a
cohort; `cohorts` are those of the methods here; `folding` makes one network of several.
"""
