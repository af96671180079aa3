"""Who copies whom in a population: truncation selection (Jaderberg et al. 2017, section 4.1.1 and appendix A)."""

import math
import random
from dataclasses import dataclass

from contrasweep.config import Config, MutableConfig
from contrasweep.study.space import Choice, Int, Space, nearest
from contrasweep.tuning.pruners.population import Population

FACTORS = (1.2, 0.8)
"""What a number is multiplied by where it is not drawn anew, one of them at random."""


@dataclass(frozen=True)
class Member:
    """One schedule of the population: [[step after which they hold, settings], ...], and the trials, one a fold, that
    trained it last; `value` is their mean, -inf if one failed."""

    number: int
    schedule: tuple[tuple[int, Config], ...]
    trials: tuple[str, ...] = ()
    value: float = -math.inf

    @property
    def settings(self) -> MutableConfig:
        """The settings that hold at the end of its schedule."""
        return dict(self.schedule[-1][1])


def exploited(
    members: list[Member], space: Space, population: Population, mode: str, seed: list[int]
) -> dict[int, tuple[int, MutableConfig]]:
    """By the number of each of the worst `quantile` of `members`: one of the best, drawn at random, that it is copied
    from, and the settings it goes on with. A member that failed is copied by none."""
    draw = random.Random(repr(seed))
    ranked = sorted(members, key=lambda member: member.value if mode == "max" else -member.value)
    count = min(math.ceil(len(ranked) * population.quantile), len(ranked) // 2)
    copies = {}
    for member in ranked[:count]:
        parent = draw.choice(ranked[-count:])
        settings = _explored(parent.settings, space, population.resample, draw)
        if math.isfinite(parent.value):
            copies[member.number] = parent.number, settings
    return copies


def _explored(settings: MutableConfig, space: Space, resample: float, draw: random.Random) -> MutableConfig:
    """Each setting drawn anew with the chance `resample`, or else moved: an option to the one beside it, a number by
    one of `FACTORS`."""
    for name, parameter in space.items():
        options, value = list(parameter.options) if isinstance(parameter, Choice) else [], settings[name]
        if draw.random() < resample or (options and value not in options):
            moved = draw.choice(options) if options else parameter.at(draw.random())
        elif options:
            moved = options[min(max(options.index(value) + draw.choice([-1, 1]), 0), len(options) - 1)]
        else:
            moved = value * draw.choice(FACTORS)
        settings[name] = nearest(parameter, round(moved) if isinstance(parameter, Int) else moved)
    return settings
