"""Hosts: GPU inventory, memory model, packing, simulation, submission, and files that start clusters."""
