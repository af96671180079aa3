"""The runs of one study on an MLflow store, by MLflow's public calls alone. It blocks and raises `TrackingError`.

A `Follower` tells `Server` of running and of ended trials. `Server` finds their runs by the tag `trial_id`, and sends
what a run lacks of what the storage has.
"""

import getpass
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from contrasweep.rows import Row
from contrasweep.storage import compact
from contrasweep.storage.planned import planned_rows
from contrasweep.storage.record import COUNTING, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted
from contrasweep.tracking.links import write_links
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.client import new_client
from contrasweep.tracking.mlflow.description import (
    RUN_STATUS,
    TABLE_TAG,
    Point,
    RunDescription,
    describe_run,
    final_tags,
    metric_key,
    milliseconds,
    mlflow_keys,
    row_points,
    shared_view,
    study_code_tags,
    study_note,
    system_points,
)
from contrasweep.tracking.tracker import (
    EndedTrial,
    Outcome,
    Target,
    TrackedStudy,
    TrackingError,
    TrialFiles,
    record_digest,
    system_metrics,
)

# with 100 tags these are MLflow's limits on log_batch
METRICS_PER_CALL = 800
PARAMS_PER_CALL = 100
HTTP_CONNECTIONS = 8
RUNS_PER_PAGE = 1000
LARGEST_VALUE = 1.7976931348623157e308  # in whose place MLflow keeps an infinite value

PAGE_KIND = "workflowType=machine_learning"  # MLflow's menus for training; its default ones are for language models
VIEW_TAG = "mlflow.sharedViewState."
"""Beginning of the tags of an experiment that hold views of its page; the name of the view follows."""
VIEW = "trials"
ALL_SUFFIX = "-all"
"""Suffix of the name of a view that shows all trials; the view without it shows those of the study's table."""
ROLE_TAG = "contrasweep.role"
"""Tag of the study's own run, with the value `study`."""
TRIAL_TAG = "trial_id"
PARENT_TAG = "mlflow.parentRunId"
STUDY_TAG = "study"
ORIGIN_TAG = "contrasweep.origin"
"""Tag of an experiment that tells a study from that of the same name in another storage, which has its own."""
NOTE_TAG = "mlflow.note.content"
DIGEST_TAG = "contrasweep.record"
"""Tag that a run gets with the last of its values: the digest of the record that it shows."""
MODEL_TAG = "contrasweep.model"
"""The step of the model that was logged for a run."""

RUNNING = "running"
"""The tag `status` of a run whose trial runs; every other run has the status of its trial."""
RunStatus = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]


@dataclass
class Run:
    """What is known of a trial's run in MLflow.

    `tags` are its tags by name, `params` the names of its params, `keys` the keys of its metrics. `newest` is key ->
    (newest step, its value), of the metrics that were compared; None: MLflow was not asked for them yet. `ended` is in
    unix milliseconds; 0: the run has not ended.
    """

    run_id: str
    tags: dict[str, str]
    keys: set[str] = field(default_factory=set)
    params: set[str] = field(default_factory=set)
    newest: dict[str, tuple[int, float]] | None = None
    ended: int = 0

    @property
    def is_final(self) -> bool:
        """Whether the run shows the record of a trial that has ended, and not a running trial."""
        return DIGEST_TAG in self.tags

    def forget_content(self) -> None:
        """Forget keys, params, newest values and most tags of the run, to save memory: it gets no more values.

        The `Run` itself stays until the end of the study, with the few tags that are still read.
        """
        self.keys = set()
        self.params = set()
        self.newest = None
        self.tags = {
            tag: self.tags[tag]
            for tag in (DIGEST_TAG, MODEL_TAG, PARENT_TAG, TABLE_TAG, "status")
            if tag in self.tags
        }


class Server(Target):
    """Shows a study as an experiment of MLflow: a run of its own and, below that, one run per trial."""

    def __init__(self, uri: TrackingAddress, study: TrackedStudy, records: StudyRecords) -> None:
        """Prepare to show `study`, whose storage is that of `records`; MLflow is not asked before `connect`."""
        self.uri = uri
        self.study = study
        self.records = records
        self.name = f"MLflow at {uri}"
        self.connections = HTTP_CONNECTIONS if uri.is_server else 1
        self.experiment_id = self.parent_id = ""
        self.table: set[str] = set()  # ids of the trials that the table is planned to have
        self.runs: dict[str, Run] = {}
        self.added = 0  # trials that MLflow had no run of
        self.client: Any = None
        # Trial id -> records of evaluations of its network.
        self._evaluations: dict[str, list[Record]] = {}
        # Trials for which a call failed. It may have worked all the same, and only its answer was lost.
        self._ask_again: set[str] = set()
        # MLflow breaks when two calls bring it the same new dataset at once.
        self._datasets = threading.Lock()

    def connect(self, began: float | None = None, *, trials: bool = True) -> None:
        """Find or make the experiment and the study's run, and learn which runs of trials there are.

        Where somebody has deleted the study's run, the runs of trials are put below the new one.

        Args:
            began: When the study began, in unix seconds.
            trials: Whether runs of trials are wanted; to list them takes long.
        """
        self.client = self.client or new_client(self.uri)
        self.experiment_id = self._experiment()
        self.runs = {}
        parents = []
        self._evaluations = compact.read_evaluations(self.records, []) if trials else {}
        self._ask_again.clear()
        # The search gives the newest first. Of several runs of the study itself, the oldest is taken.
        condition = "" if trials else f"tags.`{ROLE_TAG}` = 'study'"
        for run in self._search(condition):
            trial_id = run.tags.get(TRIAL_TAG)
            if run.tags.get(ROLE_TAG) == "study":
                parents.append(run.run_id)
            elif trial_id:
                self._remember(trial_id, run)
        if parents:
            self.parent_id = parents[-1]
        else:
            self._create_parent(began or time.time())
        for run in self.runs.values():
            if run.tags.get(PARENT_TAG) != self.parent_id:  # somebody has deleted the study's run
                self.log(run, tags={PARENT_TAG: self.parent_id})
        if trials:
            self._match_storage()

    def find(self, trial_id: str) -> Run | None:
        """Ask MLflow for the run of a trial; None where it has none."""
        self.runs.pop(trial_id, None)
        for found in self._search(f"tags.{TRIAL_TAG} = '{trial_id}'"):
            self._remember(trial_id, found)
        self._ask_again.discard(trial_id)
        return self.runs.get(trial_id)

    def is_reachable(self) -> bool:
        """Return whether the store gives any answer, even a refusal. It is asked after another call has failed."""
        try:
            self.client.search_experiments(max_results=1)
        except TrackingError as error:
            return not error.retryable
        return True

    def begin(self) -> None:
        """Show the study as running."""
        self.client.update_run(self.parent_id, status="RUNNING")

    def learn(self, records: Collection[Record]) -> None:
        """Add the settings of these trials to the params that every run shows.

        Read anew, too, which trials the study's table has.
        """
        keys = (key for record in records for key in dotted.flatten(record.config))
        self.study = replace(self.study, keys=tuple(dict.fromkeys([*self.study.keys, *keys])))
        self._read_table()

    def shows(self, record: Record) -> bool:
        """Return whether the trial's run has ended and shows exactly this record, with the scores of evaluations."""
        run = self.runs.get(record.trial_id)
        record = compact.with_scores(record, self._evaluations)
        return (
            run is not None and run.ended > 0 and run.tags.get(DIGEST_TAG) == record_digest(record)
        )

    def doubt(self, trial_id: str) -> None:
        """Let MLflow be asked again for a trial's run before it is used, because a call has failed."""
        self._ask_again.add(trial_id)

    def show_running(self, trial: Record, started: float, files: TrialFiles) -> None:
        """Show a trial as running since `started` (unix seconds), with the reports that it has made so far."""
        if trial.id not in self.runs:  # the plan may have grown since the last trial ended
            self._read_table()
        description = describe_run(self.study, trial)
        points = self._points(files)
        tags = self._status_tags(trial.id, RUNNING)
        run, missing = self._open_run(description, started, points, tags)
        # It may be shown as waiting, since an earlier run of the study was interrupted.
        if run.tags.get("status") != RUNNING:
            self.client.update_run(run.run_id, status="RUNNING")
            self.log(run, tags=tags)
        self.log(run, missing, self._missing_params(run, description))

    def show_ended(self, record: Record, files: TrialFiles) -> None:
        """Send MLflow what the run of an ended trial lacks, and end the run with the status of the record.

        A run that is missing is made. The digest of the record is logged with the last values. So a run that has it is
        known to have all others.
        """
        # Scores of evaluations of the trial's network count as its metrics.
        record = compact.with_scores(record, self._evaluations)
        description = describe_run(self.study, record)
        points = self._points(files)
        # A run that has to be made gets the tags of an ended trial at once, so that it never looks like a running one.
        # A run that is there already gets them below, with its last values.
        tags = final_tags(record) | self._status_tags(record.trial_id, record.status.value)
        run, missing = self._open_run(description, record.started, points, tags)
        with files.fetched(record) as folder:
            if record.status.failed and record.error:
                (folder / "traceback.txt").write_text(record.error, errors="backslashreplace")
            if any(folder.iterdir()):
                self.client.log_artifacts(run.run_id, str(folder))
        missing = [*missing, *self._missing_summary(run, record, files, points)]
        tags[DIGEST_TAG] = record_digest(record)
        self.log(run, missing, self._missing_params(run, description), tags)
        status = RUN_STATUS[record.status]
        ended = milliseconds(record.ended)
        self.client.set_terminated(run.run_id, status, ended)
        run.ended = ended
        # No more values come, so the list of those that the run has is not needed.
        run.forget_content()

    def end(self, ended: Mapping[str, EndedTrial], outcome: Outcome) -> None:
        """Set tags and status of the study's own run; `ended` is trial id -> facts of each trial with a record.

        Unless `outcome` says that the study still runs, its own run is ended. Runs of trials that have begun and not
        ended are then marked as waiting, since the next run of the study goes on with them.
        """
        self._match_storage()
        statuses = Counter(trial.status for trial in ended.values())
        planned = len(ended) if self.study.trials is None else self.study.trials
        counts = ", ".join(f"{statuses[status]} {status}" for status in Status if statuses[status])
        newest_first = sorted(ended.values(), key=lambda trial: trial.ended, reverse=True)
        tags = {
            "trials": f"{counts or 'none ended'} of {planned}",
            "plan_digest": self.study.plan_digest,
        }
        self._set_parent_tags(tags | study_code_tags(trial.code for trial in newest_first))
        if outcome != "running":
            for trial_id, run in self.runs.items():
                waiting = self._status_tags(trial_id, Status.PENDING.value)
                if not run.is_final and run.tags.get("status") != waiting["status"]:
                    self.client.update_run(run.run_id, status="SCHEDULED")
                    self.log(run, tags=waiting)
            status = study_status(statuses, outcome)
            # A complete study ended with its last trial; any other ends now.
            ended_at = None
            if newest_first and outcome == "complete":
                ended_at = milliseconds(newest_first[0].ended)
            self.client.set_terminated(self.parent_id, status, ended_at)

    def keep(self) -> None:
        """Write to the storage the addresses of the pages of the study and of all runs that are known."""
        write_links(
            self.records,
            self.uri,
            self.url(),
            {trial_id: self.url(trial_id) or "" for trial_id in self.runs},
        )

    def describe_study(
        self, files: Mapping[str, Path], table: str, metrics: Mapping[str, float]
    ) -> None:
        """Write figures, tables and a description to the study's own run, and the description to the experiment.

        `files` are by their name in MLflow, with folders in front. `table` is the result table as Markdown. `metrics`
        are numbers of the study as a whole; one that it had before and has no more becomes NaN.
        """
        for name, path in files.items():
            folder = Path(name).parent.as_posix()
            self.client.log_artifact(self.parent_id, str(path), None if folder == "." else folder)
        self._set_note(study_note(self.study, self._pages(), table))
        keys = mlflow_keys(metrics)
        values = {keys[name]: float(value) for name, value in metrics.items()}
        before = self.client.get_run(self.parent_id).data.metrics
        now = milliseconds(time.time())
        points = [Point(key, values.get(key, math.nan), now, 0) for key in {**before, **values}]
        self.log(Run(self.parent_id, {}), points)

    def url(self, trial_id: str | None = None) -> str | None:
        """Return the page of a trial's run, or of the study where `trial_id` is None; None while it is not known."""
        base = self.uri.ui_base
        if trial_id is None:
            return f"{base}/{study_page(self.experiment_id)}" if self.experiment_id else None
        run = self.runs.get(trial_id)
        if run is None:
            return None
        return f"{base}/#/experiments/{self.experiment_id}/runs/{run.run_id}?{PAGE_KIND}"

    def _pages(self) -> tuple[str, str]:
        """Return the addresses of two views of the study, below that of the UI.

        The first view has the trials of the study's table, the second one all trials.
        """
        return study_page(self.experiment_id), study_page(self.experiment_id, VIEW + ALL_SUFFIX)

    def _experiment(self) -> str:
        """Return the id of the study's experiment in MLflow, and give it the study's views.

        A missing experiment is made, a deleted one is restored. Its name is that of the study. Where another experiment
        has this name already, the first digits of the study's origin follow it.
        """
        study = self.study
        experiment = find_experiment(self.client, study)
        if experiment is None:
            name = study.name
            if self.client.get_experiment_by_name(name) is not None:  # also a deleted one
                name += f"-{study.origin[:8]}"
            experiment_id = self.client.create_experiment(
                name,
                artifact_location=self.uri.artifact_root(study.name),
                tags={
                    STUDY_TAG: study.name,
                    ORIGIN_TAG: study.origin,
                    "mlflow.experimentKind": "custom_model_development",
                },
            )
            experiment = self.client.get_experiment(experiment_id)
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        tags = {
            VIEW_TAG + VIEW: shared_view(study),
            VIEW_TAG + VIEW + ALL_SUFFIX: shared_view(study, all_trials=True),
        }
        if study.metric:
            tags |= {
                "mlflow.experiment.primaryMetric.name": metric_key(study.metric),
                "mlflow.experiment.primaryMetric.greaterIsBetter": str(study.mode == "max"),
            }
        for key, value in tags.items():
            if experiment.tags.get(key) != value:
                self.client.set_experiment_tag(experiment.experiment_id, key, value)
        return str(experiment.experiment_id)

    def _create_parent(self, began: float) -> None:
        """Make the study's own run, with the study's description. The runs of trials are children of this run."""
        study = self.study
        tags = {
            ROLE_TAG: "study",
            STUDY_TAG: study.name,
            "plan_digest": study.plan_digest,
            "storage": study.storage,
            **source_tags(),
        }
        entity = self.client.create_run(
            self.experiment_id, start_time=milliseconds(began), tags=tags, run_name=study.name
        )
        self.parent_id = entity.info.run_id
        declared = json.dumps({**vars(study), "extra": dict(study.extra)}, indent=1, default=str)
        self.client.log_text(self.parent_id, declared, "study.json")
        self._set_note(study_note(study, self._pages()))

    def _set_note(self, note: str) -> None:
        """Set the description of the study's own run and of the experiment, cut to the length that MLflow accepts."""
        # MLflow takes 8,000 bytes in a tag of a run, 20,000 in one of an experiment.
        self._set_parent_tags({NOTE_TAG: note[:7900]})
        self.client.set_experiment_tag(self.experiment_id, NOTE_TAG, note[:19000])

    def _set_parent_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the study's own run."""
        self.log(Run(self.parent_id, {}), tags=tags)

    def _match_storage(self) -> None:
        """Delete the runs of ended trials that have no record any more, for example because they were archived.

        Each other run gets a tag that says whether the study's table has its value.
        """
        # The records are listed after the runs were: a trial that has ended in between is not taken for a removed one.
        recorded = self.records.finished()
        for trial_id, run in [*self.runs.items()]:
            if run.is_final and trial_id not in recorded:
                self.client.delete_run(run.run_id)
                del self.runs[trial_id]
                self.removed += 1
        self._read_table()

    def _read_table(self) -> None:
        """Read from the stored plan which trials the study's table has, and change the tags of runs that differ."""
        self.table = {row["trial_id"] for row in planned_rows(self.records)}
        for trial_id, run in self.runs.items():
            tags = self._status_tags(trial_id, run.tags.get("status", ""))
            if run.tags.get(TABLE_TAG) != tags[TABLE_TAG]:
                self.log(run, tags={TABLE_TAG: tags[TABLE_TAG]})

    def _status_tags(self, trial_id: str, status: str) -> dict[str, str]:
        """Return two tags of a trial's run: its status, and whether the study's table has its value or will have it."""
        has_value = trial_id in self.table and status in (*COUNTING, RUNNING)
        return {"status": status, TABLE_TAG: "yes" if has_value else "no"}

    def _search(self, condition: str = "") -> Iterator[Run]:
        """Yield the experiment's runs that fulfil the `condition` ("": all), the newest first."""
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id],
                condition,
                max_results=RUNS_PER_PAGE,
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            for found in page:
                data = found.data
                info = found.info
                yield Run(
                    info.run_id,
                    dict(data.tags),
                    set(data.metrics),
                    set(data.params),
                    ended=info.end_time or 0,
                )
            token = page.token
            if not token:
                return

    def _remember(self, trial_id: str, run: Run) -> None:
        """Keep `run` as the run of its trial; where the trial has another run already, delete one of the two.

        A trial may have two runs where the answer to `create_run` was lost. One that shows an ended trial stays, else
        the older one. Runs come here the newest first.
        """
        other = self.runs.get(trial_id)
        # The search gives the newest first, so that of two alike the one that comes later, the older, replaces it.
        if other is not None and other.is_final and not run.is_final:
            run, other = other, run
        self.runs[trial_id] = run
        if run.is_final and run.ended:
            run.forget_content()
        if other is not None:
            self.client.delete_run(other.run_id)

    def _open_run(
        self,
        description: RunDescription,
        started: float,
        points: Sequence[Point],
        tags: Mapping[str, str],
    ) -> tuple[Run, Sequence[Point]]:
        """Return the trial's run in MLflow, and those of `points` that the run lacks.

        A missing run is made; it begins at `started` (unix seconds) and has `tags`. A run that shows an earlier record
        of the trial, or has another value at a step, is deleted and made anew.
        """
        trial_id = description.trial_id
        run = self.find(trial_id) if trial_id in self._ask_again else self.runs.get(trial_id)
        if run is not None:
            shows_record = run.is_final and run.ended
            # None: the run shows an earlier record, or has other values, so that it is replaced.
            missing = None if shows_record else self._missing(run, points)
            if missing is not None:
                return run, missing
            self.client.delete_run(run.run_id)
            del self.runs[trial_id]
        else:
            self.added += 1
        created = self._create(description, started, tags)
        return created, self._missing(created, points) or ()

    def _missing(self, run: Run, points: Sequence[Point]) -> list[Point] | None:
        """Return those of `points` that the run lacks; None where it has another value at a step than a point.

        MLflow is asked once for each run; after that, `run.newest` has the newest step of each metric. A value of that
        newest step that has been revised since counts as lacking: of two values of a step, MLflow shows the later one.
        """
        # MLflow need not be asked twice: what this process has logged since is in `newest`. A metric that is not there
        # counts as one at step -1.
        if run.newest is not None:
            lacking = []
            for point in points:
                step, value = run.newest.get(point.key, (-1, 0.0))
                revised = point.step == step and not _same(value, point.value)
                if point.step > step or revised:
                    lacking.append(point)
            return lacking
        run.newest = {}
        missing = []
        # The metrics that both the run and the points have: key -> step -> value.
        stored = {}
        for key in {point.key for point in points} & run.keys:
            history = self.client.get_metric_history(run.run_id, key)
            # Of several values of a step the one that was logged last counts.
            by_time = sorted(history, key=lambda metric: metric.timestamp)
            stored[key] = {metric.step: metric.value for metric in by_time}
        for point in points:
            values = stored.get(point.key, {})
            if point.step not in values:
                missing.append(point)
            elif not _same(values[point.step], point.value):
                return None
        # Of each metric the pair (step, value) with the largest step.
        run.newest = {
            key: max(values.items(), key=itemgetter(0)) for key, values in stored.items() if values
        }
        return missing

    def _create(self, description: RunDescription, started: float, tags: Mapping[str, str]) -> Run:
        """Make the run of a trial, with its tags (those of the description and `tags`) and its dataset; return it."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        all_tags = {
            **description.tags,
            **tags,
            PARENT_TAG: self.parent_id,
            **source_tags(),
        }
        entity = self.client.create_run(
            self.experiment_id,
            start_time=milliseconds(started),
            tags=all_tags,
            run_name=description.name,
        )
        run = Run(entity.info.run_id, all_tags, newest={})
        self.runs[description.trial_id] = run
        trained_on = DatasetInput(
            Dataset(**description.dataset), [InputTag("mlflow.data.context", "training")]
        )
        with self._datasets:
            self.client.log_inputs(run.run_id, datasets=[trained_on])
        return run

    def _keys(self, files: TrialFiles, record: Record | None = None) -> dict[str, str]:
        """Return name -> key in MLflow, for all metrics in a trial's reports and system use, and in `record`.

        With `record` None, metrics that are only in the record are left out.
        """
        # The study's metric comes first, so that its key has no number.
        reported = (name for row in [*files.reports, *_used(files)] for name in row)
        names = [self.study.metric, *reported]
        if record:
            names += record.metrics
        return mlflow_keys(filter(None, names))

    def _points(self, files: TrialFiles) -> list[Point]:
        """Return the points of a trial's stored reports and of its system use, one for each metric and step."""
        once: dict[tuple[str, int], Point] = {}
        for point in row_points([*files.reports, *_used(files)], self._keys(files)):
            once.setdefault((point.key, point.step), point)
        return list(once.values())

    def _missing_summary(
        self, run: Run, record: Record, files: TrialFiles, points: Sequence[Point]
    ) -> list[Point]:
        """Return the points that the record adds to the trial's `points`, without those whose key the run has already.

        These are the trial's duration and memory, and metrics of the record that no report has, such as scores of
        evaluations.
        """
        keys = self._keys(files, record)
        ended = milliseconds(record.ended)
        of_record = [
            Point(keys[name], float(value), ended, record.step)
            for name, value in record.metrics.items()
        ]
        present = run.keys | {point.key for point in points}
        added = [*system_points(record), *of_record]
        return [point for point in dict.fromkeys(added) if point.key not in present]

    def _missing_params(self, run: Run, description: RunDescription) -> dict[str, str]:
        """Return the params of the description that the run lacks."""
        return {name: value for name, value in description.params.items() if name not in run.params}

    def log(
        self,
        run: Run,
        points: Sequence[Point] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log points, params and tags in as few calls as MLflow allows, and add them to what `run` is known to have.

        The tags go with the last call. So a run that has them has all that was logged with them. Its other tags stay.
        """
        from mlflow.entities import Metric, Param, RunTag

        main_metric = metric_key(self.study.metric)
        sorted_params = sorted((params or {}).items())
        tags = dict(tags or {})
        # MLflow shows first what was logged first: the study's metric (False sorts before True).
        points = sorted(points, key=lambda point: point.key != main_metric)
        calls = max(
            math.ceil(len(points) / METRICS_PER_CALL),
            math.ceil(len(sorted_params) / PARAMS_PER_CALL),
            1 if tags else 0,
        )
        # Each call has the next slice of the points, and the next one of the params.
        for i in range(calls):
            some_points = points[i * METRICS_PER_CALL : (i + 1) * METRICS_PER_CALL]
            some_params = sorted_params[i * PARAMS_PER_CALL : (i + 1) * PARAMS_PER_CALL]
            last_tags = tags if i == calls - 1 else {}
            self.client.log_batch(
                run.run_id,
                metrics=[Metric(*point) for point in some_points],
                params=[Param(name, value) for name, value in some_params],
                tags=[RunTag(name, value) for name, value in last_tags.items()],
            )
        for point in points:
            run.keys.add(point.key)
            if run.newest is not None:
                newest_step, _ = run.newest.get(point.key, (0, 0.0))
                if point.step >= newest_step:
                    run.newest[point.key] = (point.step, point.value)
        run.params |= set(params or ())
        run.tags.update(tags)


def study_status(statuses: Mapping[Status, int], outcome: Outcome) -> RunStatus:
    """Return MLflow's status of the study's own run.

    `KILLED` where it was interrupted, or a budget ended it, before all that is needed was done; `FAILED` where no trial
    succeeded; else `FINISHED`.
    """
    if outcome == "interrupted":
        return "KILLED"
    none_succeeded = sum(statuses.values()) and not any(
        count and status.trained for status, count in statuses.items()
    )
    return "FAILED" if none_succeeded else "FINISHED"


def find_experiment(client: Any, study: TrackedStudy) -> Any:
    """Return MLflow's experiment that shows the study of this name and origin, also a deleted one; None for none."""
    from mlflow.entities import ViewType

    condition = f"tags.`{ORIGIN_TAG}` = '{study.origin}'"
    found = client.search_experiments(ViewType.ALL, filter_string=condition)
    return next((each for each in found if each.tags.get(STUDY_TAG) == study.name), None)


def study_page(experiment_id: str, view: str = VIEW) -> str:
    """Return the address of a study's page in MLflow, relative to the UI's, with the view `view` open."""
    return f"#/experiments/{experiment_id}/runs?{PAGE_KIND}&viewStateShareKey={view}"


def _used(files: TrialFiles) -> list[Row]:
    """Return the rows of a trial's system use, with `system/` before the name of each quantity."""
    return [
        {"step": row["step"], "time": row["time"], **system_metrics(row)} for row in files.system
    ]


def _same(shown: float, ours: float) -> bool:
    """Whether `shown`, the value that MLflow returns, stands for `ours`, the value that was logged.

    MLflow keeps the largest float in place of an infinite one. Some stores return it as infinite again.
    """
    if math.isinf(ours):
        return shown in (ours, math.copysign(LARGEST_VALUE, ours))
    return shown == ours or (math.isnan(shown) and math.isnan(ours))


def source_tags() -> dict[str, str]:
    """Return the tags by which MLflow shows who made a run, and with which program.

    The user is "unknown" where the system does not know the name.
    """
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a passwd entry
        user = "unknown"
    return {"mlflow.user": user, "mlflow.source.name": "contrasweep", "mlflow.source.type": "LOCAL"}
