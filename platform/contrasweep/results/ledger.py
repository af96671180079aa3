"""The ledger of a campaign: what was asked, granted and decided, in order.

    <storage>/<campaign>/campaign.json          the first entry: what was declared
    <storage>/<campaign>/ledger/000007.json     the 7th entry after it; it names the digest of the 6th

An entry is a file, which is created only where there is none of its number and is never changed. On any store only one
of many processes succeeds in that. So two processes that ask at the same time see one order of entries, and a process
that is killed leaves no half entry. The times in entries are for readers; nothing depends on a clock.
"""

import hashlib
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Literal

import pydantic

from contrasweep.config import Config
from contrasweep.errors import BrokenFileError
from contrasweep.planning.budget import Spent
from contrasweep.statistics.referee import Confirmation
from contrasweep.storage import compact
from contrasweep.storage.interim_log import Finite, Probability
from contrasweep.storage.json_file import MAX_BYTES, JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import Count, Digest, Measure, Record, Seed, Time, unix_time
from contrasweep.storage.records import StudyRecords, study_names
from contrasweep.storage.store import open_store

Verdict = Literal["keep", "discard", "undecided", "equivalent"]
MAX_ENTRIES = 100_000
DECLARED = "campaign.json"
"""The file of the first entry."""
OF_CAMPAIGN = "Of campaign "
"""What the description of a campaign's study begins with, before the campaign's name and a full stop."""
FIRST = 0
"""The number of the incumbent that a campaign begins with; another has the number of the entry that asked for it."""


@stored
class Began:
    """The first entry: what the campaign has `declared`, and the number of seeds for screening (`screening`).

    As in every entry, `after` is the digest of the entry before, and `at` the time of writing (unix seconds).
    """

    declared: Config
    screening: Count
    after: Digest = ""
    at: Time = 0.0
    kind: Literal["began"] = "began"


@stored
class Asked:
    """An entry that asks for a decision on a candidate.

    It has the candidate's name, the declared fields of its `arm`, and the `digest` of its settings and code. `by` says
    who asks, and `why` says for what reason the candidate is tried. `after` and `at` are as in `Began`.
    """

    candidate: Name
    arm: Config
    digest: Digest
    by: Label = ""
    why: Label = ""
    after: Digest = ""
    at: Time = 0.0
    kind: Literal["asked"] = "asked"


@stored
class Granted:
    """An entry that grants a confirmation its level and its fresh seeds; it is written before any of the trials starts.

    `asked` is the number of the candidate, and `incumbent` that of the incumbent which the candidate is compared with.
    A second entry with the same two numbers grants more seeds for the same confirmation, and no further level.
    """

    asked: Count
    incumbent: Count
    level: Probability
    seeds: tuple[Seed, ...]
    after: Digest = ""
    at: Time = 0.0
    kind: Literal["granted"] = "granted"


@stored
class Decided:
    """An entry with the decision on a candidate (its number is `asked`) against an incumbent.

    `stage` says whether the screen or a confirmation decided, and `kept` whether the candidate is the new incumbent.
    `seeds` counts the seeds behind the decision.

    `trials`, `gpu_hours` and `cost` are those of the candidate's trainings since the decision before. They leave out
    the screening trials of the incumbent, which all candidates share.

    `screened` is the mean difference candidate - incumbent on the screening seeds. `estimate` is the difference by the
    confirmation, and `low` to `high` its interval of coverage `confidence`. These are None where the screen decided, or
    where an end of the interval is infinite. `p` is that of the confirmation's test; `allowed` is the loss that this
    test allows a simpler candidate. `fell` is how deep the metric fell in collapsed seeds; 0 without any.

    `superseded` says that the incumbent changed before this decision could count. The candidate is then compared again,
    with the new incumbent.
    """

    asked: Count
    incumbent: Count
    verdict: Verdict
    stage: Literal["screen", "confirm"]
    kept: bool
    seeds: Count
    trials: Count
    gpu_hours: Measure
    cost: Measure
    screened: Finite | None = None
    estimate: Finite | None = None
    low: Finite | None = None
    high: Finite | None = None
    confidence: Probability | None = None
    p: Probability | None = None
    reason: Label = ""
    fell: Measure = 0.0
    allowed: Measure = 0.0
    superseded: bool = False
    after: Digest = ""
    at: Time = 0.0
    kind: Literal["decided"] = "decided"


Entry = Began | Asked | Granted | Decided
ENTRY_FILE = JsonFile[Entry](
    Annotated[Entry, pydantic.Field(discriminator="kind")],  # type: ignore[arg-type]
    1,
    "restore it from a backup; the last entry may be deleted, and what it decided is decided again from the records",
)
"""ledger/<number>.json, written and read."""


@dataclass
class Ledger:
    """The entries of a campaign as they were last read. An entry's number is its place among them, from 0."""

    storage: str
    campaign: str
    entries: tuple[Entry, ...] = ()
    # The digest of the last entry that was read; "": none was.
    _last: str = field(default="", repr=False)

    @cached_property
    def store(self):  # type: ignore[no-untyped-def]
        """The store that the ledger lies in."""
        return open_store(self.storage)

    def read(self) -> "Ledger":
        """Read the entries that were written since the last reading, and return the ledger itself.

        Raises `BrokenFileError` for a file that is no entry, is missing, or does not follow the one before it.
        """
        # Other files are left out, also those with a number in another form than `append` writes.
        keys = [
            key for key in self.store.list(f"{self.campaign}/") if key == self._key(_number(key))
        ]
        if len(keys) > MAX_ENTRIES:
            problem = f"it has {len(keys):,} entries, and {MAX_ENTRIES:,} are read"
            raise BrokenFileError(
                f"{self.store.uri}/{self.campaign}", problem, "declare another campaign"
            )
        for number in range(len(self.entries), len(keys)):
            key = self._key(number)
            try:
                data = self.store.read(key, MAX_BYTES)
            except FileNotFoundError:
                raise BrokenFileError(
                    f"{self.store.uri}/{key}", "this entry is missing", ENTRY_FILE.remedy
                ) from None
            entry = ENTRY_FILE.decode(data, f"{self.store.uri}/{key}")
            # Each entry has the digest of the one before; the declaration is the first one and no other.
            if entry.after != self._last or isinstance(entry, Began) != (number == 0):
                problem = "it does not follow the entry before it: one of them was changed"
                raise BrokenFileError(f"{self.store.uri}/{key}", problem, ENTRY_FILE.remedy)
            self._last = hashlib.sha256(data).hexdigest()
            self.entries += (entry,)
        return self

    def append(self, entry: Entry) -> bool:
        """Write an entry after those that were read, then read what is new.

        Return whether the entry was written: False where another process wrote an entry at this place first.
        """
        key = self._key(len(self.entries))
        # `after` is the digest of the entry before, so that a later change of that one is found.
        data = ENTRY_FILE.encode(asdict(entry) | {"after": self._last, "at": unix_time()})
        ENTRY_FILE.decode(data, f"{self.store.uri}/{key}")  # what cannot be read is not written
        written = self.store.write(key, data, if_absent=True)
        self.read()
        return bool(written)

    def _key(self, number: int) -> str:
        """Return the key of the entry with this number; that of the declaration for 0."""
        if number == 0:
            return f"{self.campaign}/{DECLARED}"
        return f"{self.campaign}/ledger/{number:06d}.json"

    @property
    def decisions(self) -> list[Decided]:
        """All decisions, the oldest first."""
        return [entry for entry in self.entries if isinstance(entry, Decided)]

    @property
    def grants(self) -> list[Granted]:
        """All grants, the oldest first."""
        return [entry for entry in self.entries if isinstance(entry, Granted)]

    @property
    def began(self) -> Began | None:
        """The declaration; None before the first candidate was asked."""
        return next((entry for entry in self.entries if isinstance(entry, Began)), None)

    def asked_for(self, candidate: int) -> Asked:
        """Return the entry that asked for the candidate with this number; `BrokenFileError` where none did."""
        entry = self.entries[candidate] if candidate < len(self.entries) else None
        if not isinstance(entry, Asked):
            raise BrokenFileError(
                f"{self.store.uri}/{self._key(candidate)}", "no candidate has this number", ""
            )
        return entry

    def number_of(self, digest: str) -> int | None:
        """Return the number of the candidate with this digest of settings and code; None where none has it."""
        return next(
            (
                number
                for number, entry in enumerate(self.entries)
                if isinstance(entry, Asked) and entry.digest == digest
            ),
            None,
        )

    def decision(self, candidate: int) -> Decided | None:
        """Return the newest decision on a candidate, which is given by its number; None before the first.

        None also where the newest decision does not count because the incumbent had changed (`superseded`).
        """
        decisions = [entry for entry in self.decisions if entry.asked == candidate]
        return None if not decisions or decisions[-1].superseded else decisions[-1]

    @property
    def incumbent(self) -> int:
        """The number of the present incumbent: the candidate that was kept last; before one was kept, `FIRST`."""
        return next((entry.asked for entry in reversed(self.decisions) if entry.kept), FIRST)

    def better_than_all_before(self, incumbent: int) -> int:
        """Return the number of the last candidate that was kept because it is better, not because it is simpler.

        Candidates after the one with the number `incumbent` do not count. `FIRST` where there is none.
        """
        best_so_far = FIRST
        for entry in self.decisions:
            if entry.kept:
                if entry.verdict == "keep":
                    best_so_far = entry.asked
                if entry.asked == incumbent:
                    return best_so_far
        return FIRST

    def screening_seeds(self, incumbent: int) -> list[int]:
        """Return the seeds on which candidates are screened against the incumbent with this number.

        Seeds are numbered from 0 in the order of the ledger: each new incumbent takes the next ones for its screening,
        and each grant the next ones for its confirmation. `ValueError` where the number is of no incumbent.
        """
        seeds_used = 0
        size = 0
        for entry in self.entries:
            if isinstance(entry, Granted):
                seeds_used += len(entry.seeds)
                continue
            # The declaration brings the first incumbent, a kept candidate the next.
            if isinstance(entry, Began):
                size = entry.screening
                new_incumbent = FIRST
            elif isinstance(entry, Decided) and entry.kept:
                new_incumbent = entry.asked
            else:
                continue
            if new_incumbent == incumbent:
                return list(range(seeds_used, seeds_used + size))
            seeds_used += size
        raise ValueError(f"{incumbent} was never the incumbent")

    def fresh_seeds(self, count: int) -> tuple[int, ...]:
        """Return the next `count` seeds, which no trial of the campaign has had, numbered as in `screening_seeds`."""
        seeds_used = sum(len(grant.seeds) for grant in self.grants)
        # The seeds of the screens: of the first incumbent, and of each candidate that was kept.
        if self.began:
            incumbents = 1 + len([entry for entry in self.decisions if entry.kept])
            seeds_used += incumbents * self.began.screening
        return tuple(range(seeds_used, seeds_used + count))

    def granted(self, candidate: int, incumbent: int) -> Granted | None:
        """Return the level and all seeds that a confirmation was granted, as one entry; None where nothing was granted.

        `candidate` and `incumbent` are the numbers of the two that the confirmation compares.
        """
        entries = [
            grant
            for grant in self.grants
            if (grant.asked, grant.incumbent) == (candidate, incumbent)
        ]
        if not entries:
            return None
        return Granted(
            candidate,
            incumbent,
            entries[0].level,
            tuple(seed for entry in entries for seed in entry.seeds),
        )

    @property
    def confirmations(self) -> list[Confirmation]:
        """The level, p and outcome of each confirmation in the order of their grants, for `Rule.granted`."""
        # Per candidate and incumbent: the first grant, which has the level, and the newest decision.
        grants: dict[tuple[int, int], Granted] = {}
        for grant in self.grants:
            grants.setdefault((grant.asked, grant.incumbent), grant)
        decisions = {
            (entry.asked, entry.incumbent): entry
            for entry in self.decisions
            if entry.stage == "confirm"
        }
        confirmations = []
        # A confirmation that is not decided, or was decided without a p, has kept nothing and counts with p = 1.
        for pair, grant in grants.items():
            decision = decisions.get(pair)
            p = 1.0 if decision is None or decision.p is None else decision.p
            kept = decision is not None and decision.kept
            confirmations.append(Confirmation(grant.level, kept, p))
        return confirmations

    @property
    def spent(self) -> Spent:
        """The number of trainings of the campaign, their GPU hours and their cost.

        What a candidate had spent up to its decision is written in the decision. For candidates without a decision, and
        for the screening trials of incumbents, it is counted from the records of trials, so that a killed process loses
        nothing.
        """
        counted = []
        # Numbers of candidates that train no more: all that they have spent stands in their decisions.
        settled = set()
        incumbents = [FIRST]
        for decided in self.decisions:
            counted.append(Spent(decided.trials, decided.gpu_hours, decided.cost))
            if not decided.superseded and decided.verdict != "undecided":
                settled.add(decided.asked)
            if decided.kept:
                incumbents.append(decided.asked)
        for number, entry in enumerate(self.entries):
            if isinstance(entry, Asked) and number not in settled:
                counted.append(self.spent_on(number))
        for number in incumbents:
            counted.append(self.measured(self.screening_study(number)))
        return sum(counted, Spent())

    def spent_on(self, candidate: int) -> Spent:
        """Return what the trials of a candidate have spent, less what its decisions say already."""
        decided = [entry for entry in self.decisions if entry.asked == candidate]
        counted = sum(
            (Spent(entry.trials, entry.gpu_hours, entry.cost) for entry in decided), Spent()
        )
        return sum(map(self.measured, self.studies_of(candidate)), Spent()).beyond(counted)

    def measured(self, study: str) -> Spent:
        """Return the number, GPU hours and cost of a study's ended trials."""
        return Spent.of(self.records(study))

    def records(self, study: str) -> Collection[Record]:
        """Return the records of a study's ended trials; none where there is no such study."""
        return compact.read_records(StudyRecords(self.storage, study), broken=[]).values()

    def screening_study(self, number: int) -> str:
        """Return the name of the study that trains the incumbent with this number on screening seeds."""
        return f"{self.campaign}.incumbent-{number}"

    def candidate_study(self, candidate: int) -> str:
        """Return the name of the study that trains the candidate with this number on screening seeds."""
        return f"{self.campaign}.{candidate}"

    def confirmation_study(self, candidate: int, incumbent: int) -> str:
        """Return the name of the study that trains a candidate and an incumbent, by their numbers, on fresh seeds."""
        name = f"{self.candidate_study(candidate)}.confirm"
        return name if incumbent == FIRST else f"{name}-{incumbent}"

    def studies_of(self, candidate: int) -> list[str]:
        """Return the names of the studies that train a candidate: that of its screen, and one for each confirmation."""
        incumbents = dict.fromkeys(
            grant.incumbent for grant in self.grants if grant.asked == candidate
        )
        confirmations = [self.confirmation_study(candidate, incumbent) for incumbent in incumbents]
        return [self.candidate_study(candidate), *confirmations]


def campaign_names(storage: str) -> list[str]:
    """Return the names of the campaigns of a storage, sorted."""
    return study_names(storage, DECLARED)


def _number(key: str) -> int:
    """Return the number in the key of an entry; 0 for the declaration, and -1 for a file whose name is no number."""
    name = key.rpartition("/")[2].removesuffix(".json")
    if name == DECLARED.removesuffix(".json"):
        return 0
    return int(name) if name.isascii() and name.isdecimal() else -1
