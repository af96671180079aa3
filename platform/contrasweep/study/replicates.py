"""How many replicates a study has, and when it looks at them."""

from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic

from contrasweep.errors import SpecError
from contrasweep.schema import checked

Count = Annotated[int, pydantic.Field(ge=1)]


@checked
class Replicates:
    """Replicates where they are needed: `first` of each cell, then `step` more of those cells that a comparison is
    still open in, up to `most`. After each step the study is looked at, and each look spends some of alpha."""

    first: Annotated[int, pydantic.Field(ge=2)]
    """Replicates of every cell before the first look."""
    step: Count
    """Replicates that an undecided cell gets between two looks."""
    most: Count
    """Replicates of a cell at the last look."""
    of: Literal["seeds", "repeats"] = "seeds"
    """What is added: seeds (on every fold, where there are folds), or repeats of the partition into folds."""
    spending: Literal["obrien-fleming", "power"] = "obrien-fleming"
    """How alpha is spent over the looks: hardly any early, or early enough to stop clear differences sooner."""

    def __post_init__(self) -> None:
        if self.most <= self.first:
            raise SpecError(
                "most must be larger than first",
                place="most",
                value=self.most,
                hint=f"first is {self.first}; for a fixed number leave `replicates` out and list the seeds",
            )

    def check_seeds(self, seeds: Sequence[int], place: str) -> None:
        """Refuse seeds that no cell would ever get."""
        if len(seeds) > self.most:
            raise SpecError(
                f"a cell gets {self.most} seeds at most, as `replicates.most` says",
                place=place,
                value=list(seeds),
                hint=f"name {self.most} or fewer, which come first, or raise most",
            )

    @property
    def looks(self) -> list[int]:
        """The number of replicates at each look."""
        return [*range(self.first, self.most, self.step), self.most]

    def __str__(self) -> str:
        looks = self.looks
        shown = [*map(str, looks)] if len(looks) <= 8 else [*map(str, looks[:3]), "...", str(looks[-1])]
        return f"{self.first} to {self.most} {self.of}, looks at {', '.join(shown)}"


def extended(seeds: Sequence[int], count: int) -> list[int]:
    """The first `count` of `seeds`, which go on upwards from the largest of them."""
    following = max(seeds) + 1
    return [*seeds[:count], *range(following, following + max(0, count - len(seeds)))]
