"""What only a GPU can show, in one command: `python -m benchmarks.gpu`; see `__main__`."""
