"""The runs of an experiment in a local sqlite store, by a few of their tags.

MLflow's own search makes objects of every metric, param and tag of each run: 10,000 finished ones take it half a
minute, of which a driver wants to know only that they are there.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KnownRun:
    """A run that is not deleted, with those of its tags that were asked for. `ended` in unix milliseconds, 0: it has
    not."""

    run_id: str
    ended: int
    tags: dict[str, str]


def known_runs(client: Any, experiment_id: str, tags: Collection[str]) -> list[KnownRun] | None:
    """All of the experiment, the newest first; None where this MLflow's tables are others."""
    try:
        from mlflow.store.tracking.dbmodels.models import SqlRun, SqlTag
        from sqlalchemy import select

        run, tag = SqlRun.__table__.c, SqlTag.__table__.c
        of_experiment = (run.experiment_id == int(experiment_id), run.lifecycle_stage == "active")
        every = select(run.run_uuid, run.end_time).where(*of_experiment).order_by(run.start_time.desc(), run.run_uuid)
        tagged = select(tag.run_uuid, tag.key, tag.value).join(SqlRun.__table__, run.run_uuid == tag.run_uuid)
        tagged = tagged.where(*of_experiment, tag.key.in_(tags))
        sessions = client._tracking_client.store.ManagedSessionMaker
    except (ImportError, AttributeError):
        return None
    with sessions(read_only=True) as session:
        found = {run_id: KnownRun(run_id, ended or 0, {}) for run_id, ended in session.execute(every)}
        for run_id, key, value in session.execute(tagged):
            if run_id in found:  # else it was made just now
                found[run_id].tags[key] = value
    return list(found.values())
