"""The options of population based training; who copies whom is decided by `tuning.population_search`."""

from dataclasses import dataclass

from contrasweep.errors import SpecError
from contrasweep.study.sweep import Sweep
from contrasweep.tuning.pruners.pruner import at_least


@dataclass(frozen=True)
class Population:
    """Population based training (Jaderberg et al. 2017).

    Synchronous (appendix A.1 there), so that it does not depend on which report comes first, and can be resumed.

    Every `interval` steps, up to `max_step`, the best `quantile` of the arm's configurations are copied, weights and
    all, onto the worst, whose settings are theirs with each drawn anew (with chance `resample`) or moved a little. The
    result is a schedule of settings. `interval` has to be a multiple of the trainable's checkpoints and evaluations.
    """

    max_step: int
    interval: int
    quantile: float = 0.25
    resample: float = 0.25

    def __post_init__(self) -> None:
        at_least("interval", self.interval, 1)
        at_least("max_step", self.max_step, self.interval)
        for name, value, most in (("quantile", self.quantile, 0.5), ("resample", self.resample, 1.0)):
            if not 0 < value <= most:
                raise SpecError(
                    f"{name} must be above 0 and at most {most}", place=f"pruner_options.{name}", value=value
                )

    @property
    def ends(self) -> list[int]:
        """The step at which each generation ends."""
        return [*range(self.interval, self.max_step, self.interval), self.max_step]


def population_of(study: Sweep) -> Population | None:
    """Return the options of population based training in `study`; None where it does not use it.

    Raises `SpecError` on options that it cannot combine.
    """
    if study.pruner != "pbt":
        return None
    budget = study.arm_budget
    if budget.trials is None or budget.trials < 2 or budget.epochs or budget.gpu_hours:
        raise SpecError(
            "the budget of PBT is the size of its population, at least 2",
            place="budget",
            value=str(budget),
            hint="give trials_per_arm alone: an arm then takes trials_per_arm x max_step epochs",
        )
    for name, given in (("warm_start", study.warm_start), ("freeze", study.freeze), ("constraints", study.constraints)):
        if given:
            raise SpecError(
                f"PBT knows no {name}", place=name, value=given, hint="leave it out, or search without pruner: pbt"
            )
    for name, arm in study.arms.items():
        if not isinstance(arm.trainable, str):
            raise SpecError(
                "PBT needs the trainable's dotted path", place=f"arms.{name}.trainable", value=arm.trainable
            )
        for setting, parameter in arm.space.items():
            if parameter.when:
                raise SpecError(
                    "PBT moves each setting on its own, so none may be conditional",
                    place=f"arms.{name}.space.{setting}.when",
                    value=parameter.when,
                )
    try:
        return Population(**study.pruner_options)
    except TypeError as error:
        raise SpecError(
            "PBT does not take these options", place="pruner_options", value=study.pruner_options, hint=str(error)
        ) from None
