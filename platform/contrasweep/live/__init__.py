"""What is seen of a study while it runs: its state, on a terminal, in a notebook, as lines, and from the storage."""
