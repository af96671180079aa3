"""Studies of review helpfulness, which stand beside the models as those of a user's own package do.

tables.py has the tables of Nguyen et al., EMNLP 2022; claims.py what they claim, at a size that two cores decide.
"""
