"""How MLflow's page of a study opens by our link: a shared view, which MLflow keeps as a tag of the experiment."""

import json

from contrasweep.tracking.mlflow.description import metric_key
from contrasweep.tracking.tracked_study import TrackedStudy

_NAME_COLUMN = "attributes.`Run Name`"
_RUNS_OF_BARS = 100  # a page of MLflow's list has as many
_SECTION = "study"


def shared_view(study: TrackedStudy) -> str:
    """The JSON of the view. Its list has the best trials first, with the columns that tell them apart (sorted by a
    metric it lists trials instead of folding them under the study); its charts begin with the study's metric, the mean
    of each arm's trials over their steps."""
    params = dict.fromkeys(["arm", *map(metric_key, study.axes), "fold", "seed"])
    columns = [*(f"params.`{name}`" for name in params), "tags.`status`"]
    view: dict[str, object] = {"columnOrder": [_NAME_COLUMN], "columnWidths": {_NAME_COLUMN: _name_width(study)}}
    if study.metric:
        key = metric_key(study.metric)
        best = f"metrics.`{key}`"
        columns.insert(0, best)
        view |= {"orderByKey": best, "orderByAsc": study.mode == "min"} | _charts(key)
    return json.dumps(view | {"selectedColumns": columns})


def _charts(metric: str) -> dict[str, object]:
    """The metric over the steps and at the end, in one section above those that MLflow adds, trials grouped by arm."""
    common = {"metricKey": metric, "metricSectionId": _SECTION, "deleted": False, "isGenerated": False}
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
        "compareRunSections": [{"uuid": _SECTION, "name": metric, "display": True, "isReordered": True}],
        "isAccordionReordered": True,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": "arm"}]},
    }


def _name_width(study: TrackedStudy) -> int:
    """Pixels that show a run's whole name, about: MLflow cuts it, and fold and seed stand last."""
    letters = 28 + sum(len(axis) + 8 for axis in study.axes)
    return min(560, max(330, 60 + round(6.4 * letters)))
