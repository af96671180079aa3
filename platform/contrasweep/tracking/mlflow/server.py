"""One study's runs on an MLflow store. Blocks; raises `TrackingError`."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contrasweep.storage.record import Record, Status
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.client import TrackingError, new_client, translate_errors
from contrasweep.tracking.mlflow.description import (
    CODE_TAG,
    COMMIT_TAG,
    DIGEST_TAG,
    DIRTY_TAG,
    MODEL_TAG,
    ROLE_TAG,
    RUN_STATUS,
    Point,
    RunDescription,
    final_tags,
    metric_key,
    milliseconds,
    record_digest,
    setting_points,
    study_code_tags,
    study_note,
    system_points,
)
from contrasweep.tracking.mlflow.entities import dataset_input, metric_entity, source_tags
from contrasweep.tracking.mlflow.known_runs import known_runs
from contrasweep.tracking.mlflow.view import shared_view
from contrasweep.tracking.mlflow.whole_runs import RunInserter, WholeRun
from contrasweep.tracking.tracked_study import TrackedStudy

METRICS_PER_CALL = 1000  # MLflow's limits on log_batch
PARAMS_PER_CALL = 100
ENTITIES_PER_CALL = 1000  # points, params and tags together
RUNS_PER_PAGE = 1000

PAGE_KIND = "workflowType=machine_learning"  # MLflow's menus for training; its default ones are for language models
VIEW_TAG, VIEW = "mlflow.sharedViewState.", "trials"
TRIAL_TAG = "trial_id"
TAGS_KNOWN = (ROLE_TAG, TRIAL_TAG)
TAGS_KEPT = (DIGEST_TAG, "status", CODE_TAG, DIRTY_TAG, COMMIT_TAG, MODEL_TAG)
"""Tags of a finished run by which it is known, and from which the study's own are made."""


@dataclass
class Run:
    """A trial's run on the server. `steps` has the newest step it holds of each metric; `sent` all steps of
    each, for a run that this process has made (None: ask the server); `ended` in unix milliseconds, 0: it has not."""

    run_id: str
    steps: dict[str, int] = field(default_factory=dict)
    sent: dict[str, set[int]] | None = None
    params: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    ended: int = 0
    due: dict[str, str] = field(default_factory=dict)  # params to go with the next call

    def forget(self) -> None:
        """It shows its record. A driver keeps every run to the end of the study: what only an open one needs goes."""
        self.steps, self.sent, self.params = {}, None, set()
        self.tags = {name: self.tags[name] for name in TAGS_KEPT if name in self.tags}


class Server:
    """The experiment of one study: its parent run and one run a trial, found by the tag `trial_id`."""

    def __init__(self, uri: TrackingAddress, study: TrackedStudy) -> None:
        self.uri, self.study = uri, study
        self.experiment_id = self.parent_id = ""
        self.began = time.time()  # when the study did, if this is the first to tell of it
        self.runs: dict[str, Run] = {}
        self.client: Any = None
        self.inserter: RunInserter | None = None  # of a local sqlite file
        self._inputs = threading.Lock()  # MLflow breaks when two calls bring it the same new dataset

    def connect(self) -> None:
        """Find or make the experiment and its parent run, and learn which runs exist."""
        self.client = self.client or new_client(self.uri)
        self.experiment_id = translate_errors(self._experiment)
        self.runs, parents = {}, []
        for run in self._existing():
            trial_id = run.tags.get(TRIAL_TAG)
            if run.tags.get(ROLE_TAG) == "study":
                parents.append(run.run_id)
            elif trial_id:
                self._keep(trial_id, run)
        self.parent_id = parents[-1] if parents else self._create_parent()
        if self.uri.is_sqlite:
            self.inserter = translate_errors(lambda: RunInserter.of(self.client, self.experiment_id))

    def is_reachable(self) -> bool:
        """Whether the store is there at all, after a call that failed."""
        try:
            translate_errors(lambda: self.client.search_experiments(max_results=1))
        except TrackingError as error:
            return not error.retryable
        return True

    def begin_study(self) -> None:
        """Show the study as running, under the plan that it has now."""
        translate_errors(lambda: self.client.update_run(self.parent_id, status="RUNNING"))
        translate_errors(lambda: self.client.set_tag(self.parent_id, "plan_digest", self.study.plan_digest))
        view = shared_view(self.study)
        translate_errors(lambda: self.client.set_experiment_tag(self.experiment_id, VIEW_TAG + VIEW, view))

    def ensure(self, description: RunDescription, started: float) -> Run:
        """The trial's run, made and described if it is not there yet; `started` in unix seconds."""
        run = self.runs.get(description.trial_id)
        if run is None:
            run = self._create(description, started)
        if not set(description.params) <= run.params:
            self._describe(run, description)
        return run

    def resume(self, run: Run) -> None:
        """Mark a run that was left unfinished as running again."""
        if run.tags.get("status") in (None, "running"):
            return
        translate_errors(lambda: self.client.update_run(run.run_id, status="RUNNING"))
        self.set_tags(run, {"status": "running"})

    def append(self, run: Run, points: Iterable[Point]) -> None:
        """Log those points that are newer than what the run has, in batches: a resumed trial does some steps
        twice, and MLflow keeps what is sent twice."""
        newest, fresh = dict(run.steps), []
        for point in points:
            key, step = point[0], point[3]
            if key not in newest or step > newest[key]:
                newest[key] = step
                fresh.append(point)
        self._log_all(run, fresh)
        if run.due:
            self._log(run, (), {})

    def fill(self, run: Run, points: Iterable[Point]) -> None:
        """Log those points that the run's history does not have, wherever steps are missing."""
        points = list(points)
        have = run.sent
        if have is None:
            have = {key: self._history(run, key) for key in {point[0] for point in points} & run.steps.keys()}
        self._log_all(run, [point for point in points if point[3] not in have.get(point[0], ())])

    def finish(self, run: Run, record: Record, files: Mapping[str, Path], *, complete: bool) -> None:
        """End a run as its record says. Only with `complete` is it marked as showing the whole record."""
        rest = [p for p in [*system_points(record), *setting_points(record)] if p[0] not in run.steps]
        rest += [
            (metric_key(name), float(value), milliseconds(record.ended), record.step)
            for name, value in record.metrics.items()
            if complete and metric_key(name) not in run.steps
        ]
        self._log_files(run.run_id, files)
        if record.status == Status.FAILED and record.error:
            translate_errors(lambda: self.client.log_text(run.run_id, record.error, "traceback.txt"))
        status = RUN_STATUS.get(record.status, "KILLED")
        translate_errors(lambda: self.client.set_terminated(run.run_id, status, milliseconds(record.ended)))
        run.ended = milliseconds(record.ended)
        mark = {DIGEST_TAG: record_digest(record)} if complete else {}
        self._log(run, rest, final_tags(record) | mark)  # last: MLflow stores a call's tags after its metrics
        if complete:
            run.forget()

    def insert(
        self,
        description: RunDescription,
        started: float,
        points: Iterable[Point],
        record: Record,
        files: Mapping[str, Path],
    ) -> None:
        """Make the run of a trial that has ended and has none, whole; only where there is an `inserter`."""
        assert self.inserter is not None
        first = metric_key(self.study.metric)
        once: dict[tuple[str, int], Point] = {}
        for point in points:
            once.setdefault((point[0], point[3]), point)
        logged = sorted(once.values(), key=lambda point: point[0] != first)
        steps: dict[str, set[int]] = {}
        for key, _, _, step in logged:
            steps.setdefault(key, set()).add(step)
        ended = milliseconds(record.ended)
        rest = [*system_points(record), *setting_points(record)]
        rest += [(metric_key(name), float(v), ended, record.step) for name, v in record.metrics.items()]
        rest = [point for point in dict.fromkeys(rest) if point[0] not in steps]
        tags = {**description.tags, "mlflow.parentRunId": self.parent_id, **source_tags(), **final_tags(record)}
        failed = record.error if record.status == Status.FAILED and record.error else ""
        mark = {DIGEST_TAG: record_digest(record)}
        whole = WholeRun(
            description.name,
            RUN_STATUS.get(record.status, "KILLED"),
            milliseconds(started),
            ended,
            tags if files or failed else tags | mark,
            description.params,
            [*logged, *rest],
            description.dataset,
        )
        inserter = self.inserter
        run = Run(
            translate_errors(lambda: inserter.insert(whole)), params=set(description.params), tags=dict(whole.tags)
        )
        run.sent, run.ended = steps, ended
        for key, _, _, step in rest:
            steps.setdefault(key, set()).add(step)
        run.steps = {key: max(those) for key, those in steps.items()}
        self.runs[description.trial_id] = run
        self._log_files(run.run_id, files)
        if failed:
            translate_errors(lambda: self.client.log_text(run.run_id, failed, "traceback.txt"))
        if files or failed:
            self._log(run, (), mark)
        run.forget()

    def _log_files(self, run_id: str, files: Mapping[str, Path]) -> None:
        """Log files by their names, which may have folders in front."""
        for name, path in files.items():
            folder = Path(name).parent.as_posix()
            translate_errors(
                lambda p=path, f=None if folder == "." else folder: self.client.log_artifact(run_id, str(p), f)
            )

    def _history(self, run: Run, key: str) -> set[int]:
        return {metric.step for metric in translate_errors(lambda: self.client.get_metric_history(run.run_id, key))}

    def _log_all(self, run: Run, points: Sequence[Point]) -> None:
        points = sorted(
            points, key=lambda point: point[0] != metric_key(self.study.metric)
        )  # shown first where it comes first
        for start in range(0, len(points), METRICS_PER_CALL):
            self._log(run, points[start : start + METRICS_PER_CALL], {})

    def is_current(self, record: Record) -> bool:
        """Whether the run shows just this record."""
        run = self.runs.get(record.trial_id)
        return run is not None and run.tags.get(DIGEST_TAG) == record_digest(record)

    def drop_finished(self, trial_id: str) -> None:
        """Delete the run of a trial that is run again: a finished run is replaced, never continued."""
        run = self.runs.get(trial_id)
        if run is not None and DIGEST_TAG in run.tags:
            translate_errors(lambda: self.client.delete_run(run.run_id))
            del self.runs[trial_id]

    def park(self, trial_id: str) -> None:
        """Show an interrupted trial as waiting: it is resumed by the next `contrasweep run`."""
        run = self.runs.get(trial_id)
        if run is not None and DIGEST_TAG not in run.tags:
            translate_errors(lambda: self.client.update_run(run.run_id, status="SCHEDULED"))
            self.set_tags(run, {"status": Status.PENDING.value})

    def set_tags(self, run: Run, tags: Mapping[str, str]) -> None:
        """Write tags of a run; those it has under other names stay."""
        self._log(run, (), tags)

    def end_study(self, ended: float | None = None) -> None:
        """The parent's status: finished when every planned trial has ended (how is in the tag `trials`), else
        waiting for the next run; and which code made them. `ended` in unix seconds, default now."""
        statuses = Counter(run.tags.get("status", "") for run in self.runs.values() if DIGEST_TAG in run.tags)
        planned = len(self.runs) if self.study.trials is None else self.study.trials
        counts = ", ".join(f"{statuses[status]} {status}" for status in Status if status in statuses)
        translate_errors(
            lambda: self.client.set_tag(self.parent_id, "trials", f"{counts or 'none ended'} of {planned}")
        )
        newest_first = sorted(self.runs.values(), key=lambda run: run.ended, reverse=True)
        for key, value in study_code_tags(run.tags for run in newest_first if DIGEST_TAG in run.tags).items():
            translate_errors(lambda k=key, v=value: self.client.set_tag(self.parent_id, k, v))
        if sum(statuses.values()) < planned:
            translate_errors(lambda: self.client.update_run(self.parent_id, status="SCHEDULED"))
        else:
            at = None if ended is None else milliseconds(ended)
            translate_errors(lambda: self.client.set_terminated(self.parent_id, "FINISHED", at))

    def describe_study(self, files: Mapping[str, Path], table: str | None, metrics: Mapping[str, float]) -> None:
        """Figures, tables and the description of the study: on the parent run, the text on the experiment too."""
        self._log_files(self.parent_id, files)
        if table is not None:
            note = study_note(self.study, table)
            translate_errors(lambda: self.client.set_tag(self.parent_id, "mlflow.note.content", note[:7900]))
            translate_errors(
                lambda: self.client.set_experiment_tag(self.experiment_id, "mlflow.note.content", note[:19000])
            )
        if metrics:
            now = milliseconds(time.time())
            batch = [metric_entity((metric_key(k), float(v), now, 0)) for k, v in metrics.items()]
            translate_errors(lambda: self.client.log_batch(self.parent_id, metrics=batch))

    def url(self, trial_id: str | None = None) -> str | None:
        """The page of a trial's run, or of the study; None while it is not known."""
        base = self.uri.ui_base
        if trial_id is None:
            return f"{base}/{study_page(self.experiment_id)}" if self.experiment_id else None
        run = self.runs.get(trial_id)
        return f"{base}/#/experiments/{self.experiment_id}/runs/{run.run_id}?{PAGE_KIND}" if run else None

    def _experiment(self) -> str:
        study = self.study
        tags = {"mlflow.experimentKind": "custom_model_development", "mlflow.note.content": study_note(study)[:19000]}
        if study.metric:
            tags |= {
                "mlflow.experiment.primaryMetric.name": metric_key(study.metric),
                "mlflow.experiment.primaryMetric.greaterIsBetter": str(study.mode == "max"),
            }
        tags[VIEW_TAG + VIEW] = shared_view(study)
        experiment = self.client.get_experiment_by_name(study.name)
        if experiment is None:
            root = self.uri.artifact_root(study.storage, study.name)
            return str(self.client.create_experiment(study.name, artifact_location=root, tags=tags))
        if experiment.lifecycle_stage == "deleted":  # MLflow keeps its name taken
            self.client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _create_parent(self) -> str:
        study = self.study
        tags = {
            ROLE_TAG: "study",
            "study": study.name,
            "plan_digest": study.plan_digest,
            "storage": study.storage,
            "mlflow.note.content": study_note(study)[:7900],
            **source_tags(),
        }
        began = milliseconds(self.began)
        entity = translate_errors(
            lambda: self.client.create_run(self.experiment_id, start_time=began, tags=tags, run_name=study.name)
        )
        parent: str = entity.info.run_id
        declared = json.dumps({**vars(study), "extra": dict(study.extra)}, indent=1, default=str)
        translate_errors(lambda: self.client.log_text(parent, declared, "study.json"))
        return parent

    def _existing(self) -> Iterator[Run]:
        """The experiment's runs, the newest first; of finished trials only with the tags that are kept."""
        known = None
        if self.uri.is_sqlite:
            known = translate_errors(lambda: known_runs(self.client, self.experiment_id, (*TAGS_KEPT, *TAGS_KNOWN)))
        if known is None:
            yield from map(_run_of, self._search())
            return
        for run in known:
            if DIGEST_TAG in run.tags or ROLE_TAG in run.tags or TRIAL_TAG not in run.tags:
                yield Run(run.run_id, tags=run.tags, ended=run.ended)
            else:
                yield _run_of(translate_errors(lambda i=run.run_id: self.client.get_run(i)))

    def _search(self) -> Iterator[Any]:
        token = None
        while True:
            page = translate_errors(
                lambda t=token: self.client.search_runs(
                    [self.experiment_id],
                    max_results=RUNS_PER_PAGE,
                    order_by=["attributes.start_time DESC"],
                    page_token=t,
                )
            )
            yield from page
            token = page.token
            if not token:
                return

    def _keep(self, trial_id: str, run: Run) -> None:
        """Remember a run as its trial's. Of two (a lost answer to create_run) the finished or older one stays."""
        other = self.runs.get(trial_id)
        if other is not None and DIGEST_TAG in other.tags and DIGEST_TAG not in run.tags:
            run, other = other, run
        self.runs[trial_id] = run
        if DIGEST_TAG in run.tags:
            run.forget()
        if other is not None:
            translate_errors(lambda: self.client.delete_run(other.run_id))

    def _create(self, description: RunDescription, started: float) -> Run:
        tags = dict(description.tags) | {"mlflow.parentRunId": self.parent_id, "status": "running", **source_tags()}
        entity = translate_errors(
            lambda: self.client.create_run(
                self.experiment_id, start_time=milliseconds(started), tags=tags, run_name=description.name
            )
        )
        self.runs[description.trial_id] = run = Run(entity.info.run_id, tags=tags, sent={})
        return run

    def _describe(self, run: Run, description: RunDescription) -> None:
        with self._inputs:
            translate_errors(lambda: self.client.log_inputs(run.run_id, datasets=[dataset_input(description.dataset)]))
        missing = sorted(set(description.params) - run.params)
        for start in range(0, len(missing), PARAMS_PER_CALL):
            if run.due:
                self._log(run, (), {})
            run.due = {name: description.params[name] for name in missing[start : start + PARAMS_PER_CALL]}

    def _log(self, run: Run, points: Sequence[Point], tags: Mapping[str, str]) -> None:
        """One log_batch call, with the params that are due; `run` is brought up to date once it has worked."""
        from mlflow.entities import Param, RunTag

        if run.due and len(points) + len(tags) + len(run.due) > ENTITIES_PER_CALL:
            self._log(run, (), {})
        params, run.due = run.due, {}
        metrics = [metric_entity(point) for point in points]
        entities = {"params": [Param(k, v) for k, v in params.items()], "tags": [RunTag(k, v) for k, v in tags.items()]}
        translate_errors(lambda: self.client.log_batch(run.run_id, metrics=metrics, **entities))
        for key, _, _, step in points:
            run.steps[key] = max(step, run.steps.get(key, step))
            if run.sent is not None:
                run.sent.setdefault(key, set()).add(step)
        run.params |= set(params)
        run.tags.update(tags)


def _run_of(entity: Any) -> Run:
    """From what MLflow gives."""
    steps = {metric.key: metric.step for metric in entity.data._metric_objs}
    run = Run(entity.info.run_id, steps, params=set(entity.data.params), tags=dict(entity.data.tags))
    run.ended = entity.info.end_time or 0
    return run


def study_page(experiment_id: str) -> str:
    """The page of a study below the UI's address, with our columns and the best trials first."""
    return f"#/experiments/{experiment_id}/runs?{PAGE_KIND}&viewStateShareKey={VIEW}"
