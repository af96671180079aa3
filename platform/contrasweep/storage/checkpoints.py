"""The checkpoints of a trial: the files of a new one are written first, then the marker `latest.json` that names it.

Older checkpoints are deleted after that, unless a `Retention` keeps them.
"""

import contextlib
import logging
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from contrasweep import canonical
from contrasweep.errors import BrokenFileError
from contrasweep.rows import Mode
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import FileName, Label, Name, check_file_name
from contrasweep.storage.record import Count, Digest, Measure, Time
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import Store

Keep = Literal["newest", "best", "none", "all"]
log = logging.getLogger(__name__)


@stored
class Extra:
    """Facts on a trial that are stored with its checkpoint, because the record of the resumed trial needs them.

    A field is None where the fact is not known.
    """

    seconds: Measure = 0.0  # training time over all attempts up to the checkpoint
    started: Time | None = None  # when the first attempt began
    # names of the items and artifacts that the trial has given so far
    items: tuple[Label, ...] = ()
    artifacts: tuple[FileName, ...] = ()
    code: Digest | None = None  # of the code that made the checkpoint
    earlier_code: tuple[Digest, ...] = ()  # of the code of earlier attempts
    gpus: Measure | None = None  # as in `TrialNotes`, like `cost_per_hour`
    cost_per_hour: Measure | None = None
    unused_settings: tuple[Label, ...] | None = None  # that no attempt has read so far
    # `StartRef.ended`, where the trial started from another one's checkpoint
    start_ended: Time | None = None


@stored
class Saved:
    """A checkpoint in the storage, as its marker describes it."""

    step: Count  # after which it was made
    files: Mapping[FileName, Digest]  # name -> SHA-256
    extra: Extra = Extra()
    # from the trial's metric at that step, larger is better; None: it has none
    score: float | None = None
    best: "Saved | None" = None  # an earlier checkpoint that is kept because it is better
    folder: Name | None = None  # of its files; None: the step

    @property
    def place(self) -> str:
        """The name of the folder with the checkpoint's files, such as `120`, below the trial's checkpoints."""
        return self.folder or str(self.step)

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with the step or any file."""
        return canonical.digest([self.step, dict(self.files)], 12)


@dataclass(frozen=True)
class Retention:
    """Which checkpoints of a trial stay in the storage.

    While the trial trains, its newest checkpoint stays, because the trial is resumed from it. With `keep` `best`, the
    one with the best `metric` stays too, and only that one once the trial is done. `all` keeps every checkpoint, `none`
    keeps no checkpoint once the trial is done.
    """

    keep: Keep = "newest"
    metric: str = ""
    mode: Mode = "max"

    def score(self, row: Mapping[str, float]) -> float | None:
        """Return the score of a report, larger is better: the metric, or its negative with `mode` min.

        None where `keep` is not `best`, or the report has no finite value of the metric.
        """
        value = row.get(self.metric) if self.keep == "best" else None
        if value is None or not math.isfinite(value):
            return None
        return value if self.mode == "max" else -value


MARKER_FILE = JsonFile(Saved, 2, "training starts over without it")
"""checkpoint/latest.json, written and read."""


class Checkpoints:
    """The checkpoints of one trial, as one attempt of it reads and writes them."""

    def __init__(self, store: Store, prefix: str) -> None:
        """Take the key `prefix` as the folder of the trial's checkpoints; nothing is read or written yet."""
        self.store = store
        self.prefix = prefix.rstrip("/")

    @classmethod
    def of(cls, records: StudyRecords, trial_id: str) -> Self:
        """Return the checkpoints of a trial of the study of `records`."""
        return cls(records.store, records.key(trial_id, "checkpoint"))

    def save(
        self,
        folder: Path,
        step: int,
        extra: Extra | None = None,
        *,
        check: Callable[[], object] = lambda: None,
        keep: Keep = "newest",
        score: float | None = None,
    ) -> None:
        """Store the files of `folder` as the checkpoint after `step`, and delete those that need not stay.

        Args:
            folder: The checkpoint's files.
            step: The step after which it was made.
            extra: What is kept beside it; None: nothing is known.
            check: Called before each file and before the marker is written. It raises where nothing may be written, as
                in an attempt that was superseded.
            keep: Which checkpoints stay: the newest always; with `best` a better earlier one too, with `all` each.
            score: The checkpoint's score, larger is better; None: it has none, and one with a score is better.
        """
        # The earlier checkpoints that the marker names, the best one first.
        newest = self.latest()
        named = []
        if newest is not None:
            named = [newest.best, newest] if newest.best else [newest]
        # A checkpoint of the same step, which the new one replaces, stays whole until the marker names the new one. So
        # the new one gets another folder; of three names one is free, as the marker names two checkpoints at most.
        taken = [old.place for old in named]
        place = next(name for name in (f"{step}", f"{step}-2", f"{step}-3") if name not in taken)
        files = {}
        for name, path in files_of(folder).items():
            files[name] = canonical.file_digest(path)
            check()
            self.store.put_file(f"{self.prefix}/{place}/{name}", path)
        check()
        # The best earlier one that is no worse than this one; of equal ones the first.
        best: Saved | None = None
        highest = -math.inf if score is None else score
        candidates = named if keep == "best" else []
        for old in candidates:
            if old.step == step or old.score is None or old.score < highest:
                continue
            if best is None or old.score > highest:
                # The `best` of that one is dropped: a marker names two checkpoints at most.
                best = replace(old, best=None)
                highest = old.score
        self._mark(Saved(step, files, extra or Extra(), score, best, place))
        # Now that the marker names the new checkpoint, nobody looks for earlier ones.
        for old in named:
            replaced = old.step == step or keep != "all"
            if replaced and (best is None or old.place != best.place):
                self._delete(old)

    def conclude(self, keep: Keep, check: Callable[[], object] = lambda: None) -> None:
        """Delete the checkpoints that a finished trial need not keep.

        With `best` only the best one stays, with `none` no checkpoint; with `newest` and `all` nothing is deleted.
        Before anything is deleted `check` is called, which raises where nothing may be changed.
        """
        newest = self.latest()
        if newest is None or keep in ("newest", "all"):
            return
        best = newest.best
        if keep == "best":
            # Where no earlier one is kept as better, the newest is the best and stays.
            if best is not None:
                check()
                # The marker is written first, so that it never names files that are deleted.
                self._mark(best)
                self._delete(newest)
            return
        # `keep` is `none`. The marker goes first here too.
        check()
        self.store.delete(f"{self.prefix}/latest.json")
        self._delete(newest)
        if best is not None:
            self._delete(best)

    def _mark(self, saved: Saved) -> None:
        """Write the marker `latest.json`, which makes `saved` the trial's newest checkpoint."""
        MARKER_FILE.write(self.store, f"{self.prefix}/latest.json", saved)

    def _delete(self, saved: Saved) -> None:
        """Delete the files of the checkpoint `saved`. The marker must not name this checkpoint any more."""
        for name in saved.files:
            self.store.delete(f"{self.prefix}/{saved.place}/{name}")

    def latest(self) -> Saved | None:
        """Read the marker and return the checkpoint that it names; None where there is none.

        A broken marker counts as none, with a warning in the log: training then starts from the beginning.
        """
        try:
            return MARKER_FILE.find(self.store, f"{self.prefix}/latest.json")
        except BrokenFileError as error:
            log.warning("%s", error)
            return None

    def fetch(self, to: Path) -> Saved | None:
        """Fetch the files of the newest checkpoint into the folder `to`, and return the checkpoint's description.

        Return None and leave `to` empty where there is no checkpoint, or where one of its files is missing or damaged.
        A warning in the log then names the file. No earlier checkpoint is tried, so that training starts over.
        """
        saved = self.latest()
        if saved is None:
            return None
        for name, digest in saved.files.items():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            # A file that is missing or damaged in the store is missing in `to` afterwards.
            with contextlib.suppress(FileNotFoundError, BrokenFileError):
                self.store.get_file(f"{self.prefix}/{saved.place}/{name}", to / name)
            if not (to / name).exists() or canonical.file_digest(to / name) != digest:
                log.warning(
                    "%s/%s of %s is not what its marker says; training starts over",
                    saved.place,
                    name,
                    self.prefix,
                )
                shutil.rmtree(to)
                to.mkdir()
                return None
        return saved


def files_of(folder: Path) -> dict[str, Path]:
    """Return name -> path of all files below `folder`, sorted; a name is a relative path, such as `net/weights.pt`.

    Raises `ValueError` where a storage cannot have such a name.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {check_file_name(path.relative_to(folder).as_posix()): path for path in files}
