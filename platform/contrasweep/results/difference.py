"""What differs between two studies, or between two arms: declaration, settings, code, data and versions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from contrasweep.canonical import dumps, label
from contrasweep.code import difference as code_difference
from contrasweep.errors import SpecError
from contrasweep.results.results import Results
from contrasweep.storage.code_files import read_sources
from contrasweep.storage.record import Record
from contrasweep.study import dotted

NONE = "–"
"""What is shown of a side that lacks a thing."""
DEFAULT = "(default)"
"""What is shown of an arm whose records do not name a setting that the other arm's records name."""
MAX_VALUES = 8
"""Values of a setting that are shown."""
Kind = Literal["study", "arm", "setting", "space", "data", "code", "version"]
ELSEWHERE = "name", "arms", "description", "labels"
"""Fields of a declaration that are compared elsewhere, or that change no result."""
Values = dict[str, str]
"""The values of one thing on one side: canonical text, by which they are compared -> label, which is shown."""
Things = dict[Kind, dict[str, Values]]
"""All things of one side: kind -> name -> values."""


@dataclass(frozen=True)
class DifferenceRow:
    """One thing that differs between two sides, such as a setting: its `name`, and its values in `a` and `b` as text.

    `kind` says what it is: a setting, a version and so on. `arms` names the arms in which it differs; "" where it
    differs in the whole study, or in all of its arms.
    """

    kind: Kind
    arms: str
    name: str
    a: str
    b: str


@dataclass(frozen=True)
class StudyDifference:
    """All that differs between the studies (or arms) named `a` and `b`: `rows`, with one thing each.

    `diff` is the unified diff of their sources; "" where these are the same or were not kept.
    """

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
    study_a, _, named_a = a.partition(":")
    study_b, _, named_b = b.partition(":")
    results_a = Results.load(study_a, storage)
    results_b = Results.load(study_b, storage)
    # Which arm is compared with which: the named ones, or each with the arm of the same name.
    arms_a = list(results_a.document.arms)
    arms_b = list(results_b.document.arms)
    pairs = [(arm, arm) for arm in arms_a if arm in arms_b]
    if named_a or named_b:
        arm_a = results_a.known_name("arm", named_a or named_b, arms_a)
        arm_b = results_b.known_name("arm", named_b or named_a, arms_b)
        pairs = [(arm_a, arm_b)]
    if not pairs:
        raise SpecError(
            "the studies have no arm in common",
            place="STUDY",
            value=f"{', '.join(arms_a)} and {', '.join(arms_b)}",
            hint="name one of each: STUDY:ARM",
        )

    # Entry -> the arms in which it differs; none for what differs between whole studies. Where two arms are named, it
    # is no difference that one study has further arms.
    arms_of: dict[DifferenceRow, list[str]] = {}
    for entry in _entries(_of_study(results_a), _of_study(results_b)):
        if entry.kind != "arm" or not (named_a or named_b):
            arms_of[entry] = []
    diffs: dict[str, None] = {}  # each diff of code once
    for arm_a, arm_b in pairs:
        entries, diff = _of_arms(results_a, arm_a, results_b, arm_b)
        diffs[diff] = None
        for entry in entries:
            arms = arm_a if arm_a == arm_b else f"{arm_a} and {arm_b}"
            arms_of.setdefault(entry, []).append(arms)
    rows = []
    for entry in sorted(arms_of, key=lambda entry: get_args(Kind).index(entry.kind)):
        # What differs in all of several arms needs no names of arms.
        in_all = len(pairs) > 1 and len(arms_of[entry]) == len(pairs)
        arms = "" if in_all else ", ".join(arms_of[entry])
        rows.append(replace(entry, arms=arms))
    return StudyDifference(a, b, tuple(rows), "".join(diffs))


def _of_arms(
    results_a: Results, arm_a: str, results_b: Results, arm_b: str
) -> tuple[list[DifferenceRow], str]:
    """Return what differs between the arm `arm_a` of one study and `arm_b` of another, and the diff of their code.

    The diff is "" where the code is the same, or was not kept.
    """
    a = _of_arm(results_a, arm_a)
    b = _of_arm(results_b, arm_b)
    # A setting that one side of the same trainable lacks has its default there.
    if a["arm"].get("trainable") == b["arm"].get("trainable"):
        defaults = {key: {DEFAULT: DEFAULT} for key in {**a["setting"], **b["setting"]}}
        a["setting"] = defaults | a["setting"]
        b["setting"] = defaults | b["setting"]
    entries = list(_entries(a, b))

    # The code of both arms. Sources are read only where the digests differ.
    digest_a = _newest_code(results_a, arm_a)
    digest_b = _newest_code(results_b, arm_b)
    if digest_a == digest_b:
        return entries, ""
    old = read_sources(results_a.records, digest_a)
    new = read_sources(results_b.records, digest_b)
    summary = "sources were not kept"
    diff = ""
    if old is not None and new is not None:
        changes = code_difference(old, new, (results_a.name, results_b.name))
        summary = str(changes)
        diff = changes.diff
    return [*entries, DifferenceRow("code", "", summary, digest_a or NONE, digest_b or NONE)], diff


def _newest_code(results: Results, arm: str) -> str:
    """Return the digest of the code of an arm's trial that ended last; "" for an arm without a record."""
    records = _records(results, arm)
    return max(records, key=lambda record: record.ended).code.digest if records else ""


def _of_study(results: Results) -> Things:
    """Return what a study as a whole has, by kind: declared fields, the names of its arms, the digests of its data.

    Settings of arms are left out, which are compared arm by arm.
    """
    document = results.document
    declared = {name: value for name, value in document.spec.items() if name not in ELSEWHERE}
    return {
        "study": _joined([declared]),
        "arm": _joined([dict.fromkeys(document.arms, "yes")]),
        "data": _joined([{data.name: data.digest[:12] for data in document.datasets}]),
    }


def _of_arm(results: Results, arm: str) -> Things:
    """Return what an arm has, by kind: its trainable, the settings of its trials, search space and package versions.

    An arm that starts from another study's trials has the fields of its `start` beside the trainable.
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
    """Return the records of an arm's trials that the table shows; before any of them has ended, those of its search."""
    confirmed = [record for record in results.trial_records.values() if record.arm == arm]
    return confirmed or [record for record in results.search_records.values() if record.arm == arm]


def _joined(maps: Iterable[Mapping[str, object]]) -> dict[str, Values]:
    """Return for each dotted key all different values that it has in the nested mappings `maps`.

    The values of a key are a mapping: canonical JSON -> label for readers.
    """
    values_of: dict[str, Values] = {}
    for mapping in maps:
        for key, value in dotted.flatten(mapping).items():
            values_of.setdefault(key, {})[dumps(value)] = label(value)
    return values_of


def _shown(values: Iterable[str]) -> str:
    """Return values as one text, each once, sorted and with commas between them; `NONE` where there are no values.

    After `MAX_VALUES` of them the text ends with the number of the rest, such as `3 more`.
    """
    texts = sorted(set(values))
    unlisted = len(texts) - MAX_VALUES
    if unlisted > 0:
        texts[MAX_VALUES:] = [f"{unlisted} more"]
    return ", ".join(texts) or NONE


def _entries(a: Things, b: Things) -> Iterator[DifferenceRow]:
    """Yield a row for each thing of `a` and `b` whose values differ; a side that has no such thing shows `NONE`."""
    for kind in a:
        for name in {**a[kind], **b[kind]}:
            values_a = a[kind].get(name, {})
            values_b = b[kind].get(name, {})
            if values_a.keys() == values_b.keys():
                continue
            entry = DifferenceRow(
                kind, "", name, _shown(values_a.values()), _shown(values_b.values())
            )
            # 2 and the text "2" have the same label. Then the canonical texts of those values are shown that only one
            # side has.
            if entry.a == entry.b:
                only_a = _shown(values_a.keys() - values_b.keys())
                only_b = _shown(values_b.keys() - values_a.keys())
                entry = DifferenceRow(kind, "", name, only_a, only_b)
            yield entry
