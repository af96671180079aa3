"""A trial's newest usable checkpoint: files first, the marker `latest.json` last, older ones removed after it."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasweep.storage.store import Store


@dataclass(frozen=True)
class Saved:
    """A checkpoint in the storage: the step it follows, and what the platform keeps beside it."""

    step: int
    files: Mapping[str, str]  # name -> sha256
    extra: Mapping[str, Any]


class Checkpoints:
    """Checkpoints of one trial, below `prefix` of a store."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store, self.prefix = store, prefix.rstrip("/")

    def save(self, folder: Path, step: int, **extra: Any) -> None:
        """Store the files of `folder` as the checkpoint after `step`."""
        before = self.latest()
        files = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = path.relative_to(folder).as_posix()
            files[name] = _sha256(path)
            self.store.put_file(f"{self.prefix}/{step}/{name}", path)
        marker = {"step": step, "files": files, "extra": extra}
        self.store.write(f"{self.prefix}/latest.json", json.dumps(marker).encode())
        if before is not None and before.step != step:
            for name in before.files:
                self.store.delete(f"{self.prefix}/{before.step}/{name}")

    def latest(self) -> Saved | None:
        """What the marker names; None where there is none or it cannot be read (then training starts over)."""
        try:
            return Saved(**json.loads(self.store.read(f"{self.prefix}/latest.json")))
        except (FileNotFoundError, ValueError, TypeError):
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
                shutil.rmtree(to)
                to.mkdir()
                return None
        return saved


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
