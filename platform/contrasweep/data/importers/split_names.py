"""Files of a published dataset by split, as their names or folders say it."""

import re
from pathlib import Path

from contrasweep.errors import DataError

SPLITS = {"train": "train", "test": "test", "val": "test", "valid": "test", "validation": "test"}


def by_split(source: Path, suffix: str) -> dict[str, list[Path]]:
    """Split -> its files below `source` in the order of their names. `train-0.tar`, `data/train-0.tar` and
    `train/0.tar` are training files; where no name says so, all are. A validation split is the test split unless there
    is one of that name. `DataError` where there is no file, or none for training."""
    files = [source] if source.is_file() else sorted(source.rglob(f"*{suffix}"))
    if not files:
        raise DataError(f"{source} has no {suffix} files")
    named: dict[str, list[Path]] = {}
    for file in files:
        words = re.split(r"[^a-z]+", file.relative_to(source.parent if source.is_file() else source).as_posix().lower())
        named.setdefault(next((word for word in words if word in SPLITS), ""), []).append(file)
    if set(named) == {""}:
        return {"train": files}
    if "train" not in named:
        raise DataError(f"{source} has {suffix} files of {', '.join(sorted(filter(None, named)))} and none of train")
    test = next((named[name] for name in ("test", "val", "valid", "validation") if name in named), None)
    return {"train": named["train"], **({} if test is None else {"test": test})}
