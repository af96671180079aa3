"""The results of a study, read from its storage alone: frames, tables, comparisons."""
