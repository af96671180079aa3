"""A path that somebody has written, as this machine reads it."""

from pathlib import Path

from contrasweep.errors import SpecError


def local_path(text: str | Path, place: str = "storage") -> Path:
    """The path `text`, in which `~` is a home folder; `SpecError` at `place` where this machine can have no such."""
    try:
        path = Path(text).expanduser()
        path.resolve()
    except (RuntimeError, ValueError) as error:  # no such user, links in a circle; a null character
        hint = "./~NAME is a folder in the current one" if str(text).startswith("~") else ""
        hint = "; ".join(filter(None, [str(error).rstrip(".").lower(), hint]))
        raise SpecError("this machine can have no such path", place=place, value=str(text), hint=hint) from None
    return path
