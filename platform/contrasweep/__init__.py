"""Declare a table of contrastive-learning runs; get it back with intervals and paired tests."""
