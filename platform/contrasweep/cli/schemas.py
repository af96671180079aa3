"""The JSON schemas of what `--json` prints, made of the types that the platform has and of those below."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

import pydantic
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contrasweep.campaign.decision import Decision, Outlook
from contrasweep.campaign.history import CandidateRow, Comparisons, History
from contrasweep.cli.catalogue import Setting
from contrasweep.cli.doctor import Finding
from contrasweep.cli.documents import version_of
from contrasweep.cluster.jobs import JobRow
from contrasweep.cluster.packing import PackingRow
from contrasweep.cluster.simulate import Makespan
from contrasweep.code.difference import Change
from contrasweep.data.inspecting import Finding as DataFinding
from contrasweep.errors import check_known
from contrasweep.judging.board import Board
from contrasweep.judging.roles import Roles
from contrasweep.live.overview import Overview
from contrasweep.live.state import RunState
from contrasweep.planning.budget import BudgetRow
from contrasweep.planning.planner import MissingDataset
from contrasweep.planning.power import PlannedSize
from contrasweep.results.difference import StudyDifference
from contrasweep.results.search import Best
from contrasweep.running.upkeep import Finding as BrokenFile
from contrasweep.running.upkeep import Verification
from contrasweep.schema import JsonSchema
from contrasweep.statistics.noise import Noise
from contrasweep.storage.record import Status
from contrasweep.tracking.sync import SyncSummary


def _members(name: str, /, *kinds: Any, **more: Any) -> Any:
    """Return the type of the document `name`, a TypedDict with all members of the classes `kinds`.

    It has the docstring of the first class. `more` are further members, name -> type; they replace those of the same
    name.
    """
    make: Any = TypedDict
    hints = dict[str, object]()
    for kind in kinds:
        hints |= get_type_hints(kind, include_extras=True)
    document = make(name, hints | more)
    document.__doc__ = kinds[0].__doc__ if kinds else None
    return document


Number = float | None
"""A number of a document; null where it is infinite or not known."""
Value = pydantic.JsonValue
"""What a study declares: a setting, the value of an axis."""
Values = dict[str, Value]
"""What a study declares, by names of its own: settings by dotted key, say."""


class ShareOfGpu(TypedDict):
    """A type of GPU on which a trial fits.

    `gpu` is the name of the type in the inventory, `share` the part of one GPU that a trial takes, as text: `1/4`, `1`.
    """

    gpu: str
    share: str


class Capacity(TypedDict):
    """How trials of a row of a plan fit the hosts, and how long one is expected to take.

    Of several kinds of trials in a row, the most demanding one counts.

    - `seconds`: expected duration of one trial; null where it is not known.
    - `memory_gib`: memory of a GPU that one trial takes, in GiB; null where it needs no GPU.
    - `memory_source`: in words, where that number comes from, such as a measurement or an estimate.
    - `host_memory_gib`, `cpus`: the host's memory in GiB and its cores that one trial takes.
    - `gpu`, `share`, `per_gpu`: the first choice of a place: the type of GPU, the part of one as text (`1/4`), and how
      many trials share one GPU; null where no GPU is taken.
    - `types`: every type of GPU on which a trial fits, the first choice first; empty without one.
    - `slots`: how many such trials run at once if no others do.
    - `infeasible`: why a trial fits no host; null where it fits one.
    """

    seconds: Number
    memory_gib: Number
    memory_source: str
    host_memory_gib: float
    cpus: float
    gpu: str | None
    share: str | None
    per_gpu: int | None
    types: list[ShareOfGpu]
    slots: int
    infeasible: str | None


class CellPlan(Capacity):
    """A cell of a grid, in a plan.

    - `arm`: the arm's name.
    - `axes`: axis, by its dotted key -> the cell's value of it; empty without axes.
    - `replicates`: how many trials the cell has, one for each seed and fold.
    - `done`: how many of these have ended.
    """

    arm: str
    axes: Values
    replicates: int
    done: int


class SearchPlan(Capacity):
    """An arm of a sweep, in a plan.

    - `arm`: the arm's name.
    - `searched`: dotted keys of the settings that are searched.
    - `configurations`: how many configurations the search tries; null where its budget counts none.
    - `search_trials`: how many trials the search takes (a configuration has one for each fold); null likewise.
    - `epochs`, `gpu_hours`: what the search has spent so far.
    - `search_ended`: how many trials of the search have ended.
    - `confirmation_trials`: how many trials confirm the best configuration.
    - `confirmation_ended`: how many of these have ended.
    """

    arm: str
    searched: list[str]
    configurations: int | None
    search_trials: int | None
    epochs: Number
    gpu_hours: Number
    search_ended: int
    confirmation_trials: int
    confirmation_ended: int


class Chance(TypedDict):
    """The chance that a size of a study decides a comparison, from 0 to 1.

    `assurance` is the chance over all that is not known: the true difference and the true noise. `low` to `high` is the
    range of the chance over the middle 80 % of what the noise may be.
    """

    assurance: float
    low: float
    high: float


class Size(TypedDict):
    """A larger study: its number of replicates and what it costs beyond the present one.

    `count` is the number of seeds or repeats, or of what else the replicates are (`unit`). `trials` is the number of
    additional trials; 0 where replicates are no trials. `hours` is their wall time; null where it is not known.
    """

    unit: Literal["seeds", "repeats", "runs", "items", "groups", "tasks"]
    count: int
    trials: int
    hours: Number


class EnoughSize(Size, Chance):
    """A size that decides a comparison with a chance of 80 % or more.

    `assurance` is that chance, from 0 to 1, over all that is not known. `low` to `high` is its range over the middle
    80 % of what the noise may be, so that `low` may be below 0.8.
    """


class UndecidedRow(TypedDict):
    """What would decide one undecided comparison, of arm `a` against arm `b`.

    - `context`: factor -> label of the cells that it is of; empty where it is over all cells.
    - `difference`: mean of a - b so far, in units of the metric.
    - `detectable`: the difference that is decided with a chance of 80 %: first at the present size, then at each of the
      document's `sizes`.
    - `degrees`: the degrees of freedom of the noise, in the same order.
    - `chances`: the chance of a decision at each of the `sizes`; empty where it is not known.
    - `enough`: the sizes that reach a chance of 80 %, the cheapest first; empty where none is known.
    - `enough_as_estimated`: where `enough` is empty, the cheapest size that would reach it if the noise is just as
      estimated; null where no size would.
    """

    context: dict[str, str]
    a: str
    b: str
    difference: Number
    detectable: list[Number]
    degrees: list[Number]
    chances: list[Chance]
    enough: list[EnoughSize]
    enough_as_estimated: Size | None


class AdviceDocument(TypedDict):
    """What would decide the comparisons that are undecided. A look is one analysis of a study, which plans a few.

    - `present`: the size that the study has.
    - `sizes`: two and four times that size.
    - `fresh`: true where no look is left, so that all sizes are those of a new study with other seeds.
    - `look`: the number of the next look, from 1.
    - `pending`: trials that are still to run; `comparisons` is empty while there are any.
    - `omitted`: how many undecided comparisons, those with the largest p, are left out of `comparisons`.
    """

    present: Size
    sizes: list[Size]
    fresh: bool
    look: int
    pending: int
    omitted: int
    comparisons: list[UndecidedRow]


class PlanDocument(TypedDict):
    """What would run, and what it takes on the hosts that it is planned for.

    - `trials`: trials of the whole plan; null where a sweep's budget counts none.
    - `cells`, `done`, `to_run`: of a grid alone: its cells, the trials that have ended, and those that have not.
    - `search_trials`, `ended`: of a sweep alone: the trials of its search (null as above), and the trials, of search
      and confirmation, that have ended.
    - `hours`: wall time of what is still to run; null where it is not known.
    - `hours_are_counted`: true where `hours` come from the counted operations of a step, since no trial has finished.
    - `measured_in`: other studies whose equal trials say how long trials take, of which none has finished here.
    - `slots`: how many trials run at once.
    - `plan_digest`: digest of all trials: another plan has another one.
    - `packing`: how many of the trials to run go where.
    - `makespan`: hours, cost and use of the hosts; null where `hours` is.
    - `budget`: name of a declared budget -> its limit and what is spent of it; empty without budgets.
    - `warnings`: sentences.
    - `sizes`: what the study can decide as declared; of a grid of fixed replicates with 2 and 4 times these too.
    - `missing`: datasets that are not staged.
    - `table`: a row for each cell of a grid, or each arm of a sweep.
    - `other_code`: sentences on recorded trials of other code, and on what is declared anew.
    - `advice`: what would decide the undecided comparisons; null before this very plan was run.
    """

    study: str
    trials: int | None
    cells: NotRequired[int]
    done: NotRequired[int]
    to_run: NotRequired[int]
    search_trials: NotRequired[int | None]
    ended: NotRequired[int]
    hours: Number
    hours_are_counted: bool
    measured_in: list[str]
    slots: int
    plan_digest: str
    packing: list[PackingRow]
    makespan: Makespan | None
    budget: dict[str, BudgetRow]
    warnings: list[str]
    sizes: list[PlannedSize]
    missing: list[MissingDataset]
    table: list[CellPlan | SearchPlan]
    other_code: list[str]
    advice: AdviceDocument | None


class UnstagedDocument(TypedDict):
    """A plan of which only this is known: all datasets of the study have still to be staged.

    `missing` has each dataset with the command that stages it.
    """

    study: str
    trials: Literal[0]
    missing: list[MissingDataset]


class PlansDocument(TypedDict):
    """The plans of a file with several studies, in their order, each a whole document `plan`."""

    studies: list[Values]


StatusWord = Annotated[
    str, pydantic.WithJsonSchema({"enum": [status.value for status in Status], "type": "string"})
]


class CellRow(TypedDict):
    """A cell of the table. Values are in units of the metric.

    - `factors`: what the cell is of: `arm` or an axis -> label. What the table has neither in rows nor in columns is
      averaged over.
    - `mean`, `min`, `max`: of the finished trials; null where none has finished.
    - `low`, `high`: the ends of the mean's interval; null where there is none.
    - `n`: how many trials have finished. `planned`: how many the cell has.
    - `statuses`: status -> number of trials, 0 for a status that none has.
    - `interval`: the method of the interval, in words.
    - `best`: true where the arm is not shown to be worse than the best one.
    - `mark`: `better` or `worse` than the reference, `worse` than the best, or "".
    - `other_code`: how many trials ran other code than the newest.
    """

    factors: dict[str, str]
    metric: str
    mean: Number
    low: Number
    high: Number
    min: Number
    max: Number
    n: int
    planned: int
    statuses: dict[StatusWord, int]
    interval: str
    best: bool
    mark: str
    other_code: int
    trial_ids: list[str]


class TrialRow(TypedDict):
    """A trial of the table.

    - `axes`: axis, by its dotted key -> the trial's value of it.
    - `fold`: the fold that is held out; null where it is tested on the test split.
    - `status`: how it ended; `pending`: it has not.
    - `cause`: why it failed, such as `method` or `host lost`; null where it did not fail, or none is known.
    - `metrics`: metric -> value of the last report; null where the trial has none.
    - `seconds`: training time over all attempts. `gpu_memory_gib`: the peak. Both are null where not known.
    """

    trial_id: str
    arm: str
    axes: Values
    fold: int | None
    seed: int
    status: StatusWord
    cause: str | None
    metrics: dict[str, Number]
    seconds: Number
    gpu_memory_gib: Number


class ComparisonRow(TypedDict):
    """Arm `a` against arm `b`. Differences are a - b, in units of the metric; null stands for what is not known.

    What is compared, and the verdict:

    - `context`: factor -> label of the cells that it is of; empty where it is over all cells.
    - `difference`: the mean over the replicates that both arms finished. `low`, `high`: its interval, at the level of
      the test; null for an infinite end.
    - `p_value`: two-sided p of no difference, adjusted over the family and its looks; 1 while replicates are to run.
      `raw_p`: that of this comparison alone. Both are null for fewer than two replicates, which are not tested.
    - `verdict`: in words, of `a`, such as `better, by less than matters`, `undecided` or, outside the study's family of
      comparisons, `exploratory`.
    - `direction`: `better`, `worse` or `not sure`. `relevance`: whether the difference is `above` or
      `below` the smallest one of interest, or `unclear`. Both are null outside the family, `relevance` also where no
      such difference was declared.
    - `equivalence_p`: adjusted p of a difference as large as `smallest_difference`; both null where none was declared.
    - `scope`: what the verdict holds for, in words. `notes`: sentences that a reader must know.
    - `test`: the test that gives the p. `smallest_p`: its least `raw_p` at this `n`, null for t-tests.
    - `alpha`: the chance of any false verdict in the family. `family`: how many comparisons it has. `correction`: how
      they share alpha. `mode`: whether larger (`max`) or smaller values are better.

    The data that it rests on:

    - `standard_error` of the difference, its `degrees` of freedom, and `deviation`, the standard deviation of one
      paired difference.
    - `variance_*`: the variances of one paired difference between folds, seeds, test items, and of the rest. Like the
      standard error and deviation null for fewer than two replicates.
    - `n`: independent replicates. `pairs`, `unpaired`: pairs of runs that are compared, and runs without a partner.
    - `failed_a`, `failed_b`, `missing_a`, `missing_b`: pairs where that arm failed by its method, or is missing for a
      cause outside it. `pending`, of `planned` pairs: those that are still to run. `collapsed_a`, `collapsed_b`: the
      trials of that arm that collapsed, such as `seed 1 on fold 0`.

    `earlier_*`: what an earlier look, with fewer replicates, decided; null where none did. `earlier_look` counts from
    1.
    """

    context: dict[str, str]
    a: str
    b: str
    metric: str
    difference: Number
    low: Number
    high: Number
    p_value: Number
    raw_p: Number
    verdict: str
    direction: Literal["better", "worse", "not sure"] | None
    relevance: Literal["above", "below", "unclear"] | None
    equivalence_p: Number
    smallest_difference: Number
    scope: str
    standard_error: Number
    degrees: Number
    variance_fold: Number
    variance_seed: Number
    variance_item: Number
    variance_residual: Number
    n: int
    pairs: int
    unpaired: int
    failed_a: int
    failed_b: int
    missing_a: int
    missing_b: int
    pending: int
    planned: int
    collapsed_a: list[str]
    collapsed_b: list[str]
    deviation: Number
    alpha: float
    test: str
    smallest_p: Number
    family: int
    correction: str
    mode: Literal["max", "min"]
    notes: list[str]
    earlier_look: int | None
    earlier_replicates: int | None
    earlier_verdict: str | None
    earlier_difference: Number
    earlier_low: Number
    earlier_high: Number
    earlier_p_value: Number


class ImportanceRow(TypedDict):
    """How much a searched setting of an arm matters, by PED-ANOVA.

    - `setting`: its dotted key.
    - `share`: its share, from 0 to 1, of what tells the best tenth of the configurations from all.
    - `noise`: the share that it reaches by chance, with the scores of the configurations shuffled.
    - `configurations`: how many the search has trained to their end.
    - `verdict`: `matters` (`share` is above `noise`), `no more than noise`, or `too few configurations`.

    `share` and `noise` are null where they are not known.
    """

    arm: str
    setting: str
    share: Number
    noise: Number
    configurations: int
    verdict: str


class ReportDocument(TypedDict):
    """What a study has found so far.

    - `statuses`: status -> number of trials of the table, of each status that occurs.
    - `complete`: whether each of these was trained as far as it was meant to.
    - `broken`: a line for each file that cannot be read, whose trial is left out.
    - `stopped`: why the run that printed this ended early, as by a budget; "" where it did not.
    - `table`: the cells, row by row. `comparisons`: the verdicts of the study's question.
    - `notes`: sentences that stand below the table.
    - `best`: the best settings of each arm. `importance`: of a sweep how much each searched setting matters.
    - `rows`: every trial of the table.
    """

    study: str
    statuses: dict[StatusWord, int]
    complete: bool
    broken: list[str]
    stopped: str
    table: list[CellRow]
    comparisons: list[ComparisonRow]
    notes: list[str]
    advice: AdviceDocument
    best: list[Best]
    importance: list[ImportanceRow]
    rows: list[TrialRow]


class ReportsDocument(TypedDict):
    """What the studies of a file have found, in their order, each a whole document `report`.

    Those that never began are left out.
    """

    studies: list[Values]


class Required(TypedDict):
    """What `--require` asked of the difference, and whether it is so.

    `of` is the requirement as it was given, such as `better` or `not-worse:0.01`. `outcome`: it `holds`, surely
    `fails`, or is `open` for want of data.
    """

    of: str
    outcome: Literal["holds", "fails", "open"]


class CompareDocument(TypedDict):
    """Arm `a` against arm `b`: `overall`, over all cells, and in each of the `cells` (empty where there is one alone).

    `required` is null without `--require`.
    """

    a: str
    b: str
    metric: str
    overall: ComparisonRow
    cells: list[ComparisonRow]
    required: Required | None


class JudgeDocument(TypedDict):
    """Verdicts on results that others made.

    - `source`: where they are from, as it was given. `design`: in words, how the arms are compared.
    - `roles`: which column was taken as what.
    - `table`, `comparisons`, `notes`, `advice`: as in a `report`.
    - `required`: null without `--require`.
    """

    source: str
    design: str
    roles: Roles
    table: list[CellRow]
    comparisons: list[ComparisonRow]
    notes: list[str]
    advice: AdviceDocument
    required: Required | None


StudyState = _members("StudyState", Overview, statuses=dict[StatusWord, int])


class Polled(TypedDict):
    """A document that is asked for again and again.

    `token` stands for its present content. Where it is passed as `--since` of a later call, `changed` of that answer
    names the members that differ since. `changed` is null without `--since`.
    """

    token: str
    changed: list[str] | None


StatusDocument = _members("StatusDocument", StudyState, Polled)


class JobStatusDocument(Polled):
    """The status of a job of a cluster.

    `job` is its id, `status` Ray's word: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
    """

    job: str
    status: str


class WatchDocument(Polled):
    """The state of the newest run of a study.

    `run` is null where no run has kept one. `changed` names members of `run`, not of this document.
    """

    run: RunState | None


class JobsDocument(TypedDict):
    """The jobs that `submit` has sent to a cluster since its head started, the newest first.

    Empty where there are none.
    """

    jobs: list[JobRow]


class SubmitDocument(TypedDict):
    """The job that was sent.

    `job` is its id, `address` that of the cluster's dashboard. With `--slurm` they are the id of the array and `slurm`,
    and `job` is "" where nothing was left to run.
    """

    job: str
    address: str


class SentRow(TypedDict):
    """A file that a submission would send: its name in what is sent, and its size in bytes."""

    file: str
    bytes: int


class SentDocument(TypedDict):
    """What a submission would send: each of the files, and the sum of their bytes."""

    files: list[SentRow]
    bytes: int


class SyncDocument(TypedDict):
    """What a sync did, for each of the trackers in the order in which they were named."""

    trackers: list[SyncSummary]


DecisionRow = _members("DecisionRow", Decision, sentence=str)
DecisionDocument = _members("DecisionDocument", DecisionRow, required=Required | None)
OutlookDocument = _members("OutlookDocument", Outlook, decided=DecisionRow | None)
LedgerRow = _members("LedgerRow", CandidateRow, decision=DecisionRow | None)
LedgerDocument = _members("LedgerDocument", History, rows=list[LedgerRow])  # type: ignore[valid-type]  # a variable


class EntriesDocument(TypedDict):
    """The entries of a kind, such as losses: name -> a line that describes it."""

    entries: dict[str, str]


class SettingsDocument(TypedDict):
    """The settings of an entry, in the order of its declaration; empty where it has none."""

    settings: list[Setting]


class DoctorDocument(TypedDict):
    """What works on this machine and what does not: one finding per check, in the order of the checks."""

    findings: list[Finding]


CodeRow = TypedDict(
    "CodeRow",
    {
        "digest": str,
        "trials": int,
        "from": str,
        "to": str,
        "commit": str,
        "dirty": bool,
        "modules": list[str],
        "trainables": list[str],
    },
)
"""A version of the code and its trials.

- `digest`: of the code; "" for trials whose code was not recorded. `trials`: how many ran it.
- `from`, `to`: when the first and the last of them ended, as `2026-01-31 12:00`.
- `commit`: of the checkout that holds the trainable, "" where there is none. `dirty`: whether the code differs from it.
- `modules`: names of the modules that the code has; empty where they were not kept.
- `trainables`: dotted paths of what these trials trained.
"""


class ArchivedRow(TypedDict):
    """Trials that were archived together.

    `name` is what `restore` calls them, `reason` why they were archived, `trials` their ids. `searches` is arm -> the
    search's digest, for each search that was archived with them.
    """

    name: str
    reason: str
    trials: list[str]
    searches: dict[str, str]


class CodeDocument(TypedDict):
    """Which code made which trials: `code` in the order in which the codes were used, `archived` the oldest first."""

    code: list[CodeRow]
    archived: list[ArchivedRow]


class CodeDifferenceDocument(TypedDict):
    """What differs between two codes of a study.

    - `a`, `b`: the codes as they were given: the beginning of a digest, or `now` for the code that there is.
    - `changes`: the files that differ in more than comments and formatting; empty where none does.
    - `diff`: the same as one unified diff, from `a` to `b`, uncut; "" where nothing differs.
    """

    a: str
    b: str
    changes: list[Change]
    diff: str


class CleanDocument(TypedDict):
    """Which checkpoints of a study are deleted.

    - `kept`: how many trials keep their checkpoint.
    - `trials`: ids of the trials whose checkpoints go. `gib`: the size of these, in GiB.
    - `lost`: sentences on what nobody can ask of the study without them.
    - `deleted`: false for `--dry-run`, and where there was nothing to delete.
    """

    study: str
    kept: int
    trials: list[str]
    gib: float
    lost: list[str]
    deleted: bool


class RemoveDocument(TypedDict):
    """The ids of the trials that were removed, and the name of their archive; both are empty where none was chosen."""

    removed: list[str]
    archived: str


class RestoreDocument(TypedDict):
    """The ids of the trials that were restored, and the name of the archive that they are from."""

    restored: list[str]
    archived: str


BrokenRow = _members("BrokenRow", BrokenFile, outcome=str)


VerifyDocument = _members("VerifyDocument", Verification, findings=list[BrokenRow], sound=bool)  # type: ignore[valid-type]


class DatasetSummary(TypedDict):
    """A staged dataset.

    - `name`: its name. `uri`: the address of its folder. `kind`: what its rows are, such as images.
    - `classes`: how many there are, 0 for data without labels. `rows`: split -> number of rows.
    - `mib`: size of its shards, in MiB.
    - `digest`: of its content. `synthetic`: whether any of it was generated and not measured.
    """

    name: str
    uri: str
    kind: str
    classes: int
    rows: dict[str, int]
    mib: float
    digest: str
    synthetic: bool


class DatasetDocument(DatasetSummary):
    """A staged dataset in full.

    - `folds`: by which rule rows belong to folds, as text, with the number of given ones; null without folds.
    - `columns`: name -> how it is stored.
    - `class_counts`: split -> class -> rows; empty without classes.
    - `source`: where it came from, and what was left out of it.
    """

    folds: str | None
    columns: Values
    class_counts: dict[str, dict[str, int]]
    source: Values


class DatasetsDocument(TypedDict):
    """The datasets that are staged below a storage; empty where none is."""

    datasets: list[DatasetSummary]


class KnownDatasetRow(TypedDict):
    """A dataset that can be staged.

    `about` is a line on it, `needs` what `--source` must name ("": nothing, it is bundled), `licence` that of the data.
    """

    name: str
    about: str
    needs: str
    licence: str


class KnownDatasetsDocument(TypedDict):
    """The datasets that can be staged, as `contrasweep data list --known` lists them."""

    known: list[KnownDatasetRow]


class DataVerifyDocument(TypedDict):
    """The shards of a dataset that are not what its manifest says.

    `uri` is the address of the dataset, `digest` that of its manifest; `findings` is empty where all is well.
    """

    uri: str
    digest: str
    findings: list[DataFinding]


class ErrorDocument(TypedDict):
    """Why a command ended with the exit status `status`.

    - `error`: the whole message, as one line. `kind`: the class of the error, "" where there is none.
    - `rule`, `place`, `value`, `hint`: the parts of the message where the input breaks a rule: the rule, where it is
      broken (an option, a field), the value there, and what would have worked. Else they are "", and `value` is null.
    """

    error: str
    kind: str
    rule: str
    place: str
    value: Value
    hint: str
    status: int


class DetectableRow(TypedDict):
    """The difference, in units of the metric, that a number of `seeds` decides with a chance of 80 %.

    `paired` is the best case: runs of two arms at a seed are as alike as two runs of one arm (null: it is not known how
    alike these are). `unpaired` is the worst case: such runs have nothing in common.
    """

    seeds: int
    paired: Number
    unpaired: Number


NoiseDocument = _members(
    "NoiseDocument",
    Noise,
    differ_by_seed=int | None,
    paired_deviation=Number,
    unpaired_deviation=float,
    failed=bool,
    p_value=float,
    difference=float,
    low=Number,
    high=Number,
    detectable=list[DetectableRow],
)


TYPES: Mapping[str, object] = {
    "plan": PlanDocument | UnstagedDocument,
    "report": ReportDocument,
    "plans": PlansDocument,
    "reports": ReportsDocument,
    "compare": CompareDocument,
    "judge": JudgeDocument,
    "board": Board,
    "noise": NoiseDocument,
    "status": StatusDocument | JobStatusDocument,
    "watch": WatchDocument,
    "studies": _members("StudiesDocument", studies=list[StudyState]),  # type: ignore[valid-type]
    "jobs": JobsDocument,
    "submit": SubmitDocument | SentDocument,
    "sync": SyncDocument,
    "list": EntriesDocument | SettingsDocument,
    "doctor": DoctorDocument,
    "code": CodeDocument | CodeDifferenceDocument,
    "diff": StudyDifference,
    "clean": CleanDocument,
    "remove": RemoveDocument,
    "restore": RestoreDocument,
    "verify": VerifyDocument,
    "dataset": DatasetDocument,
    "datasets": DatasetsDocument | KnownDatasetsDocument,
    "data-verify": DataVerifyDocument,
    "decide": DecisionDocument,
    "outlook": OutlookDocument,
    "ledger": LedgerDocument,
    "comparisons": Comparisons,
    "error": ErrorDocument,
}
"""The type of each document. `run` prints `report`. For a file of several studies, `plan` and `run` print `plans` and
`reports`."""


class _Tight(GenerateJsonSchema):
    """Makes JSON schemas of what is printed, in which every declared key is required and no other is allowed."""

    def typed_dict_schema(self, schema: Any) -> JsonSchema:
        """Return the schema of a TypedDict, with no other members than its own."""
        return {**super().typed_dict_schema(schema), "additionalProperties": False}

    def dataclass_schema(self, schema: Any) -> JsonSchema:
        """Return the schema of a dataclass: all its fields are required, and there are no others."""
        described = super().dataclass_schema(schema)
        members = described.get("properties", {})
        # A default of the class says nothing here: every member is printed.
        for member in members.values():
            member.pop("default", None)
        return {**described, "required": list(members), "additionalProperties": False}


def document_schema(name: str) -> JsonSchema:
    """Return the JSON schema of the document `name` in its present version; `SpecError` where no command prints one."""
    check_known(name, "documents", TYPES, "no command prints such a document", place="schema")
    version = version_of(name)
    kind: Any = TYPES[name]
    schema = pydantic.TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_Tight)
    # The member `schema`, which `dumps` adds, is in no type. A document of several forms has a part for each.
    for form in schema.get("anyOf", [schema]):
        if "$ref" in form:
            form = schema["$defs"][form["$ref"].rpartition("/")[2]]
        form["properties"] = {"schema": {"const": version}, **form["properties"]}
        form["required"] = ["schema", *form.get("required", [])]
    urn = "urn:contrasweep:" + version.replace("/", ":")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": urn, **schema}
