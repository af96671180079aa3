"""What a run has left, as text: every file of a storage, and every run of MLflow."""

import io
import json
import re

import pyarrow.parquet as pq
import ray

from contrasweep.storage.store import open_store

MEASURED = re.compile(
    r"(code\.)?dirty|commit|contrasweep\.record|distributions|eta_s|gpu_busy|host|host_memory_gib|mlflow\.user|pid|process"
    r"|mlflow\.source\.git\.commit|renewals|seconds|since|system/(?!param).*|token|versions"
)
"""Names of members that differ from run to run, or by machine."""
SETTINGS = (None, "shared", "cpu")
"""Values of members with these names that are the same everywhere."""


def storage(folder):
    """Every file but the datasets, sorted by key: a line for each member of a JSON document and each row of a table."""
    store = open_store(str(folder / "runs"))
    lines = []
    for key in sorted(store.list()):
        if not key.startswith("datasets/"):
            lines += ["", key, *(f"  {line}" for line in _lines(key, store.read(key)))]
    return _numbered(lines[1:])


def mlflow(folder):
    """Every experiment and its runs, deleted ones too, sorted by name."""
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    lines = []
    for experiment in client.search_experiments():
        lines += [f"experiment {experiment.name}", *_members(experiment.tags)]
        runs = client.search_runs([experiment.experiment_id], run_view_type=ViewType.ALL)
        for run in sorted(runs, key=lambda run: (run.info.run_name, run.info.lifecycle_stage)):
            run_id = run.info.run_id
            histories = {key: client.get_metric_history(run_id, key) for key in run.data.metrics}
            shown = {
                "params": run.data.params,
                "metrics": {key: [(m.step, m.value) for m in h] for key, h in histories.items()},
                "data": [each.dataset.digest for each in run.inputs.dataset_inputs],
                "artifacts": [file.path for file in client.list_artifacts(run_id)],
            }
            lines += ["", f"run {run.info.run_name}: {run.info.status}, {run.info.lifecycle_stage}"]
            lines += _members({**run.data.tags, **shown})
    return _numbered(lines)


def places(folder):
    """The states of the placement groups of Ray that are not removed."""
    states = [group["state"] for group in ray.util.placement_group_table().values()]
    return f"held: {[state for state in states if state != 'REMOVED']}"


def _lines(key, data):
    if key.endswith(".json"):
        document = json.loads(data)
        if "format_version" in document:
            document.pop("digest")  # of the document itself
        return _members(document)
    if key.endswith("system.parquet"):  # as many rows as it took seconds
        return pq.read_schema(io.BytesIO(data)).names
    if key.endswith(".parquet"):
        return [json.dumps(row) for row in pq.read_table(io.BytesIO(data)).to_pylist()]
    return ["an archive"] if key.endswith(".zip") else data.decode().splitlines()


def _members(members):
    """A line for each member, or several for a text of several."""
    return [
        line
        for name, value in sorted(_masked(members).items())
        for text in [value if isinstance(value, str) else json.dumps(value, sort_keys=True)]
        for line in f"{name}: {text}".splitlines()
    ]


def _masked(value):
    if isinstance(value, dict):
        return {
            name: "MEASURED" if MEASURED.fullmatch(name) and each not in SETTINGS else _masked(each)
            for name, each in value.items()
        }
    return [_masked(each) for each in value] if isinstance(value, list) else value


def _numbered(lines):
    """Digests and ids made by chance, each as a number by where it stands first."""
    numbers = {}
    number = lambda match: f"ID-{numbers.setdefault(match[0], len(numbers) + 1)}"  # noqa: E731
    return re.sub(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b", number, "\n".join(lines))
