"""A trial's newest usable checkpoint: files first, the marker `latest.json` last, older ones removed after it."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from contrasweep import canonical
from contrasweep.errors import BrokenFileError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import FileName, Label, check_file_name
from contrasweep.storage.record import Count, Digest, Measure, Time
from contrasweep.storage.store import Store

log = logging.getLogger(__name__)


@stored
class Extra:
    """Values that the platform keeps beside a checkpoint, for the trial's record."""

    seconds: Measure = 0.0
    started: Time | None = None
    items: tuple[Label, ...] = ()
    artifacts: tuple[FileName, ...] = ()
    code: Digest | None = None
    earlier_code: tuple[Digest, ...] = ()
    gpus: Measure | None = None
    cost_per_hour: Measure | None = None
    shared_by: Count | None = None
    start_ended: Time | None = None  # `StartRef.ended` of a trial that started from another one's checkpoint


@stored
class Saved:
    """A checkpoint in the storage: the step it follows, its files (name -> SHA-256), and what is kept beside it."""

    step: Count
    files: Mapping[FileName, Digest]
    extra: Extra = Extra()

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with the step or any file."""
        return canonical.digest([self.step, dict(self.files)], 12)


MARKER_FILE = JsonFile(Saved, 2, "training starts over without it")
"""checkpoint/latest.json, written and read."""


class Checkpoints:
    """Checkpoints of one trial, below `prefix` of a store."""

    def __init__(self, store: Store, prefix: str, *, no_prior_state: bool = False) -> None:
        """Keep the place of a trial's checkpoint.

        With `no_prior_state`, it is known that there is none, and the store is not asked.
        """
        self.store, self.prefix = store, prefix.rstrip("/")
        self._known = self._no_prior_state = no_prior_state
        self._newest: Saved | None = None  # what the marker names, once this object has read or written it

    def save(
        self, folder: Path, step: int, extra: Extra | None = None, *, check: Callable[[], object] = lambda: None
    ) -> None:
        """Store the files of `folder` as the checkpoint after `step`, with `extra` beside it.

        `check` is called before each file, and last before the marker is written. It raises where they must not be
        written.
        """
        before = self._newest if self._known else self.latest()
        files = {}
        for name, path in files_of(folder).items():
            files[name] = _sha256(path)
            check()
            self.store.put_file(f"{self.prefix}/{step}/{name}", path)
        check()
        saved = Saved(step, files, extra or Extra())
        MARKER_FILE.write(self.store, f"{self.prefix}/latest.json", asdict(saved))
        self._known, self._no_prior_state, self._newest = True, False, saved
        if before is not None and before.step != step:
            for name in before.files:
                self.store.delete(f"{self.prefix}/{before.step}/{name}")

    def latest(self) -> Saved | None:
        """Return the checkpoint that the marker names; None where there is none or it is broken.

        Training then starts from the beginning.
        """
        try:
            return MARKER_FILE.read(self.store, f"{self.prefix}/latest.json")
        except FileNotFoundError:
            return None
        except BrokenFileError as error:
            log.warning("%s", error)
            return None

    def fetch(self, to: Path) -> Saved | None:
        """Fetch the newest complete checkpoint into the folder `to`; None, and `to` stays empty, if there is none."""
        if not self._no_prior_state:
            self._known, self._newest = True, self.latest()
        saved = self._newest
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


def files_of(folder: Path) -> dict[str, Path]:
    """Return the files of a checkpoint by name; names may have folders in front.

    ValueError where a name cannot be one in a storage.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {check_file_name(path.relative_to(folder).as_posix()): path for path in files}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
