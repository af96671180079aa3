"""The device that is measured, how long there is, and how steps are timed on it."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

Step = Callable[[], object]


class OutOfTime(Exception):
    """The command's time is used up; what was measured so far stands."""


@dataclass
class Context:
    """`small`: sizes that a CPU gets through in seconds, to know that the command works; its figures mean nothing."""

    device: torch.device
    small: bool
    seconds: float
    begun: float = field(default_factory=time.monotonic)

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    @property
    def left(self) -> float:
        """Seconds until the command has to end."""
        return self.seconds - (time.monotonic() - self.begun)

    def require(self, seconds: float) -> None:
        """`OutOfTime` where less than `seconds` are left."""
        if self.left < seconds:
            raise OutOfTime(f"{max(0.0, self.left):.0f} s were left")

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.cuda:
            torch.cuda.synchronize()

    def reset_peak(self) -> None:
        """Begin to count the peak of memory anew."""
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_gib(self) -> float | None:
        """The most memory that torch's allocator reserved since `reset_peak`, in GiB; None on a CPU."""
        return torch.cuda.max_memory_reserved() / 2**30 if self.cuda else None

    def seconds_each(self, step: Step, at_least_s: float = 0.3, repeats: int = 5) -> float:
        """Median seconds of a call of `step`.

        It is called in `repeats` series, which take about `at_least_s` seconds together.
        """
        return self.interleaved({"": step}, at_least_s, repeats)[""]

    def interleaved(
        self, steps: Mapping[str, Step], at_least_s: float = 0.3, repeats: int = 5
    ) -> dict[str, float]:
        """Median seconds of a call of each step, measured in turns, so that what disturbs the host disturbs all."""
        counts: dict[str, int] = {}
        for name, step in steps.items():
            for _ in range(1 if self.small else 3):
                step()
            self.synchronize()
            once = self._timed(step, 1)
            counts[name] = max(
                1,
                min(1000, round((0.01 if self.small else at_least_s) / repeats / max(once, 1e-6))),
            )
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(2 if self.small else repeats):
            for name, step in steps.items():
                times[name].append(self._timed(step, counts[name]) / counts[name])
        return {name: statistics.median(series) for name, series in times.items()}

    def _timed(self, step: Step, count: int) -> float:
        self.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            step()
        self.synchronize()
        return time.perf_counter() - began
