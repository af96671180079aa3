"""Candidates in a module of its own, as a new file of the user's is."""

from candidates import train

from contrasweep.trial import Report

__all__ = ["falls", "train"]


def falls(trial, resume=None):
    """Better by `gain`, and worse by .5 with the seed `falls`."""
    fall = 0.5 * (trial.seed == trial.config["falls"])
    yield Report(1, {"accuracy": 0.7 + trial.config["gain"] + 0.001 * (trial.seed % 3) - fall})
