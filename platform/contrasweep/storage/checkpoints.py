"""A trial's newest usable checkpoint: files first, the marker `latest.json` last, older ones removed after it.

What stays of the others is a `Retention`.
"""

import logging
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from contrasweep import canonical
from contrasweep.errors import BrokenFileError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import FileName, Label, check_file_name
from contrasweep.storage.record import Count, Digest, Measure, Time
from contrasweep.storage.store import Store

Keep = Literal["newest", "best", "none", "all"]
log = logging.getLogger(__name__)


@stored
class Extra:
    """Values that the platform keeps beside a checkpoint, for the trial's record: it is resumed with them.

    `seconds` is the training time over all attempts up to the checkpoint, `started` when the first began (unix seconds;
    None: not known). `items` and `artifacts` are names of what the trial has given so far. `code` is the digest of the
    code that made the checkpoint (None: not known), `earlier_code` those of attempts before. `gpus` and `cost_per_hour`
    are as in `TrialNotes`. `unused_settings` are those that no attempt has read so far; None: that is not known.
    """

    seconds: Measure = 0.0
    started: Time | None = None
    items: tuple[Label, ...] = ()
    artifacts: tuple[FileName, ...] = ()
    code: Digest | None = None
    earlier_code: tuple[Digest, ...] = ()
    gpus: Measure | None = None
    cost_per_hour: Measure | None = None
    unused_settings: tuple[Label, ...] | None = None
    # `StartRef.ended` of a trial that started from another one's checkpoint
    start_ended: Time | None = None


@stored
class Saved:
    """A checkpoint in the storage: the step it follows, its files (name -> SHA-256), and what is kept beside it.

    `score` is the trial's metric at that step, larger is better; `best` the best checkpoint before this one, if it is
    kept.
    """

    step: Count
    files: Mapping[FileName, Digest]
    extra: Extra = Extra()
    score: float | None = None
    best: "Saved | None" = None

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with the step or any file."""
        return canonical.digest([self.step, dict(self.files)], 12)


@dataclass(frozen=True)
class Retention:
    """Which checkpoints of a trial stay in the storage.

    While it trains, the newest does, since the trial goes on from it. `best` keeps the one with the best `metric` too,
    and once the trial is done only that; `all` keeps every one; `none` keeps none once the trial is done.
    """

    keep: Keep = "newest"
    metric: str = ""
    mode: Literal["max", "min"] = "max"

    @property
    def each_counts(self) -> bool:
        """Whether a checkpoint may have to stay after a newer one was written."""
        return self.keep in ("best", "all")

    def score(self, row: Mapping[str, float]) -> float | None:
        """Return the score of a report, for which larger is better: the metric, or with `mode` min its negative.

        None where `keep` is not `best`, or the report lacks the metric or has no finite value of it.
        """
        value = row.get(self.metric) if self.keep == "best" else None
        if value is None or not math.isfinite(value):
            return None
        if self.mode == "max":
            return value
        return -value


MARKER_FILE = JsonFile(Saved, 2, "training starts over without it")
"""checkpoint/latest.json, written and read."""


class Checkpoints:
    """Checkpoints of one trial, below `prefix` of a store; one object is used by one attempt alone."""

    def __init__(self, store: Store, prefix: str, *, no_prior_state: bool = False) -> None:
        """Take `prefix` as the folder of the trial's checkpoints; nothing is read or written yet.

        With `no_prior_state`, it is known that there is none, and the store is not asked.
        """
        self.store = store
        self.prefix = prefix.rstrip("/")
        self._known = self._no_prior_state = no_prior_state
        # What the marker names, None where there is none; valid once `_known`, after it was read or written here.
        self._newest: Saved | None = None

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
            check: Called before each file, and last before the marker is written. It raises where nothing may be
                written, as in an attempt that was superseded.
            keep: Which checkpoints stay: the newest always does; with `best` the best before it too, with `all` each.
            score: How good it is, larger is better; None: it is never the best of several.
        """
        before = self._newest if self._known else self.latest()
        files = {}
        for name, path in files_of(folder).items():
            files[name] = canonical.file_digest(path)
            check()
            self.store.put_file(f"{self.prefix}/{step}/{name}", path)
        check()
        earlier = [
            old for old in (before and before.best, before) if old is not None and old.step != step
        ]
        # The best is named only where it is an earlier one, whose score is no lower than this one's; of two with one
        # score the one that was best before.
        scored = [
            old
            for old in earlier
            if old.score is not None and (score is None or old.score >= score)
        ]
        best = (
            max(scored, key=lambda old: old.score or 0.0, default=None) if keep == "best" else None
        )
        # The best one's own best is dropped: markers do not nest further.
        saved = Saved(step, files, extra or Extra(), score, best and replace(best, best=None))
        self._mark(saved)
        # The marker names the new one by now, so that nobody looks for those before.
        if keep != "all":
            for old in earlier:
                if best is None or old.step != best.step:
                    self._delete(old)

    def conclude(self, keep: Keep, check: Callable[[], object] = lambda: None) -> None:
        """Delete the checkpoints that a finished trial need not keep.

        With `best` only the best one stays, with `none` no one; with `newest` and `all` nothing is deleted. `check` is
        called first, where anything is to be deleted, and raises where it must not be.
        """
        newest = self._newest if self._known else self.latest()
        if newest is None or keep in ("newest", "all") or (keep == "best" and newest.best is None):
            return
        check()
        if keep == "best" and newest.best is not None:
            # The marker first: it never names files that are gone.
            self._mark(newest.best)
            self._delete(newest)
            return
        self.store.delete(f"{self.prefix}/latest.json")
        self._known = True
        self._newest = None
        for old in filter(None, (newest, newest.best)):
            self._delete(old)

    def _mark(self, saved: Saved) -> None:
        """Write the marker, by which this checkpoint counts."""
        MARKER_FILE.write(self.store, f"{self.prefix}/latest.json", asdict(saved))
        self._known = True
        self._no_prior_state = False
        self._newest = saved

    def _delete(self, saved: Saved) -> None:
        """Delete the files of a checkpoint that no marker names."""
        for name in saved.files:
            self.store.delete(f"{self.prefix}/{saved.step}/{name}")

    def latest(self) -> Saved | None:
        """Return the checkpoint that the marker names, as the store has it now; None where there is none.

        A broken marker counts as none, with a warning: training then starts from the beginning.
        """
        try:
            return MARKER_FILE.find(self.store, f"{self.prefix}/latest.json")
        except BrokenFileError as error:
            log.warning("%s", error)
            return None

    def fetch(self, to: Path) -> Saved | None:
        """Fetch the checkpoint that the marker names into the folder `to`, and return what is known of it.

        None, and `to` is empty, where there is none, or one of its files is missing or damaged: that is said in the
        log. No earlier checkpoint is tried.
        """
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
                digest = ""  # which no file has
            if not (to / name).exists() or canonical.file_digest(to / name) != digest:
                log.warning(
                    "%s/%s of %s is not what its marker says; training starts over",
                    saved.step,
                    name,
                    self.prefix,
                )
                shutil.rmtree(to)
                to.mkdir()
                return None
        return saved


def files_of(folder: Path) -> dict[str, Path]:
    """Return name -> path of the files below `folder`, sorted; a name may have folders in front, `net/weights.pt`.

    ValueError where a name cannot be one in a storage.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {check_file_name(path.relative_to(folder).as_posix()): path for path in files}
