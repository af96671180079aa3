"""The fields and checks that every kind of study has."""

import dataclasses
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pydantic

from contrasweep.canonical import canonical
from contrasweep.delivery import check_declared
from contrasweep.errors import SpecError, check_known
from contrasweep.schema import checked
from contrasweep.secrets import redacted
from contrasweep.storage.checkpoints import Keep
from contrasweep.storage.names import Label
from contrasweep.storage.record import Seed
from contrasweep.storage.study_document import Alpha
from contrasweep.study.arm import LONGEST_NAME, Arm, Name
from contrasweep.study.evaluation import Evaluation
from contrasweep.study.metric_names import check_mode, metric_range
from contrasweep.study.replicates import Above0, Replicates

STORAGE_FOLDERS = (
    "archive",
    "calibration",
    "datasets",
    "code",
    "compact",
    "lease",
    "looks",
    "records",
    "search",
    "trials",
)
"""Names of a storage's folders, which no study may have."""
TABLE_COLUMNS = (
    "trial_id",
    "arm",
    "fold",
    "seed",
    "status",
    "cause",
    "step",
    "time",
    "etag",
    "value",
)
"""Columns that a table of trials has beside axes and metrics."""
MEASURED_COLUMNS = ("seconds", "gpu_memory_gib")
"""Columns with what the platform measures of each trial."""
NO_RESULT = (
    "name",
    "description",
    "labels",
    "tracking",
    "max_failures",
    "budget_hours",
    "budget_gpu_hours",
    "smallest_difference",
    "trial_hours",
    "report_minutes",
    "notify",
    "evaluate",
    "keep",
    "keep_checkpoints_of",
    "process",
)
"""Fields that change no result, so that a Sweep that has run may be declared again with another value of one."""
MAX_CELLS = 50_000
"""The most cells of a study."""
MAX_TRIALS = 200_000
"""The most trials of a study."""
_TRIAL_ID = re.compile(r"[0-9a-f]{16}")
"""The form of a trial's id."""


def _without_passwords(addresses: str | list[str] | None) -> str | list[str] | None:
    """Return `addresses` unchanged; `SpecError` where one has a password: a study's file is kept and shown."""
    # `redacted` leaves out the password of an address that has one.
    for address in [addresses] if isinstance(addresses, str) else addresses or []:
        if redacted(address) != address:
            raise SpecError(
                "a study holds no password",
                value=redacted(address),
                hint="leave it out of the address and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
            )
    return addresses


def _as_metric(name: str) -> str:
    """Return the name of a metric unchanged; `SpecError` where no metric can have this name.

    That is the name of another column of the table, an empty one, one that cannot be printed, and one of more than 200
    characters.
    """
    if name in (*TABLE_COLUMNS, *MEASURED_COLUMNS):
        raise SpecError(
            "no metric has this name, which is a column of every table",
            value=name,
            hint="choose another",
        )
    if not name or not name.isprintable() or len(name) > 200:
        raise SpecError("a metric is a line of at most 200 printable characters", value=name)
    return name


Metric = Annotated[str, pydantic.AfterValidator(_as_metric)]
Seeds = Annotated[list[Seed], pydantic.Field(min_length=1)]
Reason = Annotated[Label, pydantic.Field(min_length=1)]
Difference = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Folds = Annotated[int, pydantic.Field(ge=2)]
Notify = Annotated[str | list[str] | None, pydantic.AfterValidator(check_declared)]
Tracking = Annotated[str | list[str] | None, pydantic.AfterValidator(_without_passwords)]


@checked
class StudyBase(ABC):
    """The fields that every kind of study has.

    Args:
        name: The study's name in the storage: letters, digits and `._-`, at most 100.
        arms: The methods to compare, by name.
        data: The name of a staged or bundled dataset (`contrasweep list datasets`); `none` where programs bring their
            own, which `labels` may name: `labels: {none: hpo on reviews}`.
        folds: Folds of a cross-validation on the training part. Default: train on it, evaluate on the test split.
        replicates: Replicates where they are needed, in place of a fixed number; see `Replicates`.
        metric: The reported metric that is compared.
        mode: Whether a larger (`max`) or a smaller (`min`) value of the metric is better. A metric whose name says that
            smaller ones are, such as `val_loss`, needs it.
        reference: The arm that the others are compared with. Default: every pair is compared.
        smallest_difference: The smallest difference of interest, in units of the metric. Verdicts then say whether a
            difference matters, and arms that surely differ by less are equivalent.
        alpha: The level of the study's comparisons together.
        description: What the study asks, for its report.
        labels: Names for people, by declared name: of arms, axes, their values, metrics and datasets. Tables, reports
            and the live view show them; JSON, frames and CSV keep the declared names. `compare` takes both.
        tracking: Where runs are shown unless the command says it: an address, or several (`contrasweep list trackers`).
        max_failures: How often a trial is tried again before it is `failed`.
        budget_hours: Wall hours that the study may take, over all its runs. It then stops; with a larger budget it
            goes on.
        budget_gpu_hours: GPU-hours that the study may take, over all its runs.
        trial_hours: Hours after which a trial that still trains ends as `failed`.
        report_minutes: Minutes without a report after which a trial ends as `failed`.
        notify: A command, or several. They are told of a run's events as JSON on their standard input: a first trial
            fails, a look decides something, the run gives no sign of life, it ends. It changes no id.
        evaluate: Scores of the trained networks on other data or by own code, computed once the study is complete; see
            `Evaluation`. It changes no id.
        keep: Which checkpoints of a trial stay: the `newest`, or `all`; or once the trial is done the one with the
            `best` metric alone, or `none`. It changes no id.
        keep_checkpoints_of: Of which finished trials the checkpoints stay once the study is complete: `all`, the best
            of each arm (`best_of_arm`), those of the table and not of a search (`confirmed`), or `none`. It changes
            no id.
        process: Whether a process trains many trials one after the other (`shared`) or one (`own`). It changes no id.
    """

    name: Name
    arms: Annotated[dict[Name, Arm], pydantic.Field(min_length=1)]
    data: str
    _: dataclasses.KW_ONLY
    folds: Folds | None = None
    replicates: Replicates | None = None
    metric: Metric = "accuracy"
    mode: Literal["max", "min"] = "max"
    reference: str | None = None
    smallest_difference: Difference | None = None
    alpha: Alpha = 0.05
    description: str = ""
    labels: dict[Label, Label] | None = None
    tracking: Tracking = None
    max_failures: Annotated[int, pydantic.Field(ge=0)] = 3
    budget_hours: Above0 | None = None
    budget_gpu_hours: Above0 | None = None
    trial_hours: Above0 | None = None
    report_minutes: Above0 | None = None
    notify: Notify = None
    evaluate: list[Evaluation] | None = None
    keep: Keep = "newest"
    keep_checkpoints_of: Literal["all", "best_of_arm", "confirmed", "none"] = "all"
    process: Literal["shared", "own"] = "shared"

    @pydantic.model_validator(mode="before")
    @classmethod
    def _declares_mode(cls, declared: Any) -> Any:
        return check_mode(declared)

    def __init_subclass__(cls) -> None:
        """Write the arguments of `StudyBase` into the docstring of the subclass, before its own arguments."""
        shared = inspect.cleandoc(StudyBase.__doc__ or "").partition("Args:\n")[2]
        cls.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace(
            "Args:\n", f"Args:\n{shared}\n", 1
        )

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return dotted path -> function, of the arms whose trainables are given as functions, not by their paths."""
        return {
            arm.path: arm.trainable
            for arm in self.arms.values()
            if not isinstance(arm.trainable, str)
        }

    @property
    @abstractmethod
    def all_seeds(self) -> list[int]:
        """The seeds that any cell of the study's table can have."""

    @property
    def axis_names(self) -> list[str]:
        """Return the names of the axes of the study's table, which are dotted keys; [] where only arms are compared."""
        return []

    def check_shared(self, seeds: Sequence[int], field: str) -> None:
        """Raise `SpecError` at the first rule that the fields of every kind of study break.

        `seeds` are checked too, which are declared in the field `field`. Rules for a single field are not checked here,
        but by the field's type.
        """
        canonical(self.description, "description")  # raises for text that cannot be written
        self._check_names()
        if len(set(seeds)) != len(seeds):
            raise SpecError("seeds must differ from each other", place=field, value=list(seeds))
        if self.replicates is not None and self.replicates.of == "seeds":
            self.replicates.check_seeds(seeds, field)
        if self.reference is not None:
            self.check_arm(self.reference, "reference", "the reference must be an arm")
        self._check_evaluations()
        bounds = metric_range(self.metric)
        if self.smallest_difference is None or bounds is None:
            return
        low, high = bounds
        # A difference of the whole range or more was probably given in percent.
        if self.smallest_difference >= high - low:
            raise SpecError(
                f"the smallest difference of interest is less than the range of {self.metric}, which is from "
                f"{low:g} to {high:g}",
                place="smallest_difference",
                value=self.smallest_difference,
                hint="it is in units of the metric, not in percent",
            )

    def _check_names(self) -> None:
        """Raise `SpecError` for a name of the study or of an arm that means something else, or a start from this study.

        The study's name may be no folder of the storage, and an arm's name may not look like a trial's id.
        """
        if self.name.lower() in STORAGE_FOLDERS:
            raise SpecError(
                "no study has this name, which is a folder of the storage",
                place="name",
                value=self.name,
                hint="choose another",
            )
        for arm, declared in self.arms.items():
            if declared.start is not None and declared.start.study == self.name:
                raise SpecError(
                    "a study does not start from itself",
                    place=f"arms.{arm}.start.study",
                    value=self.name,
                    hint="name the study that trains its networks",
                )
            if _TRIAL_ID.fullmatch(arm):  # as which `--rerun` would take it
                raise SpecError(
                    "an arm's name may not look like a trial's id",
                    place=f"arms.{arm}",
                    hint="choose another",
                )

    def _check_evaluations(self) -> None:
        """Raise `SpecError` where the study's evaluations cannot be run, or the study cannot decide by their scores.

        They cannot be run where no checkpoints are kept, two functions have the same name, or a name is too long. A
        score is declared once; a study with `replicates` decides by no score.
        """
        # `keep: none` deletes the checkpoints that these two fields need.
        for field, is_set in (
            ("evaluate", self.evaluate),
            ("keep_checkpoints_of", self.keep_checkpoints_of != "all"),
        ):
            if self.keep == "none" and is_set:
                raise SpecError(
                    f"of a study that keeps no checkpoint of a trial, {field} has none",
                    place="keep",
                    value=self.keep,
                    hint="leave keep out; keep_checkpoints_of: none deletes them once the study is complete",
                )
        # Each evaluation is a study with a name of its own, and scores are named by the last part of a function's path.
        functions = {
            e.function: e.function.rpartition(":")[2] for e in self.evaluate or () if e.function
        }
        if len(set(functions.values())) < len(functions):
            raise SpecError(
                "two functions of one name would give scores of one name",
                place="evaluate",
                value=list(functions),
                hint="give one another name",
            )
        for evaluation in self.evaluate or ():
            name = f"{self.name}.{evaluation.label}"
            if len(name) > LONGEST_NAME:
                raise SpecError(
                    f"the study of an evaluation has a name of at most {LONGEST_NAME} characters",
                    place="evaluate",
                    value=name,
                    hint="shorten the name of this study",
                )
        # Scores of evaluations that the study decides as it does its metric.
        scores = [metric for evaluation in self.evaluate or () for metric in evaluation.metrics]
        if len(set(scores)) != len(scores):
            raise SpecError("a score is decided once", place="evaluate", value=scores)
        if scores and self.replicates is not None:
            raise SpecError(
                "a study that grows decides its own metric alone: its looks chose the number of replicates",
                place="evaluate",
                value=scores,
                hint="leave out `metrics`, or `replicates`",
            )

    @property
    def level(self) -> float:
        """The level (alpha) for the comparisons of one metric.

        It is the study's `alpha`, divided by the number of metrics that the study decides: its own and the declared
        scores.
        """
        return self.alpha / (1 + sum(len(evaluation.metrics) for evaluation in self.evaluate or ()))

    def check_arm(self, name: str, place: str, rule: str = "there is no such arm") -> None:
        """Raise `SpecError` at `place`, with this `rule`, where `name` is no arm of the study."""
        check_known(name, "arms", self.arms, rule, place=place)


def check_trial_count(cells: int, replicates: int, place: str = "axes, folds, seeds") -> None:
    """Raise `SpecError` at `place` for more than `MAX_CELLS` cells or `MAX_TRIALS` trials, which must be a mistake.

    `cells` is the number of cells, `replicates` the number of trials of each.
    """
    if cells > MAX_CELLS or cells * replicates > MAX_TRIALS:
        raise SpecError(
            f"a study has at most {MAX_CELLS:,} cells and {MAX_TRIALS:,} trials",
            place=place,
            value=f"{cells:,} cells of {replicates:,} replicates",
            hint="declare several studies",
        )
