"""How large an object may be that is read at once: a forged one may have any size."""

from contrasweep.errors import BrokenFileError

MAX_READ = 4 * 2**30  # bytes
MAX_TRIAL_READ = 2**28  # bytes of one trial's reports, of what it used, or of its items
MAX_TRIAL_VALUES = 20_000_000  # in one of these: a million reports of twenty metrics


def too_large(uri: str, key: str, size: int, limit: int) -> BrokenFileError:
    """What is said of an object that is not read for its size."""
    problem = f"it has {size:,} bytes, and {limit:,} are read"
    return BrokenFileError(f"{uri}/{key}", problem, "nothing here writes such a one; delete it")
