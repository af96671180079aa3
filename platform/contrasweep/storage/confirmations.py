"""The confirmations that a sweep has made, in its folder: `confirmations.json`.

A second confirmation, with other seeds or of another best, is a second draw: whatever the cause, a larger budget or
another seed of the search too, it counts as another look.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Self

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.records import StudyRecords


@stored
class Confirmation:
    """The configurations, seeds and folds of one confirmation, and when it began.

    `arms` has the digest of each arm's configuration; of `folds`, None is the test split.
    """

    arms: Mapping[str, str]
    seeds: tuple[int, ...]
    folds: tuple[int | None, ...]
    began: float = 0.0  # unix time

    @classmethod
    def of(cls, best: Mapping[str, Config], seeds: Sequence[int], folds: Sequence[int | None]) -> Self:
        """Return the confirmation of the arms' best configurations so far."""
        return cls({arm: canonical.digest(config, 12) for arm, config in best.items()}, tuple(seeds), tuple(folds))

    def goes_on(self, earlier: Self) -> bool:
        """Whether this is `earlier` itself, as far as that was known: more arms, or more seeds of the same list."""
        same = all(self.arms.get(arm) == digest for arm, digest in earlier.arms.items())
        return same and self.folds == earlier.folds and self.seeds[: len(earlier.seeds)] == earlier.seeds


@stored
class Ledger:
    """The confirmations of a study, the oldest first."""

    confirmations: tuple[Confirmation, ...] = ()


CONFIRMATIONS = "confirmations.json"
LEDGER_FILE = JsonFile(Ledger, 1, "restore it from a backup")
"""confirmations.json, written and read."""


def read_confirmations(records: StudyRecords) -> tuple[Confirmation, ...]:
    """The confirmations so far, the oldest first. `StorageError` if the file is broken."""
    ledger = LEDGER_FILE.find(records.store, f"{records.study}/{CONFIRMATIONS}")
    return ledger.confirmations if ledger else ()


def is_another(records: StudyRecords, confirmation: Confirmation) -> bool:
    """Return whether a confirmation differs from the recorded ones: in its configurations, seeds or folds."""
    known = read_confirmations(records)
    if not known or not confirmation.arms or any(earlier.goes_on(confirmation) for earlier in known):
        return False
    return not confirmation.goes_on(known[-1])


def write_confirmation(records: StudyRecords, confirmation: Confirmation) -> None:
    """Add a confirmation that begins, or go on with the last one."""
    known = read_confirmations(records)
    if not confirmation.arms or any(earlier.goes_on(confirmation) for earlier in known):
        return
    began = known[-1].began if known and confirmation.goes_on(known[-1]) else time.time()
    kept = known[:-1] if known and confirmation.goes_on(known[-1]) else known
    LEDGER_FILE.write(
        records.store, f"{records.study}/{CONFIRMATIONS}", asdict(Ledger((*kept, replace(confirmation, began=began))))
    )


def confirmation_notes(spec: Config, records: StudyRecords) -> list[str]:
    """Return notes for readers of the table on how the sweep `spec` confirmed; none for a grid."""
    if "confirm_on" not in spec:
        return []
    notes = []
    if spec["confirm_on"] == "all":
        on = "all folds, also those" if spec.get("folds") else "the data"
        notes.append(f"confirmed on {on} that the search chose by, where its choice has an advantage")
    known = read_confirmations(records)
    if len(known) > 1:
        dates = ", ".join(time.strftime("%Y-%m-%d", time.gmtime(c.began)) for c in known[:-1])
        notes.append(
            f"this is confirmation {len(known)} of the study (before: {dates}), with other seeds, folds or "
            "configurations; each earlier one counts as a look"
        )
    return notes
