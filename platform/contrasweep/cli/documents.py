"""What `--json` prints: the type of each document, its version, and the JSON schema that is made of both.

A document is one JSON object whose first member, `schema`, says its name and version: `report/2`. `contrasweep schema
report` prints its JSON schema, and `docs/schemas.json` has all of them; a test compares both with what commands print.
A number that is not finite or not known is null. Names that a study chooses (axes, metrics, settings) are keys of a
mapping of their own, so that none hides a key of ours. A changed type needs a larger version.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

import pydantic
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contrasweep.cli.catalogue import Setting
from contrasweep.cli.doctor import Finding
from contrasweep.cluster.jobs import JobRow
from contrasweep.cluster.packing import PackingRow
from contrasweep.cluster.simulate import Makespan
from contrasweep.data.inspecting import Finding as DataFinding
from contrasweep.errors import SpecError, check_known
from contrasweep.live.state import RunState
from contrasweep.planning.budget import BudgetRow
from contrasweep.planning.planner import MissingDataset
from contrasweep.planning.power import PlannedSize
from contrasweep.schema import JsonSchema
from contrasweep.storage.record import Status

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
    starts_from: str | None
    configurations: int | None
    search_trials: int | None
    epochs: Number
    gpu_hours: Number
    search_ended: int
    confirmation_trials: int
    confirmation_ended: int


class Size(TypedDict):
    """A larger study: its replicates, and the trials and hours that it takes beyond what there is."""

    unit: Literal["seeds", "repeats", "folds"]
    count: int
    trials: int
    hours: Number


class Chance(TypedDict):
    """The chance of a decision, with the range of the plausible noise."""

    assurance: float
    low: float
    high: float


class EnoughSize(Size, Chance):
    """A size that decides a comparison in 80 % of studies."""


class UndecidedRow(TypedDict):
    """What would decide a comparison; `detectable` and `degrees` of freedom now and at each of the sizes and others."""

    context: dict[str, str]
    a: str
    b: str
    difference: Number
    detectable: list[Number]
    degrees: list[Number]
    assurance: list[Chance]
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


StatusWord = Annotated[str, pydantic.WithJsonSchema({"enum": [status.value for status in Status], "type": "string"})]


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
    """Arm `a` against arm `b`; all that `Comparison.to_dict` has, and the unadjusted p, `p_raw`."""

    context: dict[str, str]
    a: str
    b: str
    metric: str
    p_raw: Number
    difference: Number
    low: Number
    high: Number
    p_value: Number
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
    probability_of_improvement: Number
    probability_low: Number
    probability_high: Number
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
    sign_flip_p: Number
    smallest_p: Number
    family: int
    correction: str
    mode: Literal["max", "min"]
    wilcoxon_p: Number
    bca_low: Number
    bca_high: Number
    notes: list[str]
    earlier_look: int | None
    earlier_replicates: int | None
    earlier_verdict: str | None
    earlier_difference: Number
    earlier_low: Number
    earlier_high: Number
    earlier_p_value: Number


class BestRow(TypedDict):
    """The best settings of an arm."""

    arm: str
    settings: Values
    configurations: int
    searched: Number
    mean: Number
    low: Number
    high: Number
    n: int


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
    trials: dict[StatusWord, int]
    complete: bool
    broken: list[str]
    stopped: str
    table: list[CellRow]
    comparisons: list[ComparisonRow]
    notes: list[str]
    advice: AdviceDocument
    best: list[BestRow]
    importance: list[ImportanceRow]
    rows: list[TrialRow]


class ReportsDocument(TypedDict):
    """What the studies of a file have found, each a document `report`, and one table of those that none starts from."""

    studies: list[Values]
    table: list[CellRow]


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


class RolesRow(TypedDict):
    """Which column is what; `guessed` are the roles that nobody said."""

    arm: list[str]
    metric: str
    mode: Literal["max", "min"]
    pair: list[str]
    item: str
    group: str
    block: str
    reference: str | None
    guessed: list[str]


class JudgeDocument(TypedDict):
    """Verdicts on results that others made; `design` says in words how the arms are compared."""

    source: str
    design: str
    roles: RolesRow
    table: list[CellRow]
    comparisons: list[ComparisonRow]
    notes: list[str]
    advice: AdviceDocument
    required: Required | None


class BoardRow(TypedDict):
    """An arm at its `rank`; its true rank is `low` to `high`, and `p_next` is of no difference to the arm below."""

    rank: int
    arm: str
    mean: Number
    low: int
    high: int
    p_next: Number


class BoardDocument(TypedDict):
    """A ranking; `ties` are the arms that the first is not shown to be better than."""

    rows: list[BoardRow]
    alpha: float
    separable: int
    separable_holm: int
    ties: list[str]
    needed: int | None
    unit: str
    single: list[str]
    design: str
    columns: str


class StudyState(TypedDict):
    """How far a study is. Times are seconds since 1970; `trials` None: as many as its budget pays for."""

    study: str
    state: Literal["running", "complete", "failures", "stopped"]
    metric: str
    trials: int | None
    statuses: dict[StatusWord, int]
    running: int
    alive: bool
    started: float
    last_sign: float
    best: Number
    best_arm: str
    labels: dict[str, str]


class Polled(TypedDict):
    """A document that is asked for again; `changed`: members that differ since `--since`, null without it."""

    token: str
    changed: list[str] | None


class StatusDocument(StudyState, Polled):
    """How far a study is."""


class JobStatusDocument(Polled):
    """The status of a job."""

    job: str
    status: str


class WatchDocument(Polled):
    """The state of the newest run of a study; null where none has kept one. `changed` is of its members."""

    run: RunState | None


class StudiesDocument(TypedDict):
    """The studies of a storage."""

    studies: list[StudyState]


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


class SyncRow(TypedDict):
    """What a sync did in one tracker."""

    study: str
    uri: str
    added: int
    mended: int
    values: int
    unchanged: int
    seconds: float
    url: str | None


class SyncDocument(TypedDict):
    """What a sync did."""

    trackers: list[SyncRow]


class MoreSeeds(TypedDict):
    """What would decide an undecided candidate, and the chance that it does."""

    seeds: int
    trials: int
    gpu_hours: float
    cost: float
    chance: float


class DecisionRow(TypedDict):
    """What was decided of a candidate; see `contrasweep.campaign.decision.Decision`."""

    campaign: str
    candidate: str
    number: int
    incumbent: str
    metric: str
    verdict: Literal["keep", "discard", "undecided", "equivalent"]
    kept: bool
    stage: Literal["screen", "confirm"]
    screened: Number
    estimate: Number
    low: Number
    high: Number
    confidence: Number
    p: Number
    level: Number
    seeds: int
    trials: int
    gpu_hours: float
    cost: float
    reason: str
    allowed: float
    remembered: bool
    more: MoreSeeds | None
    sentence: str


class DecisionDocument(DecisionRow):
    """A decision as `decide` prints it, with what `--require` asked of it."""

    required: Required | None


class OutlookDocument(TypedDict):
    """What a decision would take."""

    campaign: str
    candidate: str
    digest: str
    incumbent: str
    decided: DecisionRow | None
    screening_trials: int
    confirmation_trials: int
    gpu_hours: Number
    cost: Number
    level: float
    trials_left: int | None
    gpu_hours_left: Number
    cost_left: Number


class LedgerRow(TypedDict):
    """A candidate of a campaign; its decision is null while it is not decided."""

    number: int
    candidate: str
    digest: str
    by: str
    why: str
    asked: str
    decision: DecisionRow | None


class LedgerDocument(TypedDict):
    """What a campaign decided so far, in order."""

    campaign: str
    metric: str
    alpha: float
    error: Literal["family", "fdr"]
    incumbent: str
    next_level: float
    trials: int
    gpu_hours: float
    cost: float
    rows: list[LedgerRow]


class StreamRow(TypedDict):
    """A decisive comparison of a study, as one of a stream over all studies."""

    study: str
    at: str
    a: str
    b: str
    metric: str
    context: str
    verdict: str
    p: Number
    level: float
    remains: bool


class StreamDocument(TypedDict):
    """The decisive comparisons of all studies of a storage; `skipped`: a sentence for each study left out."""

    comparisons: list[StreamRow]
    skipped: list[str]


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


class ChangeRow(TypedDict):
    """A file that differs."""

    file: str
    kind: str
    lines: int


class CodeDifferenceDocument(TypedDict):
    """What differs between two codes."""

    a: str
    b: str
    changes: list[ChangeRow]
    diff: str


class DifferenceRow(TypedDict):
    """One thing that differs; `arms` is empty where it is the same in all of them."""

    kind: Literal["study", "arm", "setting", "space", "data", "code", "version"]
    arms: str
    name: str
    a: str
    b: str


class DiffDocument(TypedDict):
    """What differs between two studies or arms, and the code as a unified diff."""

    a: str
    b: str
    rows: list[DifferenceRow]
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


class BrokenRow(TypedDict):
    """A broken file, what mends it, and what is done about it."""

    file: str
    problem: str
    repair: str
    of: str
    outcome: str


class VerifyDocument(TypedDict):
    """What of a study's files is broken."""

    study: str
    files: int
    trials: int
    findings: list[BrokenRow]
    archived: str
    repaired: bool
    sound: bool


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


class ColumnRow(TypedDict):
    """A column of an answer, and its type in Arrow's words."""

    name: str
    type: str


class QueryDocument(TypedDict):
    """The answer of a query: its columns, and a list a row; how many broken files were left out."""

    columns: list[ColumnRow]
    rows: list[list[Value]]
    broken: int


class ErrorDocument(TypedDict):
    """Why a command ended with `status`: one line, and its parts where it breaks a rule ("" or null where none)."""

    error: str
    kind: str
    rule: str
    place: str
    value: Value
    hint: str
    status: int


DOCUMENTS: Mapping[str, tuple[Any, int]] = {
    "plan": (PlanDocument | UnstagedDocument, 1),
    "report": (ReportDocument, 2),
    "plans": (PlansDocument, 1),
    "reports": (ReportsDocument, 1),
    "compare": (CompareDocument, 2),
    "judge": (JudgeDocument, 1),
    "board": (BoardDocument, 1),
    "status": (StatusDocument | JobStatusDocument, 1),
    "watch": (WatchDocument, 1),
    "studies": (StudiesDocument, 1),
    "jobs": (JobsDocument, 1),
    "submit": (SubmitDocument | SentDocument, 2),
    "sync": (SyncDocument, 1),
    "list": (EntriesDocument | SettingsDocument, 1),
    "doctor": (DoctorDocument, 1),
    "code": (CodeDocument | CodeDifferenceDocument, 1),
    "diff": (DiffDocument, 1),
    "clean": (CleanDocument, 1),
    "remove": (RemoveDocument, 1),
    "restore": (RestoreDocument, 1),
    "verify": (VerifyDocument, 1),
    "dataset": (DatasetDocument, 1),
    "datasets": (DatasetsDocument | KnownDatasetsDocument, 1),
    "data-verify": (DataVerifyDocument, 1),
    "decide": (DecisionDocument, 2),
    "outlook": (OutlookDocument, 1),
    "ledger": (LedgerDocument, 1),
    "comparisons": (StreamDocument, 1),
    "query": (QueryDocument, 1),
    "error": (ErrorDocument, 1),
}
"""Name -> the type of a document and its version. `run` prints a report; of several studies `plans`, `reports`."""


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
    check_known(name, "documents", DOCUMENTS, "no command prints such a document", place="schema")
    kind, version = DOCUMENTS[name]
    whole = pydantic.TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_Tight)
    for part in whole.get("anyOf", [whole]):
        own = whole["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        own["properties"] = {"schema": {"const": f"{name}/{version}"}, **own["properties"]}
        own["required"] = ["schema", *own.get("required", [])]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:contrasweep:{name}:{version}"}
    return {**head, **whole}


def dumps(name: str, value: Mapping[str, object]) -> str:
    """Return the text of the document `name`: plain JSON, with null for numbers that are not finite."""
    from pydantic_core import to_json

    plain = json.loads(to_json(value, inf_nan_mode="null", fallback=_plain))
    return json.dumps({"schema": f"{name}/{DOCUMENTS[name][1]}", **plain}, indent=1)


def _plain(value: Any) -> object:
    """A number of NumPy's as Python's, null for pandas' missing value, anything else as text."""
    if type(value).__name__ == "NAType":
        return None
    return value.item() if hasattr(value, "item") else str(value)


_TOKEN = re.compile(r"(?:[0-9a-f]{8})+")


def polled(members: Mapping[str, object], since: str | None) -> Polled:
    """Return the token of `members`, and the names of those that differ from what the token `since` was of.

    A token is a digest of each member, so that nothing is kept between two calls.
    """
    text = {name: json.dumps(value, sort_keys=True, default=str).encode() for name, value in members.items()}
    digests = {name: hashlib.sha256(name.encode() + data).hexdigest()[:8] for name, data in text.items()}
    if since is not None and not _TOKEN.fullmatch(since):
        hint = "`token` of an earlier answer of the same command"
        raise SpecError("this is no token", place="--since", value=since, hint=hint)
    known = set(re.findall(".{8}", since or ""))
    changed = None if since is None else [name for name, digest in digests.items() if digest not in known]
    return {"token": "".join(digests.values()) or "0" * 8, "changed": changed}
