"""What differs between two studies, or between two arms: declaration, settings, code, data and versions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from contrasweep.canonical import dumps, label
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
ELSEWHERE = "name", "arms", "description", "labels"
"""Fields of a declaration that are compared elsewhere, or that change no result."""
Values = dict[str, str]
"""The values of one thing on one side: canonical text, by which they are compared -> label, which is shown."""
Things = dict[Kind, dict[str, Values]]
"""All things of one side: kind -> name -> values."""


class _Entry(NamedTuple):
    """One thing that differs: its kind, its name, and its text on both sides."""

    kind: Kind
    name: str
    a: str
    b: str


@dataclass(frozen=True)
class DifferenceRow:
    """One thing that differs: `a` and `b` are its text on both sides.

    `arms` names the arms in which it differs; "" where it differs in the whole study, or in all of its arms.
    """

    kind: Kind
    arms: str
    name: str
    a: str
    b: str


@dataclass(frozen=True)
class StudyDifference:
    """All that differs between the studies (or arms) `a` and `b`; `diff` is the unified diff of their sources."""

    a: str
    b: str
    rows: tuple[DifferenceRow, ...]
    diff: str


def study_difference(a: str, b: str, storage: str) -> StudyDifference:
    """Compare two studies of a storage by the arms that both have, or two arms.

    Settings are those that trials ran with, defaults included. Where only one of two arms of the same trainable records
    a setting, the other arm has its default, which is shown as `(default)`.

    Args:
        a: A study's name, or `STUDY:ARM`.
        b: Another one. Where only one of both names an arm, it is compared with the arm of the same name.
        storage: The storage that has both studies.

    Returns:
        What differs, by kind.

    Raises:
        SpecError: There is no such study or arm, or the studies have no arm in common.
    """
    study_a, _, arm_a = a.partition(":")
    study_b, _, arm_b = b.partition(":")
    results_a = Results.load(study_a, storage)
    results_b = Results.load(study_b, storage)
    # Which arm is compared with which: the named ones, or each with the arm of the same name.
    shared = [arm for arm in results_a.document.arms if arm in results_b.document.arms]
    pairs = [(arm, arm) for arm in shared]
    if arm_a or arm_b:
        x = results_a.known_name("arm", arm_a or arm_b, list(results_a.document.arms))
        y = results_b.known_name("arm", arm_b or arm_a, list(results_b.document.arms))
        pairs = [(x, y)]
    if not pairs:
        raise SpecError(
            "the studies have no arm in common",
            place="STUDY",
            value=f"{', '.join(results_a.document.arms)} and {', '.join(results_b.document.arms)}",
            hint="name one of each: STUDY:ARM",
        )

    # By entry the arms in which it differs, none for what differs between whole studies; each diff of code once.
    whole = _of_study(results_a), _of_study(results_b)
    arms_of: dict[_Entry, list[str]] = {
        entry: [] for entry in _entries(*whole) if entry.kind != "arm" or not (arm_a or arm_b)
    }
    diffs: dict[str, None] = {}
    for x, y in pairs:
        entries, diff = _of_arms(results_a, x, results_b, y)
        diffs[diff] = None
        for entry in entries:
            arms_of.setdefault(entry, []).append(x if x == y else f"{x} and {y}")
    rows = []
    for entry in sorted(arms_of, key=lambda entry: get_args(Kind).index(entry.kind)):
        # What differs in all of several arms needs no names of arms.
        in_all = len(pairs) > 1 and len(arms_of[entry]) == len(pairs)
        arms = "" if in_all else ", ".join(arms_of[entry])
        rows.append(DifferenceRow(entry.kind, arms, entry.name, entry.a, entry.b))
    return StudyDifference(a, b, tuple(rows), "".join(diffs))


def _of_arms(results_a: Results, x: str, results_b: Results, y: str) -> tuple[list[_Entry], str]:
    """Return what differs between arm `x` of study `results_a` and arm `y` of `results_b`, and the diff of their code.

    The diff is "" where the code is the same, or was not kept.
    """
    a = _of_arm(results_a, x)
    b = _of_arm(results_b, y)
    # A setting that one side of the same trainable lacks has its default there.
    if a["arm"].get("trainable") == b["arm"].get("trainable"):
        defaults = {key: {DEFAULT: DEFAULT} for key in {**a["setting"], **b["setting"]}}
        a["setting"] = defaults | a["setting"]
        b["setting"] = defaults | b["setting"]
    entries = list(_entries(a, b))

    # The code of both arms, each that of the trial which ended last. Sources are read only where the digests differ.
    codes = []
    for results, arm in ((results_a, x), (results_b, y)):
        newest = max(_records(results, arm), key=lambda record: record.ended, default=None)
        codes.append(newest.code.digest if newest else "")
    if codes[0] == codes[1]:
        return entries, ""
    old = read_sources(results_a.records, codes[0])
    new = read_sources(results_b.records, codes[1])
    summary = "sources were not kept"
    diff = ""
    if old is not None and new is not None:
        changes = code_difference(old, new, (results_a.name, results_b.name))
        summary = str(changes)
        diff = changes.diff
    return [*entries, _Entry("code", summary, codes[0] or NONE, codes[1] or NONE)], diff


def _of_study(results: Results) -> Things:
    """Return what a study declares beside its arms' settings, the names of its arms, and its data."""
    document = results.document
    return {
        "study": _joined([{k: v for k, v in document.spec.items() if k not in ELSEWHERE}]),
        "arm": _joined([dict.fromkeys(document.arms, "yes")]),
        "data": _joined([{data.name: data.digest[:12] for data in document.datasets}]),
    }


def _of_arm(results: Results, arm: str) -> Things:
    """Return what an arm declares and what its trials ran with.

    The kind `arm` has the trainable, and of an arm that starts from another study's trials the fields of its `start`.
    """
    records = _records(results, arm)
    trainables = ({"trainable": record.trainable} for record in records)
    return {
        "arm": _joined([*trainables, results.document.start(arm)]),
        "setting": _joined(record.config for record in records),
        "space": _joined([{"space": results.document.space(arm)}]),
        "version": _joined(record.versions for record in records),
    }


def _records(results: Results, arm: str) -> list[Record]:
    """Return the records of an arm's trials in the table; where there are none, of its trials in the search."""
    confirmed = [record for record in results.trial_records.values() if record.arm == arm]
    return confirmed or [record for record in results.search_records.values() if record.arm == arm]


def _joined(maps: Iterable[Mapping[str, object]]) -> dict[str, Values]:
    """Return dotted key -> all values that it has in any of the nested mappings."""
    seen: dict[str, dict[str, str]] = {}
    for mapping in maps:
        for key, value in dotted.flatten(mapping).items():
            seen.setdefault(key, {})[dumps(value)] = label(value)
    return seen


def _shown(values: Iterable[str]) -> str:
    """Return distinct values as text, the first `MAX_VALUES` of them; `NONE` where there are none."""
    texts = sorted(set(values))
    unlisted = len(texts) - MAX_VALUES
    if unlisted > 0:
        texts[MAX_VALUES:] = [f"{unlisted} more"]
    return ", ".join(texts) or NONE


def _entries(a: Things, b: Things) -> Iterator[_Entry]:
    """Yield an entry for each thing whose values differ, by kind; a side that lacks its name has `NONE`."""
    for kind in a:
        for name in {**a[kind], **b[kind]}:
            first = a[kind].get(name, {})
            other = b[kind].get(name, {})
            if first.keys() == other.keys():
                continue
            entry = _Entry(kind, name, _shown(first.values()), _shown(other.values()))
            # 2 and the text "2" have one label: then those values are shown in full that one side alone has.
            if entry.a == entry.b:
                alone = first.keys() - other.keys(), other.keys() - first.keys()
                entry = _Entry(kind, name, *map(_shown, alone))
            yield entry
