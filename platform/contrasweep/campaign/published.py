"""A campaign in MLflow: an experiment with a run of the campaign and, nested below it, one for each decision.

They stand beside the experiments of the campaign's studies, and like those they are a view: all of it is made from the
ledger, and what MLflow has is added to.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from contrasweep.campaign.history import History, Line, history_of
from contrasweep.markdown_text import markdown_text
from contrasweep.results.ledger import Ledger
from contrasweep.study.dotted import flatten
from contrasweep.tracking.kinds import Trackers
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.client import new_client, translate_errors
from contrasweep.tracking.mlflow.description import metric_key, milliseconds
from contrasweep.tracking.mlflow.server import DIGEST_TAG, PARENT_TAG, ROLE_TAG, RUNS_PER_PAGE, source_tags, study_page
from contrasweep.tracking.sync import SyncSummary

DECISION_TAG = "decision"
"""Tag of a decision's run: the candidate's number in the ledger."""
MEASURES = ("estimate", "low", "high", "p", "level", "screened", "seeds", "trials", "gpu_hours", "cost", "kept")
MAX_PARAM, MAX_NOTE = 500, 7900


def publish(campaign: str, storage: str, trackers: Trackers) -> SyncSummary | None:
    """Bring MLflow up to the ledger of a campaign; None where the trackers have no MLflow.

    Raises:
        TrackingError: MLflow cannot be reached, or does not take it.
    """
    if trackers.store.is_none:
        return None
    began, ledger, history = time.time(), Ledger(storage, campaign).read(), history_of(campaign, storage)
    board = _Board(new_client(trackers.store), trackers.store, history, ledger)
    translate_errors(board.update)
    url = f"{trackers.store.ui_base}/{study_page(board.experiment)}"
    there = sum(row.decision is not None for row in history.rows) - board.added - board.replaced
    name, seconds = f"MLflow at {trackers.store}", time.time() - began
    return SyncSummary(campaign, name, board.added, board.replaced, 0, there, seconds, url)


@dataclass
class _Board:
    client: Any
    uri: TrackingAddress
    history: History
    ledger: Ledger
    experiment: str = ""
    added: int = 0
    replaced: int = 0

    def update(self) -> None:
        self.experiment = self._experiment()
        runs: dict[str, Any] = {}
        for run in self._runs():
            key = run.data.tags.get(DECISION_TAG) or run.data.tags.get(ROLE_TAG, "")
            if key in runs:  # two that published at once
                self.client.delete_run(run.info.run_id)
            else:
                runs[key] = run
        parent = runs["campaign"].info.run_id if "campaign" in runs else self._create({ROLE_TAG: "campaign"})
        for row in self.history.rows:
            if row.decision is not None:
                self._show(row, parent, runs.get(str(row.number)))
        self.client.set_tag(parent, "mlflow.note.content", self._note()[:MAX_NOTE])
        self.client.log_text(parent, self.history.to_html().decode(), "ledger.html")
        self.client.set_terminated(parent)

    def _experiment(self) -> str:
        name = self.history.campaign
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            root, tags = (
                self.uri.artifact_root(self.ledger.storage, name),
                {"mlflow.note.content": self.history.summary},
            )
            return str(self.client.create_experiment(name, artifact_location=root, tags=tags))
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _runs(self) -> Iterator[Any]:
        """All runs, the oldest first."""
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment], max_results=RUNS_PER_PAGE, order_by=["attributes.start_time ASC"], page_token=token
            )
            yield from page
            if not (token := page.token):
                return

    def _create(self, tags: Mapping[str, str], name: str = "", started: float | None = None) -> str:
        run = self.client.create_run(
            self.experiment,
            start_time=milliseconds(time.time() if started is None else started),
            tags={"campaign": self.history.campaign, **tags, **source_tags()},
            run_name=name or self.history.campaign,
        )
        return str(run.info.run_id)

    def _show(self, row: Line, parent: str, run: Any) -> None:
        """Show a decision; `run` shows it already, or what it was before more seeds."""
        from mlflow.entities import Metric, Param, RunTag

        decision, asked, decided = row.decision, self.ledger.asked(row.number), self.ledger.decision(row.number)
        assert decision is not None and decided is not None
        digest = hashlib.sha256(repr((decision, decided.at)).encode()).hexdigest()[:16]
        if run is not None and run.data.tags.get(DIGEST_TAG) == digest and run.data.tags.get(PARENT_TAG) == parent:
            return
        if run is not None:
            self.client.delete_run(run.info.run_id)
        self.added, self.replaced = self.added + (run is None), self.replaced + (run is not None)
        tags = {PARENT_TAG: parent, DECISION_TAG: str(row.number), "verdict": decision.verdict}
        run_id = self._create(tags, row.candidate, asked.at)
        known = [(name, getattr(decision, name)) for name in MEASURES]
        metrics = [Metric(name, float(v), milliseconds(decided.at), 0) for name, v in known if v is not None]
        settings = flatten({"incumbent": decision.incumbent, **asked.arm})
        params = [Param(metric_key(name), str(value)[:MAX_PARAM]) for name, value in settings.items()]
        told = {
            "kept": str(decision.kept).lower(),
            "by": row.by,
            "why": row.why,
            "reason": decision.reason,
            "studies": ", ".join(self.ledger.studies_of(row.number)),
            "mlflow.note.content": markdown_text(decision.sentence())[:MAX_NOTE],
            DIGEST_TAG: digest,  # with the last of what it shows: a run without it is made again
        }
        marks = [RunTag(name, text) for name, text in told.items() if text]
        self.client.log_batch(run_id, metrics=metrics, params=params[:100], tags=marks)
        self.client.set_terminated(run_id, "FINISHED", milliseconds(decided.at))

    def _note(self) -> str:
        lines = [
            row.decision.sentence() if row.decision else f"{row.candidate} is not decided" for row in self.history.rows
        ]
        return "\n".join(
            [markdown_text(self.history.summary), "", *(f"{i}. {markdown_text(x)}" for i, x in enumerate(lines, 1))]
        )
