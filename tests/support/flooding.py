"""A trainable that prints, reports or raises without measure."""

from pathlib import Path

from contrasweep.schema import checked
from contrasweep.trial import Report


@checked
class Settings:
    """`prints_mb`: printed before the only report. `error_mb`: size of the text that is raised after the last one."""

    epochs: int = 1
    prints_mb: int = 0
    error_mb: int = 0


def train(trial, resume: Path | None = None):
    settings = Settings(**trial.config)
    for _ in range(settings.prints_mb):
        print("x" * 999_999)
    for epoch in range(1, settings.epochs + 1):
        yield Report(epoch, {"accuracy": epoch / settings.epochs})
    if settings.error_mb:
        raise ValueError("y" * settings.error_mb * 1_000_000)


train.settings = Settings  # type: ignore[attr-defined]
