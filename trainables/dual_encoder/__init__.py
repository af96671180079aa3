"""Dual encoders: two sides of a pair are embedded each by itself, and a loss compares all rows of both sides.

`two_tower` (images and texts) and `texts` (sentences) are of this kind; losses, settings and training are shared.
"""
