"""`Results`: the results of a study, read from the storage alone: frames, tables, comparisons and figures."""

import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from contrasweep.canonical import label
from contrasweep.commands import COMMAND_PATH
from contrasweep.commands.metrics import REPORT_FILE
from contrasweep.config import Config
from contrasweep.errors import BrokenFileError, SpecError, check_known
from contrasweep.imports import import_path
from contrasweep.planning import networks
from contrasweep.planning.power import earlier_noise, user_methods
from contrasweep.results import search
from contrasweep.results.advice import Advice, Hours, Prices, advice
from contrasweep.results.answer import Answer, Pair, Versus
from contrasweep.results.building import DecisionRule, build_table
from contrasweep.results.interim_verdicts import ExtensionVerdicts, InterimVerdicts
from contrasweep.results.items import item_values
from contrasweep.results.ledger import OF_CAMPAIGN
from contrasweep.results.notes import read_notes
from contrasweep.results.notices import mark_mixed_code
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.search import Best
from contrasweep.results.study_data import TRIAL_COLUMNS, StudyData
from contrasweep.results.table import PLAIN, Cell, Key, Table, TableStyle
from contrasweep.rows import FrameRow, row_tuples
from contrasweep.shell import command_line
from contrasweep.statistics.comparison import Comparison
from contrasweep.statistics.design import Design, SeedPart
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.interim_log import confirmation_notes, read_confirmations
from contrasweep.storage.record import Record, Status
from contrasweep.study.arm_budget import ArmBudget, search_costs
from contrasweep.study.file import as_study, named_by
from contrasweep.terminal_text import printable
from contrasweep.trial import Trial


@dataclass(frozen=True, repr=False)
class Results(StudyData):
    """What a study has so far: frames, tables, comparisons and advice.

    `contrasweep.load` gives them, and so does `contrasweep.run` at its end. A notebook shows them as the study's table.

    Example:
        >>> import contrasweep as cs
        >>> results = cs.load("quickstart")
        >>> results.table().to_frame()[["arm", "mean", "low", "high"]]
        >>> print(results.compare("ocl", "scl"))
    """

    @property
    def statuses(self) -> dict[str, int]:
        """Return the number of trials by status, for each status that occurs."""
        return dict(Counter(self.frame["status"]))

    @property
    def complete(self) -> bool:
        """Whether every planned trial is done, or was stopped early on purpose."""
        return all(Status(word).trained for word in self.statuses)

    @property
    def pending(self) -> bool:
        """Whether a planned trial is still to run."""
        return any(Status(word).pending for word in self.statuses)

    def to_frame(self) -> pd.DataFrame:
        """Return the trials of the study's table.

        Returns:
            One row per trial: trial_id, arm, the axes, fold, seed, status, the metrics, seconds (of training) and
            gpu_memory_gib. Metrics of a trial that has not ended are NaN. Where the data are partitioned into folds
            several times, the column `repeat` numbers the partition. `attrs` has what else `judge` needs: the study's
            `metric`, `mode`, `alpha` and other fields, its `design` (the fields of a `Design`) and `notes`.
        """
        frame = self.frame.copy()
        folds = self.document.folds or 0
        if folds and frame["fold"].max() >= folds and "repeat" not in frame:
            frame.insert(frame.columns.get_loc("fold"), "repeat", frame["fold"] // folds)  # type: ignore[arg-type]
        design = asdict(self._design(self.metric))
        notes = list(self.study_notes)
        if self._interim is not None:
            notes.append(
                "the study was looked at before: p in its own table allow for that, p here do not"
            )
        frame.attrs |= {
            "metric": self.metric,
            "mode": self.document.mode,
            "question": self.document.question,
            "reference": self.document.reference,
            "alpha": self.document.level,
            "smallest_difference": self.document.smallest_difference,
            "axes": list(self.axes),
            "design": design,
            "notes": notes,
        }
        return frame

    def _design(self, metric: str) -> Design:
        """Return how the cells of the study's table are replicated, with what is known of the noise of a `metric`."""
        folds = self.document.folds
        searched = 0
        # A sweep's table has no trials on the folds that were searched.
        if folds and self.document.search:
            searched = folds - self.planned["fold"].nunique()
        # What is known of the noise between seeds was measured of the study's metric alone.
        seed_part = self._seed_part if metric == self.metric else SeedPart()
        return Design(folds=folds, searched=searched, seed_part=seed_part)

    def trial_rows(self) -> list[FrameRow]:
        """Return the rows of `to_frame` for JSON: axes and metrics are mappings, missing values None."""
        frame = self.frame.astype(object).where(lambda f: f.notna(), None)  # JSON has no NaN
        metrics = [str(name) for name in frame if name not in {*TRIAL_COLUMNS, *self.axes}]
        return [
            {name: row[name] for name in TRIAL_COLUMNS}
            | {
                "axes": {axis: row[axis] for axis in self.axes},
                "metrics": {name: row[name] for name in metrics},
            }
            for row in frame.to_dict("records")
        ]

    @cached_property
    def search(self) -> pd.DataFrame:
        """The configurations of a Sweep's search, a row each; empty for a grid.

        The columns are trial_id (of the configuration's first fold), arm, value (mean of the metric over folds),
        status, and the searched settings.
        """
        return search.search_frame(self.search_records.values(), self.document)

    def best(self) -> pd.DataFrame:
        """Return the best settings of each arm: of a search the confirmed configuration, of a grid the best cell.

        Returns:
            One row per arm: arm, its settings (a column each, by dotted key), configurations (how many were trained to
            their end), searched (the metric in the search), and mean, low, high and n of the table's cell, with
            how many of its n trials collapsed.
        """
        return search.best_frame(self.best_settings)

    @cached_property
    def best_settings(self) -> list[Best]:
        """The best settings of each arm as objects, in the order of the study's arms.

        An arm without a finished trial has none.
        """
        if self.document.search:
            cells = self.table(["arm"], []).cells
            by_arm = {arm: cell for ((arm,), _), cell in cells.items()}
            return search.best_of_search(
                self.search,
                self.search_records,
                self.trial_records.values(),
                by_arm,
                self.document,
            )
        # A grid: in a table whose rows are the arm and all axes every cell has a row, by labels. The values of the axes
        # are found again by their labels.
        factors = ["arm", *self.axes]
        values_of = {tuple(map(label, row)): row for row in row_tuples(self.planned, factors)}
        sign = 1 if self.document.mode == "max" else -1
        scores: dict[str, float] = {}  # arm -> mean of its best cell, where larger is better
        best: dict[str, Best] = {}
        for (row, _), cell in self.table(factors, []).cells.items():
            arm, *values = values_of[row]
            if cell.mean is None or sign * cell.mean <= scores.get(arm, -math.inf):
                continue
            settings = dict(zip(self.axes, values, strict=True))
            scores[arm] = sign * cell.mean
            best[arm] = Best(arm, settings).with_cell(cell)
        return [best[arm] for arm in self.document.arms if arm in best]

    def best_trial(self, arm: str) -> Record | None:
        """Return the best finished trial of an arm, by the study's metric.

        Args:
            arm: The arm's name.

        Returns:
            Its record; None where no trial of the arm has finished.
        """
        done = [
            record
            for record in self.trial_records.values()
            if record.arm == arm and record.value(self.metric) is not None
        ]
        pick = max if self.document.mode == "max" else min
        return pick(done, key=lambda record: record.reported(self.metric), default=None)

    def checkpoint(self, arm: str, to: str | Path) -> Path:
        """Fetch the newest checkpoint of the arm's best finished trial, also from an object store.

        Args:
            arm: The name of an arm; its trainable may be a command or code of your own.
            to: A folder that is not there yet, or is empty.

        Returns:
            The folder with the files that the trainable or command has written.

        Raises:
            SpecError: There is no such arm, no trial of the arm has finished, its checkpoint was not kept, or `to` is
                not empty.
        """
        record = self._trained(arm)
        folder = Path(to)
        folder.mkdir(parents=True, exist_ok=True)
        # Files that are there already could not be told from those of the checkpoint.
        if any(folder.iterdir()):
            raise SpecError("a checkpoint goes into an empty folder", place="to", value=to)
        if Checkpoints.of(self.records, record.trial_id).fetch(folder) is None:
            hint = f"trial {record.trial_id} has none"
            if record.trainable == COMMAND_PATH:  # a command
                hint += (
                    "; a command leaves one by a line of CONTRASWEEP_METRICS, "
                    '{"step": 1, "accuracy": 0.5, "checkpoint": "FOLDER"}, for a folder in CONTRASWEEP_CHECKPOINTS; '
                    "what else it has written is in "
                    f"{self.records.storage}/{self.records.key(record.trial_id, 'folder')}"
                )
            raise SpecError("there is no checkpoint of this arm", place="arm", value=arm, hint=hint)
        return folder

    def load_model(self, arm: str, study: Any = None) -> Any:
        """Load the network of the arm's best finished trial, also from an object store.

        Args:
            arm: The name of an arm; its trainable may be a command or code of your own.
            study: The declared study, its file or `module:NAME`. It is needed where the study names code or data of
                your own: code that only a storage names is not imported.

        Returns:
            What the function `load_model(folder, trial)` in the module of the arm's trainable returns: for a shipped
            trainable a `torch.nn.Module`. For a command, the path of the one file that it has left as its checkpoint,
            or of a new temporary folder with all of its files.

        Raises:
            SpecError: There is no such arm, no checkpoint of the arm, or no loader, or only the storage names the
                loader.
            DataError: The study's dataset is not staged here.

        Example:
            >>> import contrasweep as cs
            >>> network = cs.load("quickstart").load_model("ocl")
            >>> embeddings = network(images)  # uint8 [n c h w], as they are in the dataset
        """
        record = self._trained(arm)
        # A command has no loader: its files, which may be those of any program, are given as they are.
        if record.trainable == COMMAND_PATH:
            folder = self.checkpoint(arm, tempfile.mkdtemp(prefix="contrasweep-"))
            # What contrasweep has noted of the checkpoint is no file of the command.
            (folder / REPORT_FILE).unlink(missing_ok=True)
            files = [path for path in folder.rglob("*") if path.is_file()]
            return files[0] if len(files) == 1 else folder
        # Only code and data that the given study names are imported, and those of this package.
        named_values = [] if study is None else named_by(as_study(study))
        load = networks.loader(self.document, record, named_values)
        data = networks.data_of(
            record, networks.datasets(self.document, self.records.storage, named_values)
        )
        trial = Trial.of(record, data)
        with tempfile.TemporaryDirectory(prefix="contrasweep-") as name:
            return load(self.checkpoint(arm, name), trial)

    def _trained(self, arm: str) -> Record:
        """Return the best finished trial of an arm; `SpecError` where there is none."""
        check_known(arm, "arms", self.document.arms, "there is no such arm", place="arm")
        record = self.best_trial(arm)
        if record is None:
            raise SpecError("no trial of this arm has finished", place="arm", value=arm)
        return record

    def importance(self) -> pd.DataFrame:
        """Return how much each searched setting of a Sweep matters.

        Returns:
            One row per arm and setting, the most important first: arm, setting, share, noise, configurations (how many
            were trained to their end) and verdict. The share is the setting's part in what tells the best tenth of the
            configurations from all of them (PED-ANOVA). The noise is the share that shuffled scores reach. Empty for a
            grid.
        """
        return search.importance(self.search, self.document)

    def spent(self) -> dict[str, str]:
        """Return for each arm, as text, what its search has cost of its budget. Empty for a grid."""
        if self.document.search is None:
            return {}
        budget = ArmBudget(**self.document.search.budget)
        costs = search_costs(
            search.searched(self.search_records.values(), self.document), self.document.arms
        )
        return {arm: cost.spent_of(budget) for arm, cost in costs.items()}

    def table(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        metric: str | None = None,
        *,
        style: TableStyle = PLAIN,
    ) -> Table:
        """Return the study's table: means with intervals, marks, what is missing, and the verdicts of its question.

        The comparisons of another metric than the study's are exploratory.

        Args:
            rows: The factors in the rows: "arm", an axis by its dotted key, or a list of these. Without `rows` and
                `columns` the axes are the rows and the arms the columns.
            columns: The factors in the columns. Cells are means over all factors that are in neither.
            metric: The metric of the cells; the study's by default.
            style: How the table is drawn.

        Returns:
            The table, which a notebook shows; `.to_text()`, `.to_markdown()`, `.to_latex()`, `.to_html()` and
            `.to_frame()` give its other forms.

        Raises:
            SpecError: For a name that is no axis, and for a metric that no trial has reported.

        Example:
            >>> results.table(rows="arm", columns="batch_size", style=cs.TableStyle(digits=3))
        """
        # A study without axes has nothing for the rows but the arms.
        if rows is None and columns is None:
            rows = self.axes or "arm"
            columns = "arm" if self.axes else ()
        factors = ["arm", *self.axes]

        def known_factors(side: str | Sequence[str] | None) -> list[str]:
            """Return the declared names of the factors that the caller gave for the rows or columns; none if None."""
            names = [side] if isinstance(side, str) else side or []
            return [self.known_name("rows or columns", name, factors) for name in names]

        row_factors = known_factors(rows)
        column_factors = known_factors(columns)
        placed = [*row_factors, *column_factors]
        if len(set(placed)) < len(placed):
            rule = "name each factor once, in the rows or in the columns"
            raise SpecError(rule, place="rows, columns", value=", ".join(placed))
        # A side that is not given has the factors that the other side leaves.
        others = [name for name in factors if name not in placed]
        if rows is None:
            row_factors = others
        elif columns is None:
            column_factors = others
        table = self._build(row_factors, column_factors, metric)

        # Where another layout answers the study's question, its verdicts are told below this table. Where the arms are
        # the columns, a last row has the averages over all cells, which the verdicts of `overall` are about.
        if not table.decisive and self._decides(table.metric):
            averages: Mapping[Key, Cell] = {}
            if (
                self.document.question == "overall"
                and table.column_factors == ("arm",)
                and not table.pooled
            ):
                of_arms = self._table_of_arms(table.metric, overall=True)
                averages = {arm: cell for (arm, _), cell in of_arms.cells.items()}
            table = replace(table, study_answer=self._answer(table.metric), averages=averages)

        # What a reader must know beside the table. Broken files come last: what is read for the other notes may find
        # more of them.
        notes = list(self.declared_notes)
        if table.metric == self.metric and self._interim is not None:
            notes.extend(self._interim.notes)
        if self.document.scores:
            metrics = ", ".join([self.metric, *self.document.scores])
            notes.append(f"alpha {self.document.alpha:g} is divided among {metrics}")
        table = replace(table, notes=(*table.notes, *notes, *self.study_notes))
        table = mark_mixed_code(table, self.mixed_code, self.records)
        names = DisplayNames({**self.names.names, **style.names.names})
        return replace(
            table, notes=(*table.notes, *self.broken_notes()), style=replace(style, names=names)
        )

    def versus(self, a: str, b: str, metric: str | None = None, at: Config | None = None) -> Versus:
        """Compare arm `a` with arm `b`: over the axes left free by `at`, and in each cell of the table.

        Comparisons that belong to the study's question have its verdicts; the others are exploratory.

        Args:
            a: The name of an arm, as declared or as tables show it; so too the names below.
            b: The name of another arm.
            metric: The metric; the study's by default.
            at: The values of axes that are fixed, by axis: `{"batch_size": 32}`.

        Returns:
            The comparison in words and numbers, which a notebook shows.

        Raises:
            SpecError: For an unknown arm, axis or metric, an arm against itself, and where the arms have no finished
                replicate in common.
        """
        at = {self.known_name("axis", name, self.axes): value for name, value in (at or {}).items()}
        metric = self._metric(metric)
        arms = list(dict.fromkeys(self.planned["arm"]))
        a = self.known_name("arm", a, arms)
        b = self.known_name("arm", b, arms)
        if a == b:
            raise SpecError("two different arms are compared", place="compare", value=a)
        free = [axis for axis in self.axes if axis not in at]
        title = self.title
        for axis, value in at.items():
            title += f", {self.names(axis)} {self.names(label(value))}"
        decisive = self._decides(metric)
        # In each cell the comparison that the study decides, or else an exploratory one. If all axes are fixed, one
        # cell is left: an exploratory comparison of it is made below, as `overall`.
        cells: list[Pair] = []
        if self.axes and decisive:
            cells = _between(self._table_of_arms(metric, overall=False).pairs, a, b, at)
        if self.axes and not cells and (free or decisive):
            table = self._build(self.axes, ["arm"], metric, exploratory=True)
            cells = _between(table.pairs, a, b, at)
        # Over everything the comparison that the study decides, where no axis is fixed.
        overall: list[Pair] = []
        if decisive and not at:
            overall = _between(self._table_of_arms(metric, overall=True).pairs, a, b, {})
        # The one cell that is left where all axes are fixed, if it has a verdict.
        if at and not free and cells and cells[0].has_verdict:
            overall = cells
        # Else an exploratory comparison of the trials at these values.
        if not overall:
            frame = self.at(self.frame, at)
            table = self._build(["arm"], [], metric, exploratory=True, frame=frame)
            overall = _between(table.pairs, a, b, {})
        if not overall:
            rule = "the arms have no finished replicate in common"
            raise SpecError(rule, place="compare", value=(a, b))
        return Versus(
            title,
            a,
            b,
            metric,
            overall[0],
            tuple(cells) if free else (),
            tuple(free),
            names=self.names,
            declared=tuple(self.declared_notes),
        )

    def compare(
        self, a: str, b: str, metric: str | None = None, at: Config | None = None
    ) -> Comparison:
        """Compare arm `a` with arm `b` as one `Comparison`: short for `versus(...).overall.comparison`.

        A replicate is a fold and a seed. Its difference is the mean over all cells at the values `at`. Only replicates
        that both arms have finished in each of these cells are used.

        Args:
            a: The name of an arm.
            b: The name of another arm.
            metric: The metric; the study's by default.
            at: The values of axes that are fixed, by axis.

        Returns:
            The comparison with its verdict; exploratory where it does not belong to the study's question.

        Raises:
            SpecError: For an unknown arm, axis or metric, and where the arms have no finished replicate in common.
        """
        versus = self.versus(a, b, metric, at)
        return replace(versus.overall.comparison, names=(versus.names(a), versus.names(b)))

    def evaluate(
        self, on: Sequence[str] = (), function: str = "", study: Any = None, **options: Any
    ) -> "Results":
        """Score the networks that the study has kept, on other data or by code of your own. Nothing is trained.

        Args:
            on: Names of staged datasets of images with labels.
            function: The dotted path of a function `f(model, data, trial) -> {metric: number}`, in place of the shipped
                scores. It may return a second mapping too: score -> one value per test item.
            study: The declared study. It is needed where the study names code of your own: code that only a storage
                names is not imported.
            options: Options of `contrasweep evaluate`: `tracking`, `max_concurrent`, `cluster`, `quiet`.

        Returns:
            The results of the study, with the scores as metrics: `DATASET/knn1`, `FUNCTION/METRIC`. Comparisons of
            these are exploratory, unless the study has declared them in its field `evaluate`.

        Raises:
            SpecError: There is nothing to evaluate, or nothing to evaluate it with.
            DataError: A dataset is not staged.
        """
        run = import_path("contrasweep.running.driver:evaluate", kind="function")  # an upper layer
        options |= {"on": on, "function": function, "storage": self.records.storage}
        evaluated: Results
        evaluated, _ = run(study or self.name, **options)  # and the results of the scoring study
        return evaluated

    def advice(self, hours: Hours | None = None) -> Advice:
        """Return what would decide the undecided comparisons.

        For two and four times the replicates it has the detectable difference, the chance of a decision and the price.
        It also says how many replicates decide each comparison with a chance of 80 %.

        Args:
            hours: A function from numbers of further trials, by arm, to their wall hours. By default trials take as
                long as those so far, with as many at a time.

        Returns:
            The advice, which a notebook shows. It is false where nothing is undecided, or trials are still to run.
        """
        document = self.document
        records = self.trial_records
        prices = Prices(self.planned, document.folds, records.values(), hours)
        pending = sum(trial_id not in records for trial_id in self.planned["trial_id"])
        advised = advice(self.answer, prices, self._interim, pending=pending, type=document.type)
        price_of = "price on its hosts" if hours else "price at its pace"
        return replace(advised, names=self.names, price_of=price_of)

    @property
    def study_notes(self) -> list[str]:
        """Sentences that stand below any table of the study.

        They are on how the study was confirmed, on the known settings that its searches began with, on settings without
        effect, on the campaign whose ledger decides in place of this table, and on problems that trials report of
        themselves.
        """
        confirmed = [
            *confirmation_notes(self.document.spec, self.records),
            *search.start_notes(self.document),
            *search.unmoved_notes(self.search, self.metric),
        ]
        # The description of a campaign's study begins with the name of the campaign: `Of campaign speed. ...`.
        campaign = self.document.description.partition(OF_CAMPAIGN)[2].split(" ")[0].rstrip(".")
        if self.name.startswith(f"{campaign}."):
            confirmed.append(
                f"a study of campaign {campaign}, of which its ledger decides, by its own test and levels: "
                + command_line("ledger", campaign, storage=self.records.storage)
            )
        return [*confirmed, *self.unused_settings, *self.notices]

    @property
    def notes(self) -> list[str]:
        """What people wrote of the study and its trials (`contrasweep note`), a line each.

        Last, where a log has a warning, the command that shows it.
        """
        lines = []
        try:
            for trial, text in read_notes(self.records):
                # The first letters of a trial's id are enough to find the trial; a note on the study has none.
                place = f"{self.name}/{trial[:8]}".rstrip("/")
                lines.append(printable(" ".join(f"note on {place}: {text}".split())))
        except BrokenFileError as error:
            lines.append(f"left out: {error}")
        for record in self.warned[:1]:
            logs_command = command_line(
                "logs", self.name, record.trial_id[:8], storage=self.records.storage
            )
            lines.append(f"the first log with a warning: {logs_command}")
        return lines

    @property
    def answer(self) -> Answer:
        """The comparisons that the study decides of its metric, with their verdicts."""
        return self._answer(self.metric)

    def _answer(self, metric: str) -> Answer:
        """Return the comparisons of `metric` that answer the study's question: over all cells, or in each cell."""
        overall = self.document.question == "overall"
        return Answer(
            self._table_of_arms(metric, overall=overall).pairs,
            self.document.question,
            tuple(self.axes) if overall else (),
        )

    def _decides(self, metric: str) -> bool:
        """Whether the study decides comparisons of a metric: its own, or a score of evaluations that it has declared.

        A declared score is decided once every finished trial has it. In a study with several looks it is never decided,
        because the looks test the study's own metric alone.
        """
        if metric == self.metric:
            return True
        if metric not in self.document.scores or metric not in self.frame:
            return False
        return self._interim is None and bool(self.done[metric].notna().all())

    @cached_property
    def _built(self) -> dict[tuple[str, bool], Table]:
        """The tables that `_table_of_arms` has built so far: its arguments (metric, overall) -> table."""
        return {}

    def _table_of_arms(self, metric: str, *, overall: bool) -> Table:
        """Return the table that compares the arms over all axes (`overall`), or in each cell; each is built once."""
        overall = overall or not self.axes
        if (metric, overall) not in self._built:
            rows, columns = (["arm"], []) if overall else (self.axes, ["arm"])
            self._built[metric, overall] = self._build(rows, columns, metric)
        return self._built[metric, overall]

    @cached_property
    def _interim(self) -> InterimVerdicts | ExtensionVerdicts | None:
        """The looks at the study's results, by which its verdicts are stricter; None where nobody looked before.

        `InterimVerdicts` for a study that declares `replicates`, and so grows. `ExtensionVerdicts` for a study of a
        fixed size that was extended after its trials had ended, was confirmed again, or had its question declared anew.
        """
        earlier = max(0, len(read_confirmations(self.records)) - 1)
        growing = InterimVerdicts.of(self.document.spec, self.records, earlier)
        return growing or ExtensionVerdicts.of(self.records, self.document.spent + earlier)

    @cached_property
    def _seed_part(self) -> SeedPart:
        """What is known of the variance between seeds, for a study in which all folds have one seed.

        It is 0 for shipped methods, which draw other random numbers in each fold. For other methods it comes from the
        newest earlier study that tells it; unknown (`SeedPart()`) without one, and where this study has several seeds
        or no folds.
        """
        document = self.document
        records = self.trial_records.values()
        # Shipped methods draw anew in each fold, so that the folds of a seed share no draws: the variance is 0.
        trainables = user_methods({record.trainable for record in records})
        if not trainables:
            return SeedPart(0.0)
        # Several seeds tell the variance themselves, and without folds nothing is shared.
        if not document.folds or self.planned["seed"].nunique() > 1:
            return SeedPart()
        data = {dataset.digest for dataset in document.datasets}
        # The compared values are means over so many cells.
        cells = 1
        if document.question == "overall" and self.axes:
            cells = len(self.planned[list(self.axes)].astype(str).drop_duplicates())
        for noise in earlier_noise(
            self.records.storage,
            self.name,
            metric=self.metric,
            folds=document.folds,
            data=data,
            cells=cells,
            trainables=trainables,
        ):
            if noise.seed_part:
                return noise.seed_part
        return SeedPart()

    def _metric(self, name: str | None) -> str:
        """Return the declared name of the metric `name`; None: the study's. `SpecError` where no trial reports it."""
        name = name or self.metric
        reported = [name for name in self.frame.columns if name not in {*TRIAL_COLUMNS, *self.axes}]
        return self.known_name("metric", name, reported or [name])

    def _build(
        self,
        rows: Sequence[str],
        columns: Sequence[str],
        metric: str | None,
        *,
        exploratory: bool = False,
        frame: pd.DataFrame | None = None,
    ) -> Table:
        """Return a table with these factors in its rows and columns, and the `metric` in its cells (None: the study's).

        Its comparisons have verdicts where they answer the study's question. With `exploratory` no comparison has a
        verdict, and every two arms are compared, whatever the reference. `frame` are the trials of the table (default:
        all of the study).
        """
        frame = self.frame if frame is None else frame
        metric = self._metric(metric)
        document = self.document
        decisive = not exploratory and not document.evaluates and self._decides(metric)
        # The question and the looks are of comparisons that get verdicts; an exploratory table compares every two arms,
        # against no reference.
        rule = DecisionRule(
            design=self._design(metric),
            mode=self.mode(metric),
            alpha=document.level,
            question=document.question if decisive else None,
            margin=document.smallest_difference,
            reference=None if exploratory else document.reference,
            interim=self._interim if decisive else None,
            family_arms=document.family,
            trained_again=self.trained_again,
        )
        # Trials on one split share its test items, whose scores then count if every trial has stored them. Folds have
        # no item in common.
        items = None
        if not document.folds:
            items = item_values(self.items, self.frame, self.trial_records, metric)
        if items is not None:
            rule = replace(rule, design=Design(items=max(map(len, items.sizes.values()))))
        return build_table(
            frame,
            rows=rows,
            columns=columns,
            axes=self.axes,
            metric=metric,
            rule=rule,
            links=self.run_urls,
            title=self.title,
            items=items,
        )

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self.statuses.items())
        return f"Results({self.name}: {counts})"

    def _repr_html_(self) -> str:
        return str(self.table()._repr_html_())

    def __str__(self) -> str:
        return str(self.table())


def _between(pairs: Sequence[Pair], a: str, b: str, at: Config) -> list[Pair]:
    """Return the comparisons of arm `a` with arm `b`, at the values `at` of axes, with `a` as the first side.

    The axes in `at` are removed from the contexts of the comparisons.
    """
    fixed = {axis: label(value) for axis, value in at.items()}  # as the contexts have them
    chosen = []
    for pair in pairs:
        context = dict(pair.context)
        if {pair.a, pair.b} == {a, b} and fixed.items() <= context.items():
            free = tuple((axis, value) for axis, value in context.items() if axis not in fixed)
            chosen.append(replace(pair.seen_from(a), context=free))
    return chosen
