"""The runs of an experiment that others logged, as rows."""

from collections.abc import Callable
from math import isnan
from typing import TYPE_CHECKING

from contrasweep.errors import SpecError
from contrasweep.rows import FrameRow
from contrasweep.tracking.mlflow.address import checked_uri
from contrasweep.tracking.mlflow.client import new_client
from contrasweep.tracking.mlflow.server import VIEW, VIEW_TAG

if TYPE_CHECKING:
    import pandas as pd

MOST_RUNS = 50_000
"""Runs of an experiment from which on no further page is read."""


def runs_of(
    address: str, experiment: str, of_curve: "Callable[[pd.DataFrame], pd.DataFrame] | None" = None
) -> list[FrameRow]:
    """Return a row for each finished run: `run` (its name), its parameters, and the last value of each metric.

    `address` is that of the store, `experiment` the experiment's name there. With `of_curve` the metrics' values come
    from it instead: it is given the history of a run as a frame, and returns a frame of one row. The history has a row
    for each step, the column `step` and one for each metric. It has the text `NaN` for a value that is no number. No
    further page of runs is read once there are `MOST_RUNS`.

    Raises:
        SpecError: There is no such experiment, or no such file of sqlite; or the experiment is one of our studies.
        TrackingError: The store cannot be read.
    """
    uri = checked_uri(address, connect=False)
    if uri.is_sqlite and not uri.sqlite_path.is_file():
        raise SpecError("there is no such file", place="SOURCE", value=address)
    client = new_client(uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        raise SpecError("MLflow has no such experiment", place="SOURCE", value=experiment)
    # Only an experiment of ours has this view. It has it while the study still runs, too, before any run is finished.
    if VIEW_TAG + VIEW in found.tags:
        raise SpecError(
            "the experiment is a study of contrasweep, whose storage knows its folds, search and failures",
            place="SOURCE",
            value=experiment,
            hint="contrasweep:STORAGE:STUDY",
        )
    runs: list[FrameRow] = []
    token = None
    while len(runs) < MOST_RUNS:
        page = client.search_runs(
            [found.experiment_id], "attributes.status = 'FINISHED'", page_token=token
        )
        for run in page:
            values = run.data.metrics
            if of_curve:
                import pandas as pd

                # Metric -> step -> value; a later point of the same step replaces the former.
                history = {}
                for name in values:
                    points = client.get_metric_history(run.info.run_id, name)
                    history[name] = {
                        point.step: "NaN" if isnan(point.value) else point.value for point in points
                    }
                curve = pd.DataFrame(history).sort_index()
                # `of_curve` needs the step as a column, and gives a frame of one row.
                values = of_curve(curve.assign(step=curve.index)).iloc[0].to_dict()
            runs.append({"run": run.info.run_name, **run.data.params, **values})
        token = page.token
        if not token:
            break
    return runs
