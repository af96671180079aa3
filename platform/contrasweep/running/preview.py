"""What a study would do if it ran now: its plan, what it takes, what was made by other code, what would decide it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.code import CurrentCode
from contrasweep.config import Config
from contrasweep.defaults import STORAGE
from contrasweep.errors import ContrasweepError
from contrasweep.imports import is_installed
from contrasweep.planning.code_comparison import compare_plan
from contrasweep.planning.forecast import Forecast, forecast
from contrasweep.planning.planner import MissingDataset, Plan, outline, plan_staged
from contrasweep.planning.starts import check_starts
from contrasweep.running.prepare import check_plan, plan_records
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import as_study
from contrasweep.study.sweep import Study
from contrasweep.study.trainables import paths_without_pytorch
from contrasweep.text_table import WIDTH

if TYPE_CHECKING:
    from contrasweep.results.advice import Advice


@dataclass(frozen=True, repr=False)
class Preview:
    """What a study would do if it ran now, as `contrasweep plan` shows it.

    Attributes:
        study: The declaration.
        missing: The datasets that are not staged, and the studies to start from that are not trained.
        forecast: The plan, with memory, packing, hours and cost; None where nothing can be planned.
        other_code: Sentences on trials of other code, and on what is declared anew.
        refused: Why `run` would refuse the study as it is declared; None where it would not.
        advice: What would decide the study's undecided comparisons; None until this very plan has been run.
    """

    study: Study
    missing: tuple[MissingDataset, ...]
    forecast: Forecast | None = None
    other_code: tuple[str, ...] = ()
    refused: ContrasweepError | None = None
    advice: "Advice | None" = None

    @property
    def plan(self) -> Plan | None:
        """Plan of the cells whose datasets are staged; None where nothing can be planned."""
        return None if self.forecast is None else self.forecast.plan

    def to_text(self, width: int | None = None) -> str:
        """Return what `contrasweep plan` prints.

        Args:
            width: The columns of the terminal, to which lines are folded; None: lines are not folded.

        Returns:
            The text.
        """
        if self.forecast is None:
            return "\n".join(outline(self.study, self.missing))
        text = "\n".join([self.forecast.to_text(width), *self.other_code])
        return f"{text}\n\n{self.advice.to_text(width or WIDTH).rstrip()}" if self.advice else text

    def __repr__(self) -> str:
        return self.to_text(WIDTH)

    def to_dict(self) -> dict[str, object]:
        """Return the document that `contrasweep plan --json` prints.

        It is the document of `forecast` with `other_code` and `advice`. Where nothing can be planned it has only the
        study's name, `trials` 0, and `missing`. `missing` lists the datasets that must be staged first, and the studies
        that must be trained first.
        """
        if self.forecast is None:
            return {"study": self.study.name, "trials": 0, "missing": self.missing}
        advice = None if self.advice is None else self.advice.to_dict()
        return self.forecast.to_dict() | {"other_code": self.other_code, "advice": advice}


def preview(
    study: Study | str | Path | Config,
    *,
    storage: str = STORAGE,
    cluster: Path | None = None,
    extend: bool = False,
    spend: bool = False,
    noise: Path | None = None,
    before: Sequence[Plan] = (),
) -> Preview:
    """Return what a study would do if it ran now. Nothing is written and nothing is started.

    Where a dataset is not staged, `Preview.missing` names the cells that wait for it.

    Args:
        study: The study; or its name (`module:NAME`), the path of its YAML file, or a mapping of its fields.
        storage: The folder or address of the storage.
        cluster: Inventory file of the hosts to plan for. Without it, this machine is planned for.
        extend: As in `run`.
        spend: As in `run`.
        noise: The file that `contrasweep noise --json` wrote. With it the forecast says what the study can decide.
        before: Plans of studies that run first; arms of `study` may start from their trials.

    Returns:
        The plan with its memory, hours and cost, trials of other code, and what would decide the study.

    Raises:
        SpecError: The study breaks a rule. A conflict with the storage is no error here: it is in `Preview.refused`.

    Example:
        >>> expected = cs.preview(study)  # all of its trials are there
        >>> expected.forecast.hours, expected.refused
        (0.0, None)
    """
    declared = as_study(study)
    plan, missing = plan_staged(declared, storage=storage, before=before)
    if plan is None:
        return Preview(declared, missing)
    expected = forecast(plan, storage, cluster, missing, noise)
    # Lines on recorded trials: those of other code, and those that arms start from.
    records = StudyRecords(storage, declared.name)
    code = CurrentCode(declared.functions)
    recorded = plan_records(plan, records)
    comparison, notes = compare_plan(plan, records, code, recorded)
    try:
        check_starts(plan, storage, code, recorded)
    except ContrasweepError as error:  # `run` stops at this error, a preview shows it
        notes.append(str(error))
    lines = [line for line in (comparison.line(with_accepted=True), *notes) if line]
    # Whether the storage lets the study run, and what would decide its comparisons.
    advice = None
    refused = None
    try:
        # A plan without some of the cells, or with unchecked settings, is not the plan that was run: no comparison.
        if not any(dataset.cells for dataset in missing) and not paths_without_pytorch(declared):
            lines += check_plan(plan, records, extend=extend, spend=spend)
        # Advice is made of results: it needs trials that have ended (`expected.records`).
        document = records.document() if expected.records else None
        # A machine that only plans has neither pandas nor SciPy, and no advice.
        if (
            document
            and document.plan_digest == plan.digest
            and is_installed("pandas")
            and is_installed("scipy")
        ):
            from contrasweep.results.results import Results

            advice = Results.load(document.name, storage).advice(expected.hours_of)
    except ContrasweepError as error:
        refused = error
    return Preview(declared, missing, expected, tuple(lines), refused, advice)
