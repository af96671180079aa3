"""What differs between two studies, or between two arms: declaration, settings, code, data and versions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from contrasweep.canonical import label
from contrasweep.code import difference as code_difference
from contrasweep.errors import SpecError
from contrasweep.results.results import Results
from contrasweep.storage.code_files import read_sources
from contrasweep.storage.record import Record
from contrasweep.study import dotted

NONE = "–"
DEFAULT = "(default)"
MAX_VALUES = 8
"""Values of a setting that are shown."""
Kind = Literal["study", "arm", "setting", "space", "data", "code", "version"]
# of a declaration, what is compared elsewhere or tells nothing
ELSEWHERE = "name", "arms", "description", "labels"
Entry = tuple[Kind, str, str, str]
"""Its kind, its name, and its text on both sides."""


@dataclass(frozen=True)
class DifferenceRow:
    """One thing that differs. `arms`: in which arms ("" where it is of the whole study); `a` and `b` as text."""

    kind: Kind
    arms: str
    name: str
    a: str
    b: str


@dataclass(frozen=True)
class StudyDifference:
    """All that differs between `a` and `b`, and the sources that differ as a unified diff."""

    a: str
    b: str
    rows: tuple[DifferenceRow, ...]
    diff: str


def study_difference(a: str, b: str, storage: str) -> StudyDifference:
    """Compare two studies of a storage by the arms that both have, or two arms.

    Settings are those that trials ran with, defaults included. One that a method leaves out of a trial's identity while
    it has its default is shown as `(default)`.

    Args:
        a: A study's name, or `STUDY:ARM`.
        b: Another one; a study without arm has the arm of `a`.
        storage: Where both lie.

    Raises:
        SpecError: There is no such study or arm, or the studies have no arm in common.
    """
    study_a, _, arm_a = a.partition(":")
    study_b, _, arm_b = b.partition(":")
    first = Results.load(study_a, storage)
    other = Results.load(study_b, storage)
    # Which arm is compared with which: the named ones, or each with the arm of the same name.
    shared = [arm for arm in first.document.arms if arm in other.document.arms]
    pairs = [(arm_a or arm_b, arm_b or arm_a)] if arm_a or arm_b else [(arm, arm) for arm in shared]
    if not pairs:
        raise SpecError(
            "the studies have no arm in common",
            place="STUDY",
            value=f"{', '.join(first.document.arms)} and {', '.join(other.document.arms)}",
            hint="name one of each: STUDY:ARM",
        )
    for x, y in pairs:
        first.check_known("arm", x, list(first.document.arms))
        other.check_known("arm", y, list(other.document.arms))

    # What differs between the studies as a whole, whatever the arms.
    documents = first.document, other.document
    specs = ({k: v for k, v in d.spec.items() if k not in ELSEWHERE} for d in documents)
    study_rows = [*_rows("study", *map(_flat, specs))]
    if not (arm_a or arm_b):
        study_rows += _rows("arm", *(dict.fromkeys(d.arms, "yes") for d in documents))
    study_rows += _rows(
        "data", *({data.name: data.digest[:12] for data in d.datasets} for d in documents)
    )

    # What differs between arms: each entry with the arms that it is true of, and each diff of code once.
    by_entry: dict[Entry, list[str]] = {entry: [] for entry in study_rows}
    diffs: dict[str, None] = {}
    for x, y in pairs:
        entries, diff = _of_arms(first, x, other, y)
        diffs[diff] = None
        for entry in entries:
            by_entry.setdefault(entry, []).append(x if x == y else f"{x} and {y}")
    rows = [
        # What differs in all of several arms is said of none of them.
        DifferenceRow(kind, "" if 1 < len(pairs) == len(arms) else ", ".join(arms), *texts)
        for (kind, *texts), arms in sorted(
            by_entry.items(), key=lambda item: get_args(Kind).index(item[0][0])
        )
    ]
    return StudyDifference(a, b, tuple(rows), "".join(diffs))


def _of_arms(first: Results, x: str, other: Results, y: str) -> tuple[list[Entry], str]:
    """Return what differs between arm `x` of one study and arm `y` of another, and the unified diff of their code."""
    sides = _records(first, x), _records(other, y)
    trainables = [{"trainable": _values(record.trainable for record in side)} for side in sides]
    spaces = (
        _flat({"space": results.document.space(arm)}) for results, arm in ((first, x), (other, y))
    )
    settings = [_joined(dotted.flatten(record.config) for record in side) for side in sides]
    # Of one trainable, a setting that is missing on one side has its default there.
    if all(sides) and trainables[0] == trainables[1]:
        settings = [
            {key: side.get(key, DEFAULT) for key in {**settings[0], **settings[1]}}
            for side in settings
        ]
    entries = [
        *_rows("arm", *trainables),
        *_rows("arm", _flat(first.document.start(x)), _flat(other.document.start(y))),
        *_rows("setting", *settings),
        *_rows("space", *spaces),
    ]

    # Code and versions of packages: sources are read only where the digests differ.
    versions = (_joined(record.versions for record in side) for side in sides)
    # An arm's code is that of its trial that ended last.
    codes = [
        max(side, key=lambda record: record.ended).code.digest if side else "" for side in sides
    ]
    if codes[0] == codes[1]:
        return [*entries, *_rows("version", *versions)], ""
    old, new = (
        read_sources(results.records, code)
        for results, code in zip((first, other), codes, strict=True)
    )
    changes = (
        None if old is None or new is None else code_difference(old, new, (first.name, other.name))
    )
    changed = "sources were not kept" if changes is None else str(changes)
    code: Entry = ("code", changed, codes[0] or NONE, codes[1] or NONE)
    return [*entries, code, *_rows("version", *versions)], "" if changes is None else changes.diff


def _records(results: Results, arm: str) -> list[Record]:
    """The trials of an arm that ran; those of its search where it was not confirmed yet."""
    confirmed = [record for record in results.trial_records.values() if record.arm == arm]
    return confirmed or [record for record in results.search_records.values() if record.arm == arm]


def _joined(maps: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return key -> all values that it has in any of the mappings, as text."""
    seen: dict[str, dict[str, None]] = {}
    for mapping in maps:
        for key, value in mapping.items():
            seen.setdefault(key, {})[label(value)] = None
    return {key: _values(values) for key, values in seen.items()}


def _values(values: Iterable[str]) -> str:
    """Return the distinct values as text, the first `MAX_VALUES` of them."""
    texts = sorted(set(values))
    unlisted = len(texts) - MAX_VALUES
    if unlisted > 0:
        texts[MAX_VALUES:] = [f"{unlisted} more"]
    return ", ".join(texts)


def _flat(declared: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a declaration by dotted key, as tables show them."""
    return {key: label(value) for key, value in dotted.flatten(declared).items()}


def _rows(kind: Kind, first: Mapping[str, str], other: Mapping[str, str]) -> Iterator[Entry]:
    """Yield an entry of this kind for each name whose text differs; a side that lacks the name has `NONE`."""
    for key in {**first, **other}:
        if (a := first.get(key, NONE)) != (b := other.get(key, NONE)):
            yield kind, key, a, b
