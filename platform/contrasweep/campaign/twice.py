"""An A/A test of a study's arm or a campaign's incumbent: ordinary studies train it twice on the same seeds."""

from collections.abc import Sequence

from contrasweep.campaign.campaign import Campaign
from contrasweep.campaign.decision import INCUMBENT
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError, check_known
from contrasweep.running.driver import run
from contrasweep.running.session import session
from contrasweep.shell import command_line
from contrasweep.statistics.noise import Noise
from contrasweep.study.file import build_study, built, load_declared
from contrasweep.study.grid import AblationGrid, SubGrid
from contrasweep.study.sweep import Study, Sweep

KINDS: tuple[type[Study | Campaign], ...] = (AblationGrid, Sweep, Campaign)


def train_twice(
    name: str,
    arm: str,
    seeds: int,
    sets: Sequence[str],
    storage: str,
    max_concurrent: int | None = None,
) -> Noise:
    """Train an arm twice on the seeds 0 to `seeds` - 1, and return the values of both studies.

    The studies are `NAME.noise-1` and `NAME.noise-2`, with the arm's cells and the folds of the declared study. A
    seed's value is the mean over these. Trials that this code has trained already are not trained again.

    Args:
        name: `module:NAME` or a YAML file, of a grid or a campaign.
        arm: The arm of a grid, or `incumbent` of a campaign; "": the reference, or the only arm.
        seeds: How many seeds.
        sets: Changed fields, as `PATH=VALUE`.
        storage: The folder or address of the storage.
        max_concurrent: Trials at once, at most.

    Raises:
        ContrasweepError: As `run` raises, and where a trial has no value of the metric.
    """
    declared: Study | Campaign = load_declared(name, KINDS, _built, "SOURCE", sets)
    if isinstance(declared, Sweep):
        rule = (
            "noise trains an arm of a grid, or the incumbent of a campaign, twice; this is a sweep"
        )
        hint = "contrasweep report STUDY --format yaml prints a grid of the best settings"
        raise SpecError(rule, place="SOURCE", value=name, hint=hint)
    # A campaign is a grid with its incumbent alone.
    grid = (
        declared.grid({INCUMBENT: declared.incumbent}, [0])
        if isinstance(declared, Campaign)
        else declared
    )
    # Where no arm is named, and several arms have no reference, the check raises: "" is no arm's name.
    arm = arm or grid.reference or (next(iter(grid.arms)) if len(grid.arms) == 1 else "")
    arms = dict.fromkeys(cell.arm for cell in grid.cells())
    check_known(arm, "arms", arms, "an arm runs twice", place="--same")
    # A sub-grid for each of the arm's cells, of the product and of sub-grids at any depth.
    subgrids = []
    for cell in grid.cells():
        if cell.arm == arm:
            axes = {axis: [value] for axis, value in cell.axes.items()}
            subgrids.append(SubGrid([arm], dict(cell.added), axes))
    values: list[tuple[float, ...]] = []
    with session():
        # Two studies of the same seeds. A difference between them is noise that the seed does not fix.
        for number in (1, 2):
            study = AblationGrid(
                f"{grid.name}.noise-{number}",
                {arm: grid.arms[arm]},
                grid.data,
                seeds=list(range(seeds)),
                subgrids=subgrids,
                folds=grid.folds,
                repeats=grid.repeats,
                metric=grid.metric,
                mode=grid.mode,
            )
            frame = run(
                study,
                storage=storage,
                tracking=None,
                extend=True,
                changed="rerun",
                quiet=True,
                max_concurrent=max_concurrent,
            ).to_frame()
            if grid.metric not in frame or frame[grid.metric].isna().any():
                rule = "an A/A is of runs that have a value"
                raise SpecError(
                    rule,
                    place=study.name,
                    value=grid.metric,
                    hint=command_line("status", study.name),
                )
            values.append(tuple(frame.groupby("seed")[grid.metric].mean().tolist()))
    first, second = values
    return Noise(grid.name, (arm, arm), grid.metric, first, second)


def _built(fields: MutableConfig, file: str) -> Study | Campaign:
    """Return the study or, by its `type` or its incumbent, the campaign of a file; `SpecError` names the file."""
    if fields.get("type", "campaign" if "incumbent" in fields else "") == "campaign":
        return built(Campaign, fields, file)
    return build_study(fields, file)
