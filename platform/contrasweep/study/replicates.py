"""The number of replicates of a study, and the looks at which it may stop adding them."""

from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic

from contrasweep.errors import SpecError
from contrasweep.schema import checked

Positive = Annotated[int, pydantic.Field(ge=1)]
Above0 = Annotated[float, pydantic.Field(gt=0)]


@checked
class Replicates:
    """Replicates where they are needed, in place of a fixed number of them.

    Each cell gets `first` replicates, then those cells get `step` more in which a comparison is still open, up to
    `most`. After each step the study is looked at, and each look spends some of alpha.

    Args:
        first: Replicates of every cell before the first look.
        step: Replicates that an undecided cell gets between two looks.
        most: Replicates of a cell at the last look.
        of: What is added: `seeds` (on every fold, where there are folds), or `repeats` of the partition into folds.
        spending: How alpha is spent over the looks: hardly any early (`obrien-fleming`), or early enough to stop clear
            differences sooner (`power`).

    Raises:
        SpecError: `most` is not larger than `first`.

    Example:
        >>> import contrasweep as cs
        >>> cs.Replicates(first=3, step=2, most=9).looks
        [3, 5, 7, 9]
    """

    first: Annotated[int, pydantic.Field(ge=2)]
    step: Positive
    most: Positive
    of: Literal["seeds", "repeats"] = "seeds"
    spending: Literal["obrien-fleming", "power"] = "obrien-fleming"

    def __post_init__(self) -> None:
        if self.most <= self.first:
            raise SpecError(
                "most must be larger than first",
                place="most",
                value=self.most,
                hint=f"first is {self.first}; for a fixed number leave `replicates` out and list the seeds",
            )

    def check_seeds(self, seeds: Sequence[int], place: str) -> None:
        """Raise `SpecError` at `place` where more seeds are declared than a cell can get at its last look (`most`).

        It is also raised where the seeds of later looks, which go on from the largest one, would reach 2**63.
        """
        if len(seeds) > self.most:
            raise SpecError(
                f"a cell gets {self.most} seeds at most, as `replicates.most` says",
                place=place,
                value=list(seeds),
                hint=f"name {self.most} or fewer, which come first, or raise most",
            )

        if max(seeds) + self.most - len(seeds) >= 2**63:
            raise SpecError(
                "the seeds of later looks follow the largest, and are below 2**63",
                place=place,
                value=max(seeds),
            )

    @property
    def looks(self) -> list[int]:
        """The number of replicates at each look; the last step is shorter where `most` is no whole number of steps."""
        return [*range(self.first, self.most, self.step), self.most]

    def __str__(self) -> str:
        """Return `3 to 9 seeds, looks at 3, 5, 7, 9`; of more than eight looks the first three and the last."""
        looks = self.looks
        look_texts = list(map(str, looks))
        if len(looks) > 8:
            look_texts = [*look_texts[:3], "...", look_texts[-1]]
        return f"{self.first} to {self.most} {self.of}, looks at {', '.join(look_texts)}"


def extended(seeds: Sequence[int], count: int) -> list[int]:
    """Return the first `count` of `seeds`. Where these are too few, further seeds go on from the largest one.

    `[0, 7]` and 4 give `[0, 7, 8, 9]`.
    """
    following = max(seeds) + 1
    return [*seeds[:count], *range(following, following + max(0, count - len(seeds)))]
