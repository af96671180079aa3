"""Verdicts on results that others made: from a table of runs, the same table and verdicts that a study of ours has."""
