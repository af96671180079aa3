"""A trainable that trains nothing: a gain by its settings, and noise that differs by seed and by the word `who`."""

import hashlib

from contrasweep.schema import checked
from contrasweep.trial import Report


@checked
class Settings:
    """`gain`: what it adds to .7 and noise of a deviation of about .01. `who`: another word, another noise. `fails`:
    it raises an error. `parameters`: a size that it reports."""

    gain: float = 0.0
    who: str = "incumbent"
    fails: bool = False
    parameters: int = 100


def train(trial, resume=None):
    settings = Settings(**trial.config)
    if settings.fails:
        raise ValueError("this candidate is broken")
    digest = hashlib.sha256(f"{settings.who} {trial.seed}".encode()).digest()
    noise = (sum(byte / 255 for byte in digest[:12]) - 6) * 0.01
    yield Report(1, {"accuracy": 0.7 + settings.gain + noise, "parameters": settings.parameters})


train.settings = Settings
