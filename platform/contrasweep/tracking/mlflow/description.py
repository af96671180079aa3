"""The study and its trials as MLflow shows them: names, params, tags. MLflow is not imported here."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from contrasweep.canonical import label
from contrasweep.errors import error_of
from contrasweep.live.state import replicate_of
from contrasweep.markdown_text import fenced, markdown_text
from contrasweep.rows import Row, metrics_of, step_of
from contrasweep.storage.record import CodeRef, DatasetLike, Record, Status, TrialLike
from contrasweep.study import dotted
from contrasweep.tracking.tracker import TrackedStudy

MISSING = "-"
"""The value of a param that a trial's config does not have: MLflow's compare view needs the same params in all runs."""

RUN_STATUS = {
    **dict.fromkeys(Status, "KILLED"),
    **{status: "FAILED" for status in Status if status.failed},
    **{status: "FINISHED" for status in Status if status.trained},
}
"""Status of a trial -> MLflow's status of its run; the run's tag `status` has our own word.

MLflow draws a red cross for all but `FINISHED`, and a trial that a pruner stopped is no fault.
"""

CODE_TAG = "code"
"""Tag of a trial's run and of the study's: the digest of the code."""
DIRTY_TAG = "code.dirty"
"""Tag: whether the code differs from its commit."""
TABLE_TAG = "table"
"""Tag of a trial's run: `yes` where the study's table has its value, or will have it once the trial ends; else `no`."""
COMMIT_TAG = "mlflow.source.git.commit"
"""Tag: the commit of the code."""

RUNS_SHOWN = 100  # that MLflow's page of an experiment loads at a time
DATASET_DIGEST_DIGITS = 12
"""Digits of a dataset's digest that MLflow's compare view prints; the whole digest is in the dataset's profile."""
MAX_NAME_CHARACTERS = 250  # of runs, metrics and params
MAX_TAG_CHARACTERS = 5000  # characters; MLflow cuts at 8000 bytes

_NAME_COLUMN = "attributes.`Run Name`"
_RUNS_OF_BARS = 100  # a page of MLflow's list has as many
_SECTION = "study"


class Point(NamedTuple):
    """One value of a metric, with the fields of MLflow's entity: its key, the value, unix milliseconds, the step."""

    key: str
    value: float
    at: int
    step: int


@dataclass(frozen=True)
class RunDescription:
    """What MLflow shows of one trial: the run's name, its params (with the same keys for all trials), its tags.

    `dataset` has the fields of MLflow's entity of a dataset.
    """

    trial_id: str
    name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    dataset: Mapping[str, str]


def describe_run(study: TrackedStudy, trial: TrialLike) -> RunDescription:
    """Return name, params, tags and dataset of a trial's run in MLflow; a `Trial` and its `Record` give the same."""
    config = dotted.flatten(trial.config)
    identity = {"arm": trial.arm, "data": trial.data.name, "fold": trial.fold, "seed": trial.seed}
    keys = mlflow_keys([*study.keys, *identity, *config])
    # Every run has a param for each key of the study, also where its trial has no such setting.
    params = {keys[key]: MISSING for key in study.keys}
    params |= {keys[key]: _text(value) for key, value in (identity | config).items()}
    tags = {
        "trial_id": trial.id,
        "arm": trial.arm,
        "fold": _text(trial.fold),
        "seed": str(trial.seed),
        "data": trial.data.name,
        "study": study.name,
        "trainable": trial.trainable,
    }
    if trial.start is not None:
        tags["start"] = f"{trial.start.study}/{trial.start.trial}"
    name = replicate_of(trial, study.axes)[:MAX_NAME_CHARACTERS]
    return RunDescription(trial.id, name, params, tags, _dataset(study, trial.data))


def final_tags(record: Record) -> dict[str, str]:
    """Return the tags of a run that are known once its trial has ended; those that would be empty are left out.

    The description of a failed trial's run is the end of its traceback.
    """
    tags = {
        "host": record.host,
        "cause": record.cause or "",
        "attempts": str(record.attempts) if record.attempts > 1 else "",
    }
    # What the search and the placement noted of the trial.
    tags |= {key: str(value) for key, value in record.notes.to_dict().items()}
    if record.code.digest:
        tags |= {CODE_TAG: record.code.digest, COMMIT_TAG: record.code.commit}
        tags[DIRTY_TAG] = str(record.code.dirty).lower() if record.code.commit else ""
    if record.versions:
        tags["versions"] = ", ".join(
            f"{name} {version}" for name, version in sorted(record.versions.items())
        )
    if record.error:
        tags |= {
            "error": error_of(record.error.strip())[:500],
            "mlflow.note.content": fenced(record.error[-MAX_TAG_CHARACTERS:]),
        }
    # The fence around a traceback adds some characters.
    return {key: value[: MAX_TAG_CHARACTERS + 100] for key, value in tags.items() if value}


def study_code_tags(codes: Iterable[CodeRef]) -> dict[str, str]:
    """Return the tags of the study's run on its code; {} where no code is known.

    `codes` has the code of each trial, ordered from the trial that ended last. The tags are the newest code's commit,
    the digests of all codes, and whether any code differs from its commit.
    """
    known = [code for code in codes if code.digest]
    if not known:
        return {}
    dirty_flags = [code.dirty for code in known if code.commit]
    tags = {
        CODE_TAG: ", ".join(dict.fromkeys(code.digest for code in known)),
        COMMIT_TAG: known[0].commit,
        DIRTY_TAG: str(any(dirty_flags)).lower() if dirty_flags else "",
    }
    return {key: value[:MAX_TAG_CHARACTERS] for key, value in tags.items() if value}


def system_points(record: Record) -> list[Point]:
    """Return time, memory and GPU use of a trial, for MLflow's tab of system metrics.

    What was not measured is left out.
    """
    values = {
        "training_seconds": record.seconds,
        "gpu_memory_gib": record.gpu_memory_gib,
        "gpu_utilisation": record.gpu_utilisation,
        "host_memory_gib": record.host_memory_gib,
    }
    at = milliseconds(record.ended)
    return [
        Point(f"system/{name}", float(value), at, record.step)
        for name, value in values.items()
        if value is not None
    ]


def row_points(rows: Iterable[Row], keys: Mapping[str, str]) -> list[Point]:
    """Return a `Point` for each metric in each of `rows`, which are reports with step, time and metrics.

    `keys` is name of the metric -> its key in MLflow. Values that are text are left out.
    """
    return [
        Point(keys[name], float(value), milliseconds(row["time"]), step_of(row))
        for row in rows
        for name, value in metrics_of(row).items()
        if isinstance(value, int | float)
    ]


def study_note(study: TrackedStudy, pages: tuple[str, str], table: str = "") -> str:
    """Return the text on a study's page in MLflow, as Markdown: description, result table, facts, how to read the page.

    `pages` are two addresses: the view with the trials of the table, and the view with all trials. `table` is the
    result table as Markdown; "": there is none yet.
    """
    description = "\n".join(map(markdown_text, study.description.splitlines()))
    goal = f"Best by {markdown_text(study.metric)} ({study.mode})." if study.metric else ""
    rows = {
        "trials": study.trials,
        **study.extra,
        "plan": study.plan_digest[:16],
        "storage": study.storage,
    }
    table_rows = "\n".join(
        f"| {markdown_text(key)} | {markdown_text(_text(value))} |"
        for key, value in rows.items()
        if value not in (None, "")
    )
    legend = (
        "One child run a trial; replicates (fold, seed) are paired across arms. Filter for example by "
        "`tags.status = 'failed'` or `params.batch_size = '8'`. MLflow is a view of the storage, brought up to date by "
        "`contrasweep sync`."
    )
    counted = "confirmations that did not fail" if study.searches else "trials that did not fail"
    legend += f" [One view]({pages[0]}) has the {counted}, which the table is of; [another]({pages[1]}) has all trials."
    if study.trials is not None and study.trials > RUNS_SHOWN:
        legend += (
            f" MLflow's page has the best {RUNS_SHOWN} runs, and as many more with each **Load more** below the list: "
            "until then, means of its groups are over the best runs alone."
        )
    facts = f"| study | {markdown_text(study.name)} |\n|---|---|\n{table_rows}"
    return "\n\n".join(filter(None, (description, table, goal, facts, legend)))


def shared_view(study: TrackedStudy, *, all_trials: bool = False) -> str:
    """Return the JSON of a view of MLflow's page of a study, which MLflow keeps as a tag of the experiment.

    The first view shows the trials whose values the study's table has, and those that will have one once they end. So
    its means are those of the table. The other view has `all_trials`; those of a search are grouped by phase too. A
    view lists the best trials first, with the columns that tell them apart. Its charts begin with the study's metric,
    the mean of each cell's trials over their steps.
    """
    column_keys = mlflow_keys([*study.keys, *study.axes])
    axes = [column_keys[axis] for axis in study.axes]
    params = dict.fromkeys(["arm", *axes, "fold", "seed"])
    columns = [*(f"params.`{name}`" for name in params), "tags.`status`"]
    # MLflow cuts names, in which fold and seed come last. So the column is as wide as a whole name, within what a page
    # can show. Arm, fold and seed take about 28 letters, the value of an axis 8, a letter 6.4 pixels.
    letters = 28 + sum(len(axis) + 8 for axis in study.axes)
    width = min(560, max(330, 60 + round(6.4 * letters)))
    view: dict[str, object] = {"columnOrder": [_NAME_COLUMN], "columnWidths": {_NAME_COLUMN: width}}
    if study.metric:
        key = metric_key(study.metric)
        best = f"metrics.`{key}`"
        columns.insert(0, best)
        # Sorted by a metric, MLflow lists trials instead of folding them under the study.
        view |= {"orderByKey": best, "orderByAsc": study.mode == "min"} | _charts(key)
        # The axes of a search are its settings, which differ between all trials: its cells are arms.
        cell = ["arm"] if study.searches else ["arm", *axes]
        keys = [{"mode": "param", "groupByData": name} for name in cell]
        # Without the phase, means would be over search and confirmation together.
        if study.searches and all_trials:
            keys.insert(0, {"mode": "tag", "groupByData": "phase"})
        view["groupBy"] = {"aggregateFunction": "average", "groupByKeys": keys}
    if not all_trials:
        view["searchFilter"] = f"tags.`{TABLE_TAG}` = 'yes'"
    return json.dumps(view | {"selectedColumns": columns})


def _charts(metric: str) -> dict[str, object]:
    """Return the two charts of `metric` on the study's page, as MLflow keeps them: over the steps, and final values.

    They stand above the charts that MLflow makes itself.
    """
    # The fields are those of MLflow's own page, as it keeps a view.
    common = {
        "metricKey": metric,
        "metricSectionId": _SECTION,
        "deleted": False,
        "isGenerated": False,
    }
    line = {
        **common,
        "type": "LINE",
        "uuid": "study-line",
        "selectedMetricKeys": [metric],
        "xAxisKey": "step",
        "yAxisKey": "metric",
        "scaleType": "linear",
        "xAxisScaleType": "linear",
        "lineSmoothness": 0,
        "range": {},
        "runsCountToCompare": _RUNS_OF_BARS,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
        "yAxisExpressions": [],
    }
    bar = {**common, "type": "BAR", "uuid": "study-bar", "runsCountToCompare": _RUNS_OF_BARS}
    return {
        "compareRunCharts": [line, bar],
        "compareRunSections": [
            {"uuid": _SECTION, "name": metric, "display": True, "isReordered": True}
        ],
        "isAccordionReordered": True,
    }


def metric_key(name: str) -> str:
    """Return `name` as MLflow takes it for a metric or param: at most 250 characters, other signs replaced by `_`.

    Slashes and dots that would change it as a path are replaced too: `/a` is `a`, `a//b` is `a/b`, `../a` is `_./a`.
    """
    parts = re.sub(r"[^\w\-. /:]", "_", name)[:MAX_NAME_CHARACTERS].split("/")
    return "/".join(re.sub(r"^\.", "_", part) for part in parts if part) or "_"


def mlflow_keys(names: Iterable[str]) -> dict[str, str]:
    """Return name -> key in MLflow, where no two names have the same key.

    A key is that of `metric_key`. If an earlier name has it already, a number from 2 on follows: `top1@5` and then
    `top1%5` give `top1_5` and `top1_5_2`.
    """
    keys: dict[str, str] = {}
    keys_taken: set[str] = set()
    for name in dict.fromkeys(names):
        key = metric_key(name)
        number = 1
        while key in keys_taken:
            number += 1
            # Cut so that the number fits into MLflow's 250 characters.
            key = f"{metric_key(name)[:240]}_{number}"
        keys[name] = key
        keys_taken.add(key)
    return keys


def milliseconds(time: float) -> int:
    """Return unix seconds as MLflow's timestamps: whole milliseconds."""
    return int(time * 1000)


def _dataset(study: TrackedStudy, data: DatasetLike) -> dict[str, str]:
    """Return the fields with which MLflow describes a dataset: name, digest, address and numbers of rows.

    Address and numbers are empty where `study` does not have them.
    """
    facts = study.datasets.get(data.digest, {"uri": "", "rows": {}})
    profile = {"digest": data.digest, "rows": dict(facts["rows"]), "synthetic": data.synthetic}
    return {
        "name": data.name,
        "digest": data.digest[:DATASET_DIGEST_DIGITS],
        "source_type": "s3" if facts["uri"].startswith("s3://") else "local",
        "source": json.dumps({"uri": facts["uri"]}),
        "profile": json.dumps(profile),
    }


def _text(value: Any) -> str:
    """Return a setting's value as the text of a param in MLflow, such as `0.1`.

    None gives `MISSING`; lists and mappings are written as JSON.
    """
    if value is None:
        return MISSING
    if isinstance(value, float):
        return label(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)
