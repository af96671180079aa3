"""Cohorts of the methods here: several trials of one architecture trained as one network, each with its own numbers.

`cohort` has what all methods share, a module a method the rest. The folded networks are `trainables.fusing.folding`'s;
what the platform sees of all this is `contrasweep.trainables.fusing.protocol`.
"""
