"""A trial's newest usable checkpoint: files first, the marker `latest.json` last, older ones removed after it."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pydantic

from contrasweep.errors import BrokenFileError
from contrasweep.storage.json_file import SCHEMA, JsonFile
from contrasweep.storage.names import FileName, Label, check_file_name
from contrasweep.storage.record import Count, Digest, Measure, Time
from contrasweep.storage.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Extra:
    """What the platform keeps beside a checkpoint: what the trial's record will say of the time before it."""

    __pydantic_config__ = SCHEMA

    seconds: Measure = 0.0
    started: Time | None = None
    attempts: Count = 0
    items: tuple[Label, ...] = ()
    artifacts: tuple[FileName, ...] = ()
    code: Digest | None = None
    earlier_code: tuple[Digest, ...] = ()
    gpus: Measure | None = None
    cost_per_hour: Measure | None = None
    fused: Count | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint in the storage: the step it follows, its files (name -> SHA-256), and what is kept beside it."""

    __pydantic_config__ = SCHEMA

    step: Count
    files: Mapping[FileName, Digest]
    extra: Extra = Extra()


MARKER_FILE = JsonFile(pydantic.TypeAdapter(Saved), 2, "training starts over without it")
"""checkpoint/latest.json, written and read. Version 1 had no digest."""


class Checkpoints:
    """Checkpoints of one trial, below `prefix` of a store."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store, self.prefix = store, prefix.rstrip("/")

    def save(
        self, folder: Path, step: int, extra: Extra | None = None, *, check: Callable[[], object] = lambda: None
    ) -> None:
        """Store the files of `folder` as the checkpoint after `step`, with `extra` beside it. `check` is asked last
        before the marker is written, and raises where it must not be."""
        before = self.latest()
        files = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = check_file_name(path.relative_to(folder).as_posix())
            files[name] = _sha256(path)
            self.store.put_file(f"{self.prefix}/{step}/{name}", path)
        check()
        MARKER_FILE.write(self.store, f"{self.prefix}/latest.json", asdict(Saved(step, files, extra or Extra())))
        if before is not None and before.step != step:
            for name in before.files:
                self.store.delete(f"{self.prefix}/{before.step}/{name}")

    def latest(self) -> Saved | None:
        """What the marker names; None where there is none or it is broken (then training starts over)."""
        try:
            return MARKER_FILE.read(self.store, f"{self.prefix}/latest.json")
        except FileNotFoundError:
            return None
        except BrokenFileError as error:
            log.warning("%s", error)
            return None

    def fetch(self, to: Path) -> Saved | None:
        """Bring the newest checkpoint into the folder `to`; None, and `to` empty, if there is no whole one."""
        saved = self.latest()
        if saved is None:
            return None
        for name, digest in saved.files.items():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                self.store.get_file(f"{self.prefix}/{saved.step}/{name}", to / name)
            except FileNotFoundError:
                digest = ""
            if not (to / name).exists() or _sha256(to / name) != digest:
                log.warning(
                    "%s/%s of %s is not what its marker says; training starts over", saved.step, name, self.prefix
                )
                shutil.rmtree(to)
                to.mkdir()
                return None
        return saved


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
