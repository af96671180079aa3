"""Runs of trials that have ended before their tracker came to them, put into a local sqlite store as they are.

MLflow's own calls (create the run, its inputs, its values twice, its end) take some 20 ms of the processor for such a
trial, because each looks up what the one before has written. Here its rows are made at once, by MLflow's own tables and
checks; `tests/contrasweep/tracking/test_whole_runs.py` compares the two, value by value.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from contrasweep.tracking.mlflow.description import DescribedDataset, Point
from contrasweep.tracking.mlflow.entities import dataset_input, metric_entity

TableRow = dict[str, Any]
"""A row of one of MLflow's tables: its columns."""

RUN_NAME_TAG, USER_TAG = "mlflow.runName", "mlflow.user"


@dataclass(frozen=True)
class WholeRun:
    """A run that has ended. `started` and `ended` in unix milliseconds; `points` in the order in which they count as
    logged, each metric and step once."""

    name: str
    status: str
    started: int
    ended: int
    tags: Mapping[str, str]
    params: Mapping[str, str]
    points: Sequence[Point]
    dataset: DescribedDataset


class RunInserter:
    """Inserts runs into one experiment of the store of an `MlflowClient`, within the thread's transaction."""

    def __init__(self, client: Any, experiment_id: str) -> None:
        """Raises ImportError or AttributeError where this MLflow is built otherwise."""
        from mlflow.store.tracking.dbmodels import models

        self._store, self._experiment = client._tracking_client.store, int(experiment_id)
        self._location = client.get_experiment(experiment_id).artifact_location
        names = {
            "run": "SqlRun",
            "tag": "SqlTag",
            "param": "SqlParam",
            "metric": "SqlMetric",
            "latest": "SqlLatestMetric",
            "dataset": "SqlDataset",
            "input": "SqlInput",
            "input_tag": "SqlInputTag",
        }
        self._tables = {name: getattr(models, model).__table__ for name, model in names.items()}
        self._datasets: dict[tuple[str, str], str] = {}  # (name, digest) -> its id, once that is committed or joined

    @classmethod
    def of(cls, client: Any, experiment_id: str) -> Self | None:
        """None where this MLflow's tables are not those that are written here: then its own calls are made."""
        try:
            inserter = cls(client, experiment_id)
            rows = inserter._rows("", _EXAMPLE, "")
        except (ImportError, AttributeError, TypeError):
            return None
        fits = all(_fits(inserter._tables[name], row) for name, several in rows.items() for row in several)
        return inserter if fits else None

    def insert(self, run: WholeRun) -> str:
        """Insert a run; its id."""
        from sqlalchemy import insert

        run_id = uuid.uuid4().hex
        with self._store.ManagedSessionMaker(read_only=False) as session:
            key, dataset_id = self._dataset(session, run.dataset)
            for name, rows in self._rows(run_id, run, dataset_id).items():
                if rows:
                    session.execute(insert(self._tables[name]), rows)
        self._datasets[key] = dataset_id
        return run_id

    def _dataset(self, session: Any, described: DescribedDataset) -> tuple[tuple[str, str], str]:
        """The key and the id of a dataset, which is inserted where the experiment has none of its name and digest."""
        from sqlalchemy import insert, select

        entity, table = dataset_input(described).dataset, self._tables["dataset"]
        key = entity.name, entity.digest
        if (known := self._datasets.get(key)) is not None:
            return key, known
        here = (table.c.experiment_id == self._experiment, table.c.name == key[0], table.c.digest == key[1])
        known = session.execute(select(table.c.dataset_uuid).where(*here)).scalar()
        if known is None:
            known = uuid.uuid4().hex
            row = {"dataset_uuid": known, "experiment_id": self._experiment, "name": key[0], "digest": key[1]}
            row |= {"dataset_source_type": entity.source_type, "dataset_source": entity.source}
            session.execute(insert(table), [row | {"dataset_profile": entity.profile}])
        return key, known

    def _rows(self, run_id: str, run: WholeRun, dataset_id: str) -> dict[str, list[TableRow]]:
        """Rows by table, as MLflow's own calls would leave them; `MlflowException` for what it would refuse."""
        from mlflow.entities import Param, RunTag
        from mlflow.utils.uri import append_to_uri_path
        from mlflow.utils.validation import _validate_batch_log_data, _validate_dataset_inputs

        metrics, params, tags = _validate_batch_log_data(
            [metric_entity(point) for point in run.points],
            [Param(key, value) for key, value in run.params.items()],
            [RunTag(key, value) for key, value in {**run.tags, RUN_NAME_TAG: run.name}.items()],
        )
        _validate_dataset_inputs([given := dataset_input(run.dataset)])
        own = {
            "run_uuid": run_id,
            "name": run.name,
            "source_type": "UNKNOWN",
            "source_name": "",
            "entry_point_name": "",
            "user_id": run.tags.get(USER_TAG, "unknown"),
            "status": run.status,
            "start_time": run.started,
            "end_time": run.ended,
            "source_version": "",
            "lifecycle_stage": "active",
            "artifact_uri": append_to_uri_path(self._location, run_id, "artifacts"),
            "experiment_id": self._experiment,
        }
        values = [
            {"run_uuid": run_id, "key": metric.key, "timestamp": metric.timestamp, "step": metric.step}
            | dict(zip(("is_nan", "value"), self._store.sanitize_metric_value(metric.value), strict=True))
            for metric in metrics
        ]
        latest: dict[str, TableRow] = {}
        for row in values:
            if _age(row) > _age(latest.setdefault(row["key"], row)):
                latest[row["key"]] = row
        edge, context = uuid.uuid4().hex, given.tags
        source = {"source_type": "DATASET", "source_id": dataset_id}
        return {
            "run": [own],
            "tag": [{"run_uuid": run_id, "key": tag.key, "value": tag.value} for tag in tags],
            "param": [{"run_uuid": run_id, "key": param.key, "value": param.value} for param in params],
            "metric": values,
            "latest": list(latest.values()),
            "input": [{"input_uuid": edge, **source, "destination_type": "RUN", "destination_id": run_id}],
            "input_tag": [{"input_uuid": edge, "name": tag.key, "value": tag.value} for tag in context],
        }


def _age(row: TableRow) -> tuple[int, int, float]:
    """By which MLflow tells which value of a metric is the latest."""
    return row["step"], row["timestamp"], row["value"]


def _fits(table: Any, row: Mapping[str, object]) -> bool:
    """Whether a table has the row's columns, and needs no other."""
    needed = {c.name for c in table.columns if not c.nullable and c.default is None and c.server_default is None}
    return needed <= row.keys() <= {column.name for column in table.columns}


_EXAMPLE = WholeRun("", "FINISHED", 0, 0, {"key": ""}, {"key": ""}, [("key", 0.0, 0, 0)], DescribedDataset("", ""))
"""A run that leaves a row in each table."""
