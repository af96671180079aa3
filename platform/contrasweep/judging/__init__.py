"""Verdicts on results that others made: a table of runs becomes what a study's table is."""
