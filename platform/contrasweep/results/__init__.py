"""What a study has so far, read from its storage alone: frames, tables, comparisons, and what its numbers depend on."""
