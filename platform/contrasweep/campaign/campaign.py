"""A campaign: one incumbent, a stream of candidates, one metric, one level for the whole stream."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import pydantic

from contrasweep.config import MutableConfig
from contrasweep.defaults import OF_STUDY, STORAGE
from contrasweep.errors import SpecError
from contrasweep.schema import checked, validate
from contrasweep.statistics.referee import Rule
from contrasweep.study.arm import Arm
from contrasweep.study.base import Above0, Folds, check_metric
from contrasweep.study.file import load_declared, to_plain, with_sets

if TYPE_CHECKING:
    from contrasweep.campaign.deciding import Decision
    from contrasweep.running.prepare import Changed

T = TypeVar("T")
Positive = Annotated[int, pydantic.Field(ge=1)]
INCUMBENT = "incumbent"
"""What the incumbent is called: as an arm, and as a candidate that `--set` changes."""


@checked
class CampaignSeeds:
    """On how many seeds a candidate is judged.

    Args:
        first: Seeds of the first look at a candidate.
        step: Seeds that are added at a time.
        most: Fresh seeds of a confirmation at most.
    """

    first: Positive = 4
    step: Positive = 4
    most: Positive = 32


@checked
class Campaign:
    """A stream of candidates, each kept or discarded against one incumbent, with the error held over the stream.

    Args:
        name: Its name in the storage: letters, digits and `._-`, at most 60.
        incumbent: The method that candidates have to beat. A candidate that is kept is the next incumbent.
        data: The dataset, or several: a candidate is then judged by the mean over them.
        metric: The reported metric by which it is judged.
        mode: Whether a larger (`max`) or a smaller (`min`) value is better.
        smallest_difference: The smallest difference of interest, in units of the metric. Needed for `equivalent`.
        alpha: The level of all decisions together.
        error: What alpha bounds: the chance of any false keep (`family`), or the share of false ones of what is kept
            (`fdr`).
        seeds: On how many seeds a candidate is judged.
        folds: Folds that every seed trains; its value is their mean. Default: the test split alone.
        size: A reported metric, such as `parameters` or `seconds`, by which a candidate is simpler where it is smaller.
            A simpler one is kept where it is not worse by `smallest_difference`.
        budget_trials: Trials of all decisions together.
        budget_hours: Hours of training of all decisions together.
        description: What the campaign is after.
        type: The kind of file: `campaign`.

    Raises:
        SpecError: A field breaks a rule.

    Example:
        >>> import contrasweep as cs
        >>> speed = cs.Campaign("speed", cs.Arm("contrastive", {"loss": "supcon"}), "digits-lt")
        >>> speed.rule().looks()
        (8, 12, 16, 20, 24, 28, 32)
    """

    name: Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)]
    incumbent: Arm
    data: str | Annotated[list[str], pydantic.Field(min_length=1)]
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    smallest_difference: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] | None = None
    alpha: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.05
    error: Literal["family", "fdr"] = "family"
    seeds: CampaignSeeds = pydantic.Field(default_factory=CampaignSeeds)
    folds: Folds | None = None
    size: str | None = None
    budget_trials: Positive | None = None
    budget_hours: Above0 | None = None
    description: str = ""
    type: Literal["campaign"] = "campaign"

    def __post_init__(self) -> None:
        check_metric(self.metric)
        if self.incumbent.space:
            raise SpecError("a campaign searches nothing", place="incumbent.space", hint="set a value in its config")
        if self.size is not None and self.smallest_difference is None:
            raise SpecError(
                "a simpler candidate may lose less than the smallest difference, which is not declared",
                place="smallest_difference",
                hint="for example smallest_difference: 0.01",
            )
        self.rule()

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets."""
        return [self.data] if isinstance(self.data, str) else self.data

    def rule(self, *, simpler: bool = False) -> Rule:
        """Return when a candidate is kept; `simpler`: it is, and need not be better."""
        seeds, margin = self.seeds, self.smallest_difference
        return Rule(self.alpha, self.error, seeds.first, seeds.step, seeds.most, margin, self.mode, simpler=simpler)

    def declared(self) -> MutableConfig:
        """Return what may not change while the campaign goes on, as plain values: all but budget and description."""
        fields = {k: v for k, v in to_plain(self).items() if not k.startswith("budget") and k != "description"}
        return fields | {"incumbent": plain_arm(self.incumbent)}

    def decide(
        self,
        candidate: Arm,
        name: str,
        *,
        storage: str = STORAGE,
        tracking: str | Sequence[str] | None = OF_STUDY,
        by: str = "",
        why: str = "",
        more: int = 0,
        changed: "Changed" = "stop",
        max_concurrent: int | None = None,
        cluster: Path | None = None,
    ) -> "Decision":
        """Train what is needed to decide on a candidate, and return the decision.

        The same call goes on after an interruption. A candidate that was decided costs nothing.

        Args:
            candidate: The candidate, with all of its settings.
            name: What it is called.
            storage: The folder or address where the ledger and the trials lie.
            tracking: As for `contrasweep.run`.
            by: Who asks: a person or an agent.
            why: Why it is tried.
            more: Fresh seeds beyond `seeds.most`, for a candidate that is undecided.
            changed: What is done with trials of other code: "stop", "rerun" or "accept".
            max_concurrent: Trials at once, at most.
            cluster: Inventory file of the hosts.

        Returns:
            The verdict with the estimate of the fresh seeds.

        Raises:
            ContrasweepError: The input is wrong, or the budget does not suffice; nothing was trained.
        """
        from contrasweep.campaign.deciding import decide

        options: dict[str, Any] = {
            "tracking": tracking,
            "changed": changed,
            "max_concurrent": max_concurrent,
            "cluster": cluster,
        }
        return decide(self, candidate, name, storage=storage, by=by, why=why, more=more, **options)


def plain_arm(arm: Arm) -> MutableConfig:
    """Return an arm as the plain values of a file, its trainable by dotted path."""
    return dict(to_plain(arm)) | {"trainable": arm.path}


def load_campaign(name: str, sets: Sequence[str] = ()) -> Campaign:
    """Return the campaign at `module:NAME` or in a YAML file, with each `path=value` of `sets` applied."""
    return load_declared(name, (Campaign,), partial(_checked, Campaign), "CAMPAIGN", sets)


def load_candidate(name: str, incumbent: Arm, sets: Sequence[str] = ()) -> Arm:
    """Return the arm at `module:NAME` or in a YAML file; `incumbent` is the incumbent of now, for `sets` to change."""
    if name == INCUMBENT:
        return _checked(Arm, with_sets(plain_arm(incumbent), sets), name)
    return load_declared(name, (Arm,), partial(_checked, Arm), "CANDIDATE", sets)


def _checked(cls: type[T], fields: MutableConfig, file: str) -> T:
    try:
        value: T = validate(cls, fields)
        return value
    except SpecError as error:
        raise error.within(file) from None
