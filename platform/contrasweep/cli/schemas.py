"""The JSON schemas of what `--json` prints, made of the types that the platform has and of those below."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

import pydantic
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contrasweep.campaign.decision import Decision, Outlook
from contrasweep.campaign.history import Comparisons, History, Line
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
from contrasweep.results.advice import Size
from contrasweep.results.difference import StudyDifference
from contrasweep.results.search import Best
from contrasweep.running.upkeep import Finding as BrokenFile
from contrasweep.running.upkeep import Verification
from contrasweep.schema import JsonSchema
from contrasweep.statistics.noise import Noise
from contrasweep.storage.record import Status
from contrasweep.tracking.sync import SyncSummary


def _members(name: str, /, *kinds: Any, **more: Any) -> Any:
    """Return the type of a document with the members of these classes; `more` are others, or in place of theirs."""
    make: Any = TypedDict
    hints = dict[str, object]()
    for kind in kinds:
        hints |= get_type_hints(kind, include_extras=True)
    document = make(name, hints | more)
    document.__doc__ = kinds[0].__doc__ if kinds else None
    return document


Number = float | None
Value = pydantic.JsonValue
"""What a study declares: a setting, the value of an axis."""
Values = dict[str, Value]


class ShareOfGpu(TypedDict):
    """A type of GPU, and the share of one that a trial takes, as text (1/4)."""

    gpu: str
    share: str


class Capacity(TypedDict):
    """How trials of a row fit the hosts, and the expected seconds of one."""

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
    """A cell of a grid."""

    arm: str
    axes: Values
    replicates: int
    done: int


class SearchPlan(Capacity):
    """An arm of a sweep."""

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
    """The chance of a decision, with the range of the plausible noise."""

    assurance: float
    low: float
    high: float


@dataclass(frozen=True)
class EnoughSize(Size):
    """A size that decides a comparison in 80 % of studies."""

    assurance: float
    low: float
    high: float


class UndecidedRow(TypedDict):
    """What would decide a comparison; `detectable` and `degrees` of freedom now and at each of the sizes and others."""

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
    """What would decide the comparisons that are undecided."""

    present: Size
    sizes: list[Size]
    others: list[Size]
    fresh: bool
    look: int
    pending: int
    omitted: int
    comparisons: list[UndecidedRow]


class PlanDocument(TypedDict):
    """What would run and what it takes. Of a sweep there are `search_trials` and `ended`, of a grid the others."""

    study: str
    trials: int | None
    cells: NotRequired[int]
    done: NotRequired[int]
    to_run: NotRequired[int]
    search_trials: NotRequired[int | None]
    ended: NotRequired[int]
    hours: Number
    hours_are_counted: bool
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
    """A study all of whose datasets have still to be staged."""

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
    """A cell of the table: `n` finished trials of `planned`, their mean with its interval."""

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
    """A trial of the table."""

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
    """Arm `a` against arm `b`; all that `Comparison.to_dict` has."""

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
    """How much a searched setting matters."""

    arm: str
    setting: str
    share: Number
    noise: Number
    configurations: int
    verdict: str


class ReportDocument(TypedDict):
    """What a study has found so far."""

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
    """What the studies of a file have found, each a document `report`."""

    studies: list[Values]


class Required(TypedDict):
    """What was required `of` the difference, and whether it holds, surely fails or is open for want of data."""

    of: str
    outcome: Literal["holds", "fails", "open"]


class CompareDocument(TypedDict):
    """Two arms: over all cells, and in each."""

    a: str
    b: str
    metric: str
    overall: ComparisonRow
    cells: list[ComparisonRow]
    required: Required | None


class JudgeDocument(TypedDict):
    """Verdicts on results that others made; `design` says in words how the arms are compared."""

    source: str
    design: str
    roles: Roles
    table: list[CellRow]
    comparisons: list[ComparisonRow]
    notes: list[str]
    advice: AdviceDocument
    required: Required | None


StudyState = _members(
    "StudyState",
    Overview,
    statuses=dict[StatusWord, int],
    state=Literal["running", "complete", "failures", "stopped"],
)


class Polled(TypedDict):
    """A document that is asked for again; `changed`: members that differ since `--since`, null without it."""

    token: str
    changed: list[str] | None


StatusDocument = _members("StatusDocument", StudyState, Polled)


class JobStatusDocument(Polled):
    """The status of a job."""

    job: str
    status: str


class WatchDocument(Polled):
    """The state of the newest run of a study; null where none has kept one. `changed` is of its members."""

    run: RunState | None


class JobsDocument(TypedDict):
    """The jobs of a cluster."""

    jobs: list[JobRow]


class SubmitDocument(TypedDict):
    """The job that was sent."""

    job: str
    address: str


class SentRow(TypedDict):
    """A file that a submission would send."""

    file: str
    bytes: int


class SentDocument(TypedDict):
    """What a submission would send."""

    files: list[SentRow]
    bytes: int


class SyncDocument(TypedDict):
    """What a sync did."""

    trackers: list[SyncSummary]


DecisionRow = _members("DecisionRow", Decision, sentence=str)
DecisionDocument = _members("DecisionDocument", DecisionRow, required=Required | None)
OutlookDocument = _members("OutlookDocument", Outlook, decided=DecisionRow | None)
LedgerRow = _members("LedgerRow", Line, decision=DecisionRow | None)
LedgerDocument = _members("LedgerDocument", History, rows=list[LedgerRow])  # type: ignore[valid-type]  # a variable


class EntriesDocument(TypedDict):
    """Name -> description of the entries of a kind."""

    entries: dict[str, str]


class SettingsDocument(TypedDict):
    """The settings of an entry."""

    settings: list[Setting]


class DoctorDocument(TypedDict):
    """What works on this machine and what does not."""

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
"""A version of the code and its trials; `from` and `to`: when the first and the last of them ended."""


class ArchivedRow(TypedDict):
    """Trials that were archived."""

    name: str
    reason: str
    trials: list[str]
    searches: dict[str, str]


class CodeDocument(TypedDict):
    """Which code made which trials."""

    code: list[CodeRow]
    archived: list[ArchivedRow]


class CodeDifferenceDocument(TypedDict):
    """What differs between two codes."""

    a: str
    b: str
    changes: list[Change]
    diff: str


class CleanDocument(TypedDict):
    """The trials whose checkpoints go, the GiB of these, and what nobody can ask of the study without them."""

    study: str
    kept: int
    trials: list[str]
    gib: float
    lost: list[str]
    deleted: bool


class RemoveDocument(TypedDict):
    """The trials that were removed, and the name of their archive."""

    removed: list[str]
    archived: str


class RestoreDocument(TypedDict):
    """The trials that were restored, and the name of the archive that they are from."""

    restored: list[str]
    archived: str


BrokenRow = _members("BrokenRow", BrokenFile, outcome=str)


VerifyDocument = _members("VerifyDocument", Verification, findings=list[BrokenRow], sound=bool)  # type: ignore[valid-type]


class DatasetSummary(TypedDict):
    """A staged dataset."""

    name: str
    uri: str
    kind: str
    classes: int
    rows: dict[str, int]
    mib: float
    digest: str
    synthetic: bool


class DatasetDocument(DatasetSummary):
    """A staged dataset with its folds, its columns, and where it came from."""

    folds: str | None
    columns: Values
    class_counts: dict[str, dict[str, int]]
    source: Values


class DatasetsDocument(TypedDict):
    """The staged datasets of a storage."""

    datasets: list[DatasetSummary]


class KnownDatasetRow(TypedDict):
    """A dataset that can be staged."""

    name: str
    about: str
    needs: str
    licence: str


class KnownDatasetsDocument(TypedDict):
    """The datasets that can be staged."""

    known: list[KnownDatasetRow]


class DataVerifyDocument(TypedDict):
    """What of a dataset's shards is not what its manifest says."""

    uri: str
    digest: str
    findings: list[DataFinding]


class ErrorDocument(TypedDict):
    """Why a command ended with `status`: one line, and its parts where it breaks a rule ("" or null where none)."""

    error: str
    kind: str
    rule: str
    place: str
    value: Value
    hint: str
    status: int


class DetectableRow(TypedDict):
    """What so many seeds detect where runs of a seed are as alike as those of one arm, and where they share nothing."""

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
"""The type of each document. `run` prints a report; of several studies `plans`, `reports`."""


class _Tight(GenerateJsonSchema):
    """Schemas of what is printed: every declared key is there and no other."""

    def typed_dict_schema(self, schema: Any) -> JsonSchema:
        return {**super().typed_dict_schema(schema), "additionalProperties": False}

    def dataclass_schema(self, schema: Any) -> JsonSchema:
        whole = super().dataclass_schema(schema)
        members = whole.get("properties", {})
        for member in members.values():
            member.pop("default", None)
        return {**whole, "required": list(members), "additionalProperties": False}


def document_schema(name: str) -> JsonSchema:
    """Return the JSON schema of the document `name`; `SpecError` where no command prints one."""
    check_known(name, "documents", TYPES, "no command prints such a document", place="schema")
    version = version_of(name)
    kind: Any = TYPES[name]
    whole = pydantic.TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_Tight)
    for part in whole.get("anyOf", [whole]):
        members = whole["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        members["properties"] = {"schema": {"const": version}, **members["properties"]}
        members["required"] = ["schema", *members.get("required", [])]
    urn = "urn:contrasweep:" + version.replace("/", ":")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": urn, **whole}
