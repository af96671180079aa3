"""Which recorded trials of a plan were made by other code than there is now, and in what it differs."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from contrasweep.code import KEPT, Code, CodeVersion, CurrentCode, difference
from contrasweep.planning.plan import Plan
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.code_files import accepted, read_sources, read_version
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

UNKNOWN = ""
"""The digest of code that was not kept."""


@dataclass(frozen=True)
class OtherCode:
    """Trials made by the code `old` that would run the code `new` now, both digests.

    With `networks`, `old` and `new` are `<trial>@<unix time of its end>` of the network that they started from.
    """

    old: str
    new: str
    trial_ids: tuple[str, ...]  # with a record
    unfinished: tuple[str, ...]  # with a checkpoint and no record
    last_ended: float  # unix time at which the last of them ended; 0: none has
    changes: str  # what differs: `mythesis/method.py changed (12 lines)`
    accepted: bool
    networks: bool = False  # it is no code that differs, but the network that trials started from

    def __str__(self) -> str:
        """Return `mythesis/method.py changed (12 lines) since 2026-11-22 11:02`, in local time."""
        since = (
            f" since {time.strftime('%Y-%m-%d %H:%M', time.localtime(self.last_ended))}"
            if self.last_ended
            else ""
        )
        return f"{self.changes}{since}"


@dataclass(frozen=True)
class CodeComparison:
    """Trials of a study that were made by other code than there is now, or from other networks.

    `total` counts all planned trials, or where their number is not known those with a record. `others` are the changes,
    each with its trials.
    """

    total: int
    others: tuple[OtherCode, ...]

    def pending(self) -> tuple[OtherCode, ...]:
        """Return the changes that the user has not accepted yet."""
        return tuple(other for other in self.others if not other.accepted)

    def trial_ids(self) -> list[str]:
        """Return the ids of all trials of other code, accepted or not, unfinished ones too."""
        return [i for other in self.others for i in (*other.trial_ids, *other.unfinished)]

    def line(self, *, all_: bool = False) -> str:
        """Return the comparison as one line, empty where all trials are of the current code.

        With `all_`, the line includes the changes that were accepted.

        `24 of 30 trials were made by other code: mythesis/method.py changed (12 lines) since 2026-11-22 11:02`
        """
        others = self.others if all_ else self.pending()
        finished = sum(len(other.trial_ids) for other in others)
        unfinished = sum(len(other.unfinished) for other in others)
        counts = []
        if finished:
            was = "was" if finished == 1 else "were"
            counts.append(f"{finished} of {self.total} trials {was} made")
        if unfinished:
            counts.append(
                f"{unfinished} unfinished {'trial was' if unfinished == 1 else 'trials were'} begun"
            )
        # A change that several groups of trials have is said once.
        changes = "; ".join(dict.fromkeys(map(str, others)))
        kinds = {
            other.networks: "from other networks" if other.networks else "by other code"
            for other in others
        }
        return f"{' and '.join(counts)} {' and '.join(kinds.values())}: {changes}" if counts else ""


def is_other(record: Record, current: CurrentCode) -> bool:
    """Whether the trial of this record was made by other code than the `current` one for its trainable and config."""
    return record.code.digest != current.of(record.trainable, record.config).version.digest


def compare_code(
    records: StudyRecords,
    finished: Iterable[Record],
    trials: Sequence[Trial],
    current: CurrentCode,
    total: int | None,
) -> CodeComparison:
    """Return which trials other code than the `current` one made, by the records `finished` and by checkpoints.

    Args:
        records: The study's storage, for checkpoints without a record, kept sources and what the user has accepted.
        finished: The records to compare.
        trials: Those of the plan as far as they are known. A checkpoint of another trial (of a search) is compared with
            the code of all of them.
        current: The code that there is now.
        total: The number of planned trials; None: not known, and the records are counted.
    """
    unfinished = sorted(records.begun())
    accepted_pairs = accepted(records)
    # By digests of the old and the new code: records, and ids of trials with a checkpoint and no record.
    recorded: dict[tuple[str, str], list[Record]] = defaultdict(list)
    begun: dict[tuple[str, str], list[str]] = defaultdict(list)
    codes: dict[str, Code] = {}  # digest -> current code
    count = 0
    # A finished trial says itself which code made it.
    for record in finished:
        count += 1
        code = current.of(record.trainable, record.config)
        codes[code.version.digest] = code
        if record.code.digest != code.version.digest:
            recorded[record.code.digest, code.version.digest].append(record)
    planned = {trial.id: trial for trial in trials}
    # A checkpoint without a record is compared with every code that its trial might have now.
    for trial_id in unfinished:
        chosen = [planned[trial_id]] if trial_id in planned else trials
        might = {
            code.version.digest: code
            for code in (current.of(t.trainable, t.config) for t in chosen)
        }
        digest = checkpoint_code(records, trial_id)
        if digest is not None and might and digest not in might:
            # Which of several codes the trial would run is not known; the first stands for them.
            new = next(iter(might))
            codes[new] = might[new]
            begun[digest, new].append(trial_id)
    others = [
        OtherCode(
            old,
            new,
            tuple(record.trial_id for record in recorded[old, new]),
            tuple(begun[old, new]),
            max((record.ended for record in recorded[old, new]), default=0.0),
            changes_text(records, old, codes[new]),
            (old, new) in accepted_pairs,
        )
        for old, new in sorted({*recorded, *begun})
    ]
    return CodeComparison(count if total is None else total, tuple(others))


def checkpoint_code(records: StudyRecords, trial_id: str) -> str | None:
    """Return the digest of the code that wrote a trial's newest checkpoint; `UNKNOWN` where that was not kept.

    None where there is no checkpoint.
    """
    saved = Checkpoints(records.store, records.key(trial_id, "checkpoint")).latest()
    return None if saved is None else saved.extra.code or UNKNOWN


def changes_text(records: StudyRecords, old: str, new: Code) -> str:
    """Return in words how the code of digest `old` and the current code `new` differ.

    `mythesis/method.py changed (12 lines)`; where sources were not kept, that this is so.
    """
    if old == UNKNOWN:
        return "recorded before code was kept"
    sources = read_sources(records, old)
    if sources is None:
        return f"code {old} is now {new.version.digest}, and its sources were not kept"
    # Equal sources with another digest: what differs was not kept as text, as data files or packages.
    changes = difference(sources, texts(new))
    return (
        str(changes) if changes.changes else _other_parts(read_version(records, old), new.version)
    )


def _other_parts(old: CodeVersion | None, new: CodeVersion) -> str:
    """Return the names of files and distributions that differ, and `changed`, where no source that was kept differs.

    Of an `old` code without a description (None) all differ.
    """
    # Name -> digest of a module or version of a distribution.
    before, now = ({**v.modules, **v.distributions} if v else {} for v in (old, new))
    parts = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return f"{', '.join(name.removeprefix('file:') for name in parts)} changed"


def texts(code: Code) -> dict[str, str]:
    """Return file -> text of a code, of the kinds of files that a snapshot keeps (`KEPT`)."""
    return {
        s.file: s.data.decode("utf-8", "replace")
        for s in code.sources.values()
        if s.file.endswith(KEPT)
    }


def version_notes(finished: Iterable[Record], current: Iterable[CodeVersion]) -> list[str]:
    """Return a line for each package that `finished` trials ran with in another version than `current` code has.

    `24 of 30 trials ran with torch 2.6.0, here is 2.7.1`
    """
    current_versions = {
        name: version for code in current for name, version in code.distributions.items() if version
    }
    ran: dict[tuple[str, str], int] = defaultdict(int)
    total = 0
    # A package that a record does not name counts as of the same version.
    for record in finished:
        total += 1
        for name, version in current_versions.items():
            if (then := record.versions.get(name, version)) != version:
                ran[name, then] += 1
    return [
        f"{count} of {total} trials ran with {name} {then}, here is {current_versions[name]}"
        for (name, then), count in sorted(ran.items())
    ]


def _retrained(
    trials: Sequence[Trial], records: StudyRecords, scored: Iterable[Record]
) -> Iterable[OtherCode]:
    """Yield a change for each record of `scored` whose trial's source was trained again after it started from it.

    `trials` are those of the plan, whose sources are the present ones. A source that the plan does not know counts as
    unchanged.
    """
    starts = {trial.id: trial.start for trial in trials}
    known: set[tuple[str, str]] | None = None  # pairs that were accepted; read where one is needed
    for record in scored:
        then = record.start
        now = starts.get(record.trial_id)
        if then is not None and now is not None and then.ended != now.ended:
            if known is None:
                known = accepted(records)
            # The end of its training tells one network of a trial from another.
            old, new = (f"{ref.trial}@{ref.ended:.6f}" for ref in (then, now))
            yield OtherCode(
                old,
                new,
                trial_ids=(record.trial_id,),
                unfinished=(),
                last_ended=0.0,
                changes=f"the networks of {now.study} that {record.arm} starts from were trained again",
                accepted=(old, new) in known,
                networks=True,
            )


def compare_plan(
    plan: Plan,
    records: StudyRecords,
    current: CurrentCode,
    recorded: Mapping[str, Record],
    without: Collection[str] = (),
) -> tuple[CodeComparison, list[str]]:
    """Return the trials of `plan` that were made by other code or networks, and notes on other versions of packages.

    `recorded` is trial id -> record, of which all are compared but those of trials that failed or fitted no host: these
    have no place in a table. Of the planned trials the ids `without` are left out, whose code is not asked for.
    """
    scored = [
        record
        for record in recorded.values()
        if not (record.status.failed or record.status.infeasible)
    ]
    trials = [trial for trial in (*plan.trials, *plan.sample_trials) if trial.id not in without]
    # A sample trial stands for its cell or arm: all of its trials run the same code.
    versions = [current.of(t.trainable, t.config).version for t in plan.sample_trials]
    found = compare_code(records, scored, trials, current, plan.total)
    others = (*found.others, *_retrained(plan.trials, records, scored))
    return CodeComparison(found.total, others), version_notes(scored, versions)
