"""Which recorded trials of a plan were made by other code than there is now, and in what it differs."""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from contrasweep.code import KEPT_SUFFIXES, Code, CurrentCode, difference
from contrasweep.planning.plan import PlanBase
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.code_files import accepted, read_sources, read_version
from contrasweep.storage.record import Record, RecordsById
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

UNKNOWN = ""
"""The digest of code that was not kept."""


@dataclass(frozen=True)
class CodeChange:
    """A change of code, or of a network that trials started from, and the trials that were made before it."""

    old: str  # digest of the code that made the trials; of a network `<trial>@<unix time of its end>`
    new: str  # of the code that the trials would run now, likewise
    trial_ids: tuple[str, ...]  # with a record
    unfinished: tuple[str, ...]  # with a checkpoint and no record
    text: str  # what differs: `mythesis/method.py changed (12 lines)`
    accepted: bool  # by the user
    last_ended: float = 0.0  # unix time at which the last trial of other code ended; 0: none has
    networks: bool = False  # the network changed, and not the code

    def __str__(self) -> str:
        """Return `mythesis/method.py changed (12 lines) since 2026-11-22 11:02`, in local time."""
        if not self.last_ended:
            return self.text
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.last_ended))
        return f"{self.text} since {since}"


@dataclass(frozen=True)
class CodeComparison:
    """What has changed since trials of a study were made: their code, or the networks that they started from."""

    total: int  # of the planned trials; where their number is not known, of those with a record
    changes: tuple[CodeChange, ...]  # each with its trials

    def pending(self) -> tuple[CodeChange, ...]:
        """Return the changes that the user has not accepted yet."""
        return tuple(change for change in self.changes if not change.accepted)

    def trial_ids(self) -> list[str]:
        """Return the ids of all trials that were made before a change, unfinished trials too.

        Changes that the user has accepted count as well.
        """
        return [i for change in self.changes for i in (*change.trial_ids, *change.unfinished)]

    def line(self, *, with_accepted: bool = False) -> str:
        """Return the changes that the user has not accepted as one line; "" where there is none.

        For example `24 of 30 trials were made by other code: mythesis/method.py changed (12 lines) since 2026-11-22
        11:02`. With `with_accepted` the line has the accepted changes too.
        """
        changes = self.changes if with_accepted else self.pending()
        finished = sum(len(change.trial_ids) for change in changes)
        unfinished = sum(len(change.unfinished) for change in changes)
        counts = []
        if finished:
            was = "was" if finished == 1 else "were"
            counts.append(f"{finished} of {self.total} trials {was} made")
        if unfinished:
            trials_were = "trial was" if unfinished == 1 else "trials were"
            counts.append(f"{unfinished} unfinished {trials_were} begun")
        if not counts:
            return ""
        # Each kind and each text once, though several changes may have it.
        kinds = dict.fromkeys(
            "from other networks" if change.networks else "by other code" for change in changes
        )
        texts_of_changes = dict.fromkeys(map(str, changes))
        return f"{' and '.join(counts)} {' and '.join(kinds)}: {'; '.join(texts_of_changes)}"


def is_of_other_code(record: Record, current: CurrentCode) -> bool:
    """Whether the trial of this record was made by other code than the `current` one for its trainable and config."""
    return record.code.digest != current.of(record.trainable, record.config).version.digest


def compare_code(
    records: StudyRecords,
    finished: Collection[Record],
    trials: Sequence[Trial],
    current: CurrentCode,
    total: int | None,
) -> CodeComparison:
    """Return which trials were made by other code than the `current` one: finished trials, and those begun.

    Args:
        records: The study's storage. It has the checkpoints of unfinished trials, the sources that were kept, and the
            changes that the user has accepted.
        finished: The records to compare.
        trials: The trials of the plan as far as they are known. A checkpoint of any other trial, as of a search, is
            compared with the code of all of them.
        current: The code that there is now.
        total: The number of planned trials; None: not known, and the records are counted.
    """
    # (digest of the old code, of the new code) -> records, and ids of trials with a checkpoint and no record.
    recorded: dict[tuple[str, str], list[Record]] = defaultdict(list)
    begun: dict[tuple[str, str], list[str]] = defaultdict(list)
    codes: dict[str, Code] = {}  # digest -> current code
    # The record of a finished trial has the digest of the code that made it.
    for record in finished:
        code = current.of(record.trainable, record.config)
        new = code.version.digest
        codes[new] = code
        if record.code.digest != new:
            recorded[record.code.digest, new].append(record)
    # Begun trials have a checkpoint and no record.
    planned = {trial.id: trial for trial in trials}
    for trial_id in sorted(records.begun()):
        # The checkpoint is compared with every code that its trial may run now.
        possible_trials = [planned[trial_id]] if trial_id in planned else trials
        possible = [current.of(trial.trainable, trial.config) for trial in possible_trials]
        saved = Checkpoints.of(records, trial_id).latest()
        if saved is None or not possible:
            continue
        old = saved.extra.code or UNKNOWN
        # Which of several codes the trial would run is not known; the first stands for them.
        if old not in [code.version.digest for code in possible]:
            new = possible[0].version.digest
            codes[new] = possible[0]
            begun[old, new].append(trial_id)
    accepted_pairs = accepted(records)
    changes = [
        CodeChange(
            old,
            new,
            trial_ids=tuple(record.trial_id for record in recorded[old, new]),
            unfinished=tuple(begun[old, new]),
            last_ended=max((record.ended for record in recorded[old, new]), default=0.0),
            text=changes_text(records, old, codes[new]),
            accepted=(old, new) in accepted_pairs,
        )
        for old, new in sorted({*recorded, *begun})
    ]
    return CodeComparison(len(finished) if total is None else total, tuple(changes))


def changes_text(records: StudyRecords, old: str, new: Code) -> str:
    """Return in words how the code with digest `old` and the current code `new` differ.

    For example `mythesis/method.py changed (12 lines)`. Where the sources of the old code were not kept, the text says
    so.
    """
    if old == UNKNOWN:
        return "recorded before code was kept"
    sources = read_sources(records, old)
    if sources is None:
        return f"code {old} is now {new.version.digest}, and its sources were not kept"
    changes = difference(sources, texts(new))
    if changes.changes:
        return str(changes)
    # Equal sources with another digest differ in what is not kept as text, such as data files and packages.
    # Name -> digest of a module or file, or version of a distribution; none where the description was not kept.
    was = read_version(records, old)
    before = {**was.modules, **was.distributions} if was else {}
    now = {**new.version.modules, **new.version.distributions}
    parts = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return f"{', '.join(name.removeprefix('file:') for name in parts)} changed"


def texts(code: Code) -> dict[str, str]:
    """Return file -> text of the code's sources, for those kinds of files that a snapshot keeps (`KEPT_SUFFIXES`)."""
    return {
        source.file: source.data.decode("utf-8", "replace")
        for source in code.sources.values()
        if source.file.endswith(KEPT_SUFFIXES)
    }


def _retrained(
    trials: Sequence[Trial], records: StudyRecords, scored: Iterable[Record]
) -> Iterator[CodeChange]:
    """Yield a change for each record of `scored` whose trial started from a network that was trained again afterwards.

    `trials` are those of the plan, which start from the present networks. A trial that is not in the plan counts as
    unchanged.
    """
    starts = {trial.id: trial.start for trial in trials if trial.start}
    if not starts:
        return
    accepted_pairs = accepted(records)
    for record in scored:
        start_then = record.start
        start_now = starts.get(record.trial_id)
        if start_then and start_now and start_then.ended != start_now.ended:
            # A trial that is trained twice gives two networks, told apart by the time when training ended.
            old = f"{start_then.trial}@{start_then.ended:.6f}"
            new = f"{start_now.trial}@{start_now.ended:.6f}"
            yield CodeChange(
                old,
                new,
                trial_ids=(record.trial_id,),
                unfinished=(),
                text=f"the networks of {start_now.study} that {record.arm} starts from were trained again",
                accepted=(old, new) in accepted_pairs,
                networks=True,
            )


def compare_plan(
    plan: PlanBase,
    records: StudyRecords,
    current: CurrentCode,
    recorded: RecordsById,
    without: Collection[str] = (),
) -> tuple[CodeComparison, list[str]]:
    """Return the trials of `plan` that were made by other code or networks, and notes on other versions of packages.

    `recorded` is trial id -> record. Records of trials that failed or fitted no host are not compared, because they are
    in no table. `without` are ids of planned trials that run again anyway: their checkpoints are not compared, and
    `recorded` has none of them.
    """
    scored = []
    for record in recorded.values():
        if not record.status.failed and not record.status.infeasible:
            scored.append(record)
    # A checkpoint of a search's trial is compared with the code of the examples, since the plan has no such trial.
    trials = [trial for trial in (*plan.trials, *plan.example_trials) if trial.id not in without]
    comparison = compare_code(records, scored, trials, current, plan.total)
    changes = (*comparison.changes, *_retrained(plan.trials, records, scored))

    # Package -> version here. All trials of a cell or an arm run the same code as its example trials.
    versions: dict[str, str] = {}
    for trial in plan.example_trials:
        versions |= current.of(trial.trainable, trial.config).version.distributions
    # (package, other version) -> number of trials that ran with it. A package that a record does not name counts as of
    # the current version.
    ran = Counter[tuple[str, str]]()
    for record in scored:
        for name, version in versions.items():
            recorded_version = record.versions.get(name, version)
            if version and recorded_version != version:
                ran[name, recorded_version] += 1
    notes = [
        f"{count} of {len(scored)} trials ran with {name} {version}, here is {versions[name]}"
        for (name, version), count in sorted(ran.items())
    ]
    return CodeComparison(comparison.total, changes), notes
