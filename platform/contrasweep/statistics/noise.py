"""A/A: runs of the same arm twice, which say how noisy results are, and whether anything but the seed changes them."""

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from contrasweep.errors import SpecError
from contrasweep.schema import checked, validate
from contrasweep.statistics.comparison import Comparison, judged_comparisons, p_text, span
from contrasweep.statistics.design import contrast
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family
from contrasweep.statistics.power_of_designs import detectable_effect
from contrasweep.statistics.unpaired import UnpairedContrast, unpaired_contrast
from contrasweep.storage.record import LARGEST
from contrasweep.text_table import text_table

SEEDS = (4, 8, 16)
"""Numbers of seeds for which the detectable difference is told."""
MOST_BYTES = 2**24
"""The most bytes of a file of noise that are read."""


@checked
class Noise:
    """The values of the runs of one arm, run twice.

    Args:
        source: What was run, or where the values are from.
        arms: The names of the first and of the second runs.
        metric: The name of the metric.
        first: The values of the first runs, in units of the metric.
        second: The values of the second runs.
        paired: Whether the i-th of the first runs and the i-th of the second runs have the same seed.

    Raises:
        SpecError: A side has fewer than two runs, paired sides have different numbers of runs, or a value is too large.
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
        # Nothing could be computed of a larger value, such as that of a run that diverged.
        largest = max((*self.first, *self.second), key=abs)
        if abs(largest) > LARGEST:
            raise SpecError(
                "noise is of values whose squares are numbers", place=self.metric, value=largest
            )

    @cached_property
    def differences(self) -> Any:
        """The differences first - second [seeds]; empty for runs without common seeds."""
        return np.subtract(self.first, self.second) if self.paired else np.zeros(0)

    @cached_property
    def unpaired(self) -> UnpairedContrast:
        """The difference of the means of both sets of runs, computed as if no two runs had a common seed."""
        return unpaired_contrast(np.array(self.first), np.array(self.second))

    @cached_property
    def comparison(self) -> Comparison:
        """The first runs against the second at alpha .05, paired by seed where they have common seeds."""
        evidence = Evidence(contrast(self.differences) if self.paired else self.unpaired)
        return judged_comparisons([evidence], Family(1), "max")[0]

    @property
    def failed(self) -> bool:
        """Whether the same arm differs from itself at alpha .05."""
        return self.comparison.decided

    @property
    def paired_deviation(self) -> float | None:
        """The standard deviation of the difference of two runs with the same seed, in units of the metric.

        None where all such differences are 0, or no seed is shared.
        """
        return float(self.differences.std(ddof=1)) if self.differences.any() else None

    def detectable(self, seeds: int, alpha: float = 0.05) -> tuple[float | None, float]:
        """Return the smallest difference that so many seeds decide in 80 % of comparisons, at best and at worst.

        Both are in units of the metric. At best the runs of two arms with the same seed are as alike as two runs of one
        arm; None where it is not known how alike these are. At worst such runs have nothing in common.
        """
        effect = float(detectable_effect(seeds, alpha=alpha))
        paired = self.paired_deviation
        at_best = None if paired is None else effect * paired
        return at_best, effect * self.unpaired.deviation

    def to_dict(self) -> dict[str, object]:
        """Return the values and all that is computed from them, for JSON: spreads, p, interval, detectable differences.

        `read_noise` reads a file with this document.
        """
        result = self.comparison
        detectable = []
        for seeds in SEEDS:
            at_best, at_worst = self.detectable(seeds)
            detectable.append({"seeds": seeds, "paired": at_best, "unpaired": at_worst})
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "differ_by_seed": int((self.differences != 0).sum()) if self.paired else None,
            "paired_deviation": self.paired_deviation,
            "unpaired_deviation": self.unpaired.deviation,
            "failed": self.failed,
            **{name: getattr(result, name) for name in ("p_value", "difference", "low", "high")},
            "detectable": detectable,
        }

    def to_text(self) -> str:
        """Return what the runs say, for a terminal: whether they repeat, how they spread, and what is detectable."""
        # What was run, and whether a seed gives the same value again.
        n = len(self.first)
        runs = f"{n} and {len(self.second)} runs without a common seed"
        if self.paired:
            runs = f"{n} seeds, each twice"
        arms = " and ".join(dict.fromkeys(self.arms))
        lines = [f"{arms} of {self.source}: {runs}; metric {self.metric}"]
        changed = np.abs(self.differences[self.differences != 0])
        if self.paired:
            steady = "yes: every seed gave the same value twice"
            if len(changed):
                steady = f"no: {len(changed)} of {n} seeds gave another value, by up to {changed.max():.3g}"
            lines.append(f"deterministic  {steady}")
        # How the runs spread. The variance of the difference of two independent runs is twice that of a run.
        deviation = self.unpaired.deviation
        lines.append(f"spread         {deviation / math.sqrt(2):.3g} of runs (standard deviation)")
        if len(changed):
            lines.append(
                f"               {self.paired_deviation:.3g} of the difference of two runs of a seed"
            )
        lines.append(
            f"               {deviation:.3g} of the difference of two runs of different seeds"
        )
        if deviation == 0:
            lines.append("               every run gave one value: does the method use its seed?")
        # Whether the arm differs from itself.
        comparison = self.comparison
        effect = f"{span(comparison.difference, comparison.low, comparison.high)}, p {p_text(comparison.p_value, 0.05)}"
        verdict = f"passes: the same arm does not surely differ from itself ({effect})"
        if self.failed:
            verdict = (
                f"FAILS: the same arm differs from itself ({effect}): something else than the seed changes results. "
                "Find it first; until then no comparison is to be believed"
            )
        lines.append(f"A/A            {verdict}")
        # What numbers of seeds can detect, at best and at worst.
        rows = [("seeds", "detect at best", "at worst")]
        for seeds in SEEDS:
            at_best, at_worst = self.detectable(seeds)
            rows.append(
                (str(seeds), f"{at_best:.2g}" if at_best else "not known", f"{at_worst:.2g}")
            )
        lines += [
            "",
            *text_table(rows, rule=True),
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
    # Only the values are read: what follows from them is computed again. A file of another schema is refused like any
    # other file, as no field of it is taken.
    try:
        with Path(path).open("rb") as file:
            data = json.loads(file.read(MOST_BYTES))
        names = Noise.__dataclass_fields__ if data["schema"] == "noise/1" else ()
        noise: Noise = validate(Noise, {name: data[name] for name in names})
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
