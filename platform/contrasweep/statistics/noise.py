"""A/A: runs of the same arm twice, which say how noisy results are, and whether anything but the seed changes them."""

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from contrasweep.errors import SpecError
from contrasweep.schema import checked, validate
from contrasweep.statistics.comparison import Comparison, judged, p_text, span
from contrasweep.statistics.design import contrast
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family
from contrasweep.statistics.power_of_designs import detectable_effect
from contrasweep.statistics.unpaired import UnpairedContrast, unpaired_contrast
from contrasweep.text_table import text_table

SEEDS = (4, 8, 16)
"""Of so many seeds it is said what they can detect."""
MOST_BYTES = 2**24
"""No more of a file of noise is read."""


@checked
class Noise:
    """The values of the runs of one arm, run twice.

    Args:
        source: What was run, or where the values are from.
        arms: What the first and the second runs are called.
        metric: The name of the metric.
        first: The values of the first runs, in units of the metric.
        second: Those of the second.
        paired: Whether runs at the same place of both have the same seed.

    Raises:
        SpecError: A side has less than two runs, or they are no pairs.
    """

    source: str
    arms: tuple[str, str]
    metric: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    paired: bool = True

    def __post_init__(self) -> None:
        least = min(len(self.first), len(self.second))
        if least < 2 or (self.paired and len(self.first) != len(self.second)):
            hint = "two seeds or more that both have"
            raise SpecError(
                "noise is of two runs or more of an arm, twice", value=f"{least} runs", hint=hint
            )

    @cached_property
    def differences(self) -> Any:
        """The paired differences [seeds]; none without common seeds."""
        return np.subtract(self.first, self.second) if self.paired else np.zeros(0)

    @cached_property
    def unpaired(self) -> UnpairedContrast:
        """The difference of the means of both sets of runs, as if no two of them had a seed in common."""
        return unpaired_contrast(np.array(self.first), np.array(self.second))

    @cached_property
    def comparison(self) -> Comparison:
        """The first runs against the second, at .05; paired by seed where they are."""
        return judged(
            [Evidence(contrast(self.differences) if self.paired else self.unpaired)],
            Family(1),
            "max",
        )[0]

    @property
    def failed(self) -> bool:
        """Whether the same arm differs surely from itself."""
        return self.comparison.decided

    @property
    def alike(self) -> float | None:
        """The standard deviation of the difference of two runs with one seed.

        None where all such differences are 0, or no seed is shared.
        """
        return float(self.differences.std(ddof=1)) if self.differences.any() else None

    def detectable(self, seeds: int, alpha: float = 0.05) -> tuple[float | None, float]:
        """Return the difference that so many seeds decide in 80 % of comparisons of two arms, at best and at worst.

        At best the runs of both arms at a seed are as alike as two runs of one arm (None: how alike these are is not
        known), at worst they have nothing in common. In units of the metric.
        """
        effect = float(detectable_effect(seeds, alpha=alpha))
        return self.alike and effect * self.alike, effect * self.unpaired.deviation

    def to_dict(self) -> dict[str, object]:
        """Return the values and what follows from them, for programs; `read_noise` reads it."""
        result = self.comparison
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "differ_by_seed": int((self.differences != 0).sum()) if self.paired else None,
            "paired_deviation": self.alike,
            "unpaired_deviation": self.unpaired.deviation,
            "failed": self.failed,
            **{name: getattr(result, name) for name in ("p_value", "difference", "low", "high")},
            "detectable": [
                dict(zip(("seeds", "paired", "unpaired"), (n, *self.detectable(n)), strict=True))
                for n in SEEDS
            ],
        }

    def to_text(self) -> str:
        """Return what the runs say, for a terminal: whether they repeat, how they spread, and what is detectable."""
        # What was run, whether a seed gives the same value again, and whether the arm differs from itself.
        comparison = self.comparison
        differ = np.abs(self.differences[self.differences != 0])
        n = len(self.first)
        of = (
            f"{n} seeds, each twice"
            if self.paired
            else f"{n} and {len(self.second)} runs without a common seed"
        )
        steady = (
            f"no: {len(differ)} of {n} seeds gave another value, by up to {differ.max():.3g}"
            if len(differ)
            else "yes: every seed gave the same value twice"
        )
        effect = f"{span(comparison.difference, comparison.low, comparison.high)}, p {p_text(comparison.p_value, 0.05)}"
        verdict = (
            f"FAILS: the same arm differs from itself ({effect}): something else than the seed changes results. "
            "Find it first; until then no comparison is to be believed"
            if self.failed
            else f"passes: the same arm does not surely differ from itself ({effect})"
        )
        # What so many seeds can detect, at best and at worst.
        rows = [(n, *self.detectable(n)) for n in SEEDS]
        lines = [
            f"{' and '.join(dict.fromkeys(self.arms))} of {self.source}: {of}; metric {self.metric}",
            *([f"deterministic  {steady}"] if self.paired else []),
            f"spread         {self.unpaired.deviation / math.sqrt(2):.3g} of runs (standard deviation)",
            *(
                [f"               {self.alike:.3g} of the difference of two runs of a seed"]
                if len(differ)
                else []
            ),
            f"               {self.unpaired.deviation:.3g} of the difference of two runs of different seeds",
            f"A/A            {verdict}",
            "",
            *text_table(
                [
                    ("seeds", "detect at best", "at worst"),
                    *((str(n), f"{a:.2g}" if a else "not known", f"{b:.2g}") for n, a, b in rows),
                ],
                rule=True,
            ),
            "",
            "A difference as large is decided with a chance of 80 %. At best: runs of two arms at a seed are as alike "
            "as two runs of one. At worst: they have nothing in common.",
        ]
        return "\n".join(lines)


def read_noise(path: str | Path, metric: str) -> Noise:
    """Return the noise of a metric from the file that `contrasweep noise --json --output PATH` wrote.

    Raises:
        SpecError: For any other file or metric, and where the same arm differs surely from itself.
    """
    # The numbers that follow from the values are not read: they are computed again. A file of another schema lacks all
    # fields, and is refused like any other file.
    try:
        with Path(path).open("rb") as file:
            data = json.loads(file.read(MOST_BYTES))
        fields = {
            name: data[name] for name in Noise.__dataclass_fields__ if data["schema"] == "noise/1"
        }
        noise: Noise = validate(Noise, fields)
    except OSError as error:
        raise SpecError(
            "the file of noise cannot be read", place=str(path), value=error.strerror
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError, SpecError):
        hint = "contrasweep noise SOURCE --json --output FILE writes it"
        raise SpecError("this is no file of noise", place=str(path), hint=hint) from None
    if noise.metric != metric:
        raise SpecError(
            "the noise is of another metric",
            place=str(path),
            value=noise.metric,
            hint=f"not {metric}",
        )
    if noise.failed:
        rule = (
            "the same arm, run twice, differs surely from itself, so nothing is judged by this code"
        )
        hint = "find what else than the seed changes results, and run `contrasweep noise` again"
        raise SpecError(rule, place=str(path), value=noise.comparison.difference, hint=hint)
    return noise
