"""A campaign in MLflow: an experiment with a run of the campaign and, nested below it, one for each decision.

It is a view, as that of a study: all of it is made from the campaign's ledger, and what MLflow has is added to.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.client import new_client, translate_errors
from contrasweep.tracking.mlflow.description import milliseconds, mlflow_keys
from contrasweep.tracking.mlflow.server import (
    DIGEST_TAG,
    ORIGIN_TAG,
    PARENT_TAG,
    ROLE_TAG,
    RUNS_PER_PAGE,
    source_tags,
    study_page,
)

MlflowRun = Any
"""A run as MLflow returns it."""
DECISION_TAG = "decision"
"""Tag of a decision's run: the candidate's number in the ledger."""
MAX_PARAM, MAX_PARAMS, MAX_NOTE = 500, 100, 7900


@dataclass(frozen=True)
class ShownDecision:
    """A decision as its run shows it; times are in unix seconds, `digest` is another one for another content."""

    number: int
    name: str
    digest: str
    asked: float
    decided: float
    metrics: Mapping[str, float]
    params: Mapping[str, object]
    tags: Mapping[str, str]


@dataclass
class CampaignBoard:
    """The experiment of a campaign. `update` raises `TrackingError`."""

    uri: TrackingAddress
    storage: str
    campaign: str
    origin: str  # which of several campaigns of this name
    added: int = 0
    replaced: int = 0
    experiment: str = ""

    def update(self, note: str, page: str, decisions: Sequence[ShownDecision]) -> None:
        """Show these decisions, the campaign's description `note` (Markdown), and its `page` (HTML)."""
        self.client: Any = new_client(self.uri)
        translate_errors(lambda: self._update(note, page, decisions))

    @property
    def url(self) -> str:
        """The page of the experiment."""
        return f"{self.uri.ui_base}/{study_page(self.experiment)}"

    def _update(self, note: str, page: str, decisions: Sequence[ShownDecision]) -> None:
        self.experiment = self._experiment(note)
        runs: dict[str, MlflowRun] = {}
        for run in self._runs():
            key = run.data.tags.get(DECISION_TAG) or run.data.tags.get(ROLE_TAG, "")
            if key in runs:  # two that published at once
                self.client.delete_run(run.info.run_id)
            else:
                runs[key] = run
        known = runs.get("campaign")
        parent = known.info.run_id if known else self._create(self.campaign, time.time(), {ROLE_TAG: "campaign"})
        for decision in decisions:
            self._show(decision, parent, runs.get(str(decision.number)))
        self.client.set_tag(parent, "mlflow.note.content", note[:MAX_NOTE])
        self.client.log_text(parent, page, "ledger.html")
        self.client.set_terminated(parent)

    def _experiment(self, note: str) -> str:
        experiment = self.client.get_experiment_by_name(self.campaign)
        if experiment is None:
            root, tags = self.uri.artifact_root(self.storage, self.campaign), {"mlflow.note.content": note[:MAX_NOTE]}
            return str(self.client.create_experiment(self.campaign, artifact_location=root, tags=tags))
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _runs(self) -> Iterator[MlflowRun]:
        """All runs of this campaign, the oldest first."""
        token, order = None, ["attributes.start_time ASC"]
        while True:
            mine = f"tags.`{ORIGIN_TAG}` = '{self.origin}'"
            page = self.client.search_runs([self.experiment], mine, 1, RUNS_PER_PAGE, order, token)
            yield from page
            if not (token := page.token):
                return

    def _create(self, name: str, started: float, tags: Mapping[str, str]) -> str:
        own = {"campaign": self.campaign, ORIGIN_TAG: self.origin, **tags, **source_tags()}
        run = self.client.create_run(self.experiment, milliseconds(started), own, name)
        return str(run.info.run_id)

    def _show(self, decision: ShownDecision, parent: str, run: MlflowRun) -> None:
        """Show a decision; `run` shows it already, or what it was before more seeds."""
        from mlflow.entities import Metric, Param, RunTag

        if run is not None:
            shown = run.data.tags
            if shown.get(DIGEST_TAG) == decision.digest and shown.get(PARENT_TAG) == parent:
                return
            self.client.delete_run(run.info.run_id)
        self.added, self.replaced = self.added + (run is None), self.replaced + (run is not None)
        tags = {PARENT_TAG: parent, DECISION_TAG: str(decision.number)}
        run_id, at = self._create(decision.name, decision.asked, tags), milliseconds(decision.decided)
        keys = mlflow_keys(decision.params)
        told = {**decision.tags, DIGEST_TAG: decision.digest}  # with all else: a run without it is made again
        self.client.log_batch(
            run_id,
            metrics=[Metric(name, value, at, 0) for name, value in decision.metrics.items()],
            params=[Param(keys[k], str(v)[:MAX_PARAM]) for k, v in decision.params.items()][:MAX_PARAMS],
            tags=[RunTag(name, text[:MAX_NOTE]) for name, text in told.items() if text],
        )
        self.client.set_terminated(run_id, "FINISHED", at)
