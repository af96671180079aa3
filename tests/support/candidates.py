"""A trainable that trains nothing: a gain by its settings, and noise that differs by seed and by the word `who`."""

import hashlib

from contrasweep.schema import checked
from contrasweep.trial import Report


@checked
class Settings:
    """`gain`: what it adds to .7 and noise of a deviation of about .01. `who`: another word, another noise. `fails`:
    it raises an error; `fails_on`: with these seeds, `fails_in`: in this dataset. `parameters`: a size that it
    reports, times 1 + `jitter` times the noise. `log`: a file that gets a line "who seed" a trial."""

    gain: float = 0.0
    who: str = "incumbent"
    fails: bool = False
    fails_on: tuple[int, ...] = ()
    fails_in: str = ""
    parameters: int = 100
    jitter: float = 0.0
    log: str = ""


def train(trial, resume=None):
    settings = Settings(**trial.config)
    in_data = trial.data.name == settings.fails_in
    if settings.fails or in_data or trial.seed in settings.fails_on:
        raise ValueError("this candidate is broken")
    if settings.log:
        with open(settings.log, "a") as file:
            file.write(f"{settings.who} {trial.seed}\n")
    digest = hashlib.sha256(f"{settings.who} {trial.seed}".encode()).digest()
    noise = (sum(byte / 255 for byte in digest[:12]) - 6) * 0.01
    yield Report(
        1,
        {
            "accuracy": 0.7 + settings.gain + noise,
            "parameters": settings.parameters * (1 + settings.jitter * noise),
        },
    )


train.settings = Settings  # type: ignore[attr-defined]


def train_anything(trial, resume=None):
    """The same without a check of its settings."""
    yield Report(1, {"accuracy": 0.7 + trial.config.get("gain", 0.0) + 0.001 * (trial.seed % 3)})


def train_once(trial, resume=None):
    """One value whatever the seed."""
    config = trial.config
    yield Report(1, {"accuracy": 0.7 + config["gain"], "parameters": config["parameters"]})


train_once.settings = Settings  # type: ignore[attr-defined]
