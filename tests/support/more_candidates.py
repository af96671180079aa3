"""A candidate in a module of its own, as a new file of the user's is."""

from candidates import train

__all__ = ["train"]
