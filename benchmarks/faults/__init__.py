"""Faults on purpose, in a real study on real servers; `python -m benchmarks.faults` writes what they cost."""
