"""The runs of an experiment that others logged, as rows."""

from contrasweep.errors import SpecError
from contrasweep.rows import FrameRow
from contrasweep.tracking.mlflow.address import checked_uri
from contrasweep.tracking.mlflow.client import new_client, translate_errors

MOST_RUNS = 50_000


def runs_of(address: str, experiment: str) -> list[FrameRow]:
    """Return a row for each finished run: `run` (its name), its parameters, and the last value of each metric.

    Raises:
        SpecError: Without such an experiment, or such a file.
        TrackingError: The store cannot be read.
    """
    uri = checked_uri(address, connect=False)
    if uri.is_sqlite and not uri.sqlite_path.is_file():
        raise SpecError("there is no such file", place="SOURCE", value=address)
    client = new_client(uri)
    found = translate_errors(lambda: client.get_experiment_by_name(experiment))
    if found is None:
        raise SpecError("MLflow has no such experiment", place="SOURCE", value=experiment)
    runs: list[FrameRow] = []
    token = None
    while len(runs) < MOST_RUNS:
        page = translate_errors(
            lambda t=token: client.search_runs([found.experiment_id], "attributes.status = 'FINISHED'", page_token=t)
        )
        runs += [{"run": run.info.run_name, **run.data.params, **run.data.metrics} for run in page]
        if not (token := page.token):
            break
    return runs
