"""GPU memory of training, estimated without a GPU, and the calibration that learns from measured peaks.

Model: peak = a + b (saved + parameters (2 + s)), where `saved` are the tensors that autograd keeps for the
backward pass, parameters count once for the weights and once for the gradients, and s is the number of
parameter-sized states of the optimiser (Adam 2, SGD with momentum 1). a is what a process holds anyway (CUDA
context, cuDNN workspaces), b what allocation rounds up. Saved tensors are counted on fake ones, which have
shape and storage but no memory, in under a second.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from cluster.errors import ClusterError
from cluster.footprint import Footprint

if TYPE_CHECKING:
    import torch

Precision = Literal["fp32", "bf16", "fp16"]
MIB = 2**20
GIB = 2**30

PRIOR = (1.0, 1.1)
"""a in GiB and b before anything is measured. A guess from the paper's rows (2.0 GiB, 1.08) and the 0.3-0.5 GiB
that a CUDA context takes; `MARGIN_UNMEASURED` is there because it is one."""
_PRIOR_SPREAD = (2.0, 0.15)  # standard deviations of that guess
_NOISE = 0.01  # standard deviation of a measured peak, relative
MARGIN_UNMEASURED = 1.25
MARGIN = 1.1
ENOUGH = 5
"""Measured peaks of a key from which on `MARGIN` is enough."""


@dataclass(frozen=True)
class Count:
    """Bytes that training holds by the model's own account, before calibration."""

    saved: int
    parameters: int
    optimizer_states: float = 2.0

    @property
    def gib(self) -> float:
        return (self.saved + self.parameters * (2 + self.optimizer_states)) / GIB


def count(
    build_model: "Callable[[], torch.nn.Module]",
    inputs: "Sequence[int] | Callable[[], Any]",
    *,
    loss: Callable[..., Any] | None = None,
    optimizer_states: float = 2.0,
    precision: Precision = "fp32",
) -> Count:
    """Count what one training step of `build_model()` keeps, without memory and without a GPU.

    inputs: shape of the one input tensor with all images of a step ([2B c h w] where two views or the images of
    a pair go through the encoder together), or a function that builds the model's arguments, as a tuple.
    loss: what the model's output goes through, where that keeps memory worth counting. The tensors are fake:
    code that looks at their values (`.item()`, `if x > 0`) cannot be counted and raises `ClusterError`.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    half = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = build_model().train()
            arguments = inputs() if callable(inputs) else (torch.empty(tuple(inputs)),)
            parameters = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
            autocast = torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None)
            with _saved_storages(model) as saved, autocast:
                output = model(*arguments)
                if loss is not None:
                    output = loss(output)
            return Count(sum(saved.values()), parameters, optimizer_states)
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        raise ClusterError(
            f"the model's memory cannot be counted without running it ({type(error).__name__}: {line})"
        ) from error


@contextlib.contextmanager
def _saved_storages(model: "torch.nn.Module") -> "Iterator[dict[int, int]]":
    """Size in bytes of each storage that autograd keeps while this is open, by identity: a tensor kept twice or
    kept as a view counts once, and the model's own weights and buffers not at all."""
    import torch

    own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    sizes: dict[int, int] = {}
    alive = []  # a storage that is freed could hand its identity to the next

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            sizes[storage._cdata] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield sizes


@dataclass
class Calibration:
    """What was measured, and the a and b that follow from it. Kept in the storage as JSON (`to_json`).

    A key names what shares a and b: a type of GPU and a trainable or architecture, `H100/resnet50-fp32`.
    For each key, the highest peak of each count is kept, so that many measurements of one cell stay one line.
    """

    peaks: dict[str, dict[float, tuple[float, int]]] = field(default_factory=dict)
    """key -> count in GiB -> (highest peak in GiB, times measured)"""
    overflows: dict[str, dict[float, float]] = field(default_factory=dict)
    """key -> count in GiB -> GiB in which it ran out of memory"""

    def observe(self, key: str, counted_gib: float, peak_gib: float) -> None:
        """A trial whose count was `counted_gib` was measured at `peak_gib`."""
        rows = self.peaks.setdefault(key, {})
        highest, times = rows.get(_rounded(counted_gib), (0.0, 0))
        rows[_rounded(counted_gib)] = (max(highest, peak_gib), times + 1)

    def observe_out_of_memory(self, key: str, counted_gib: float, limit_gib: float) -> None:
        """A trial whose count was `counted_gib` did not fit into `limit_gib`."""
        rows = self.overflows.setdefault(key, {})
        rows[_rounded(counted_gib)] = max(rows.get(_rounded(counted_gib), 0.0), limit_gib)

    def constants(self, key: str) -> tuple[float, float]:
        """a in GiB, b. A key begins with what all the others say, and that with `PRIOR`."""
        others = [row for other, rows in sorted(self.peaks.items()) if other != key for row in rows.items()]
        start = _fit([(counted, peak) for counted, (peak, _) in others], PRIOR)
        return _fit([(counted, peak) for counted, (peak, _) in self.peaks.get(key, {}).items()], start)

    def predict(self, key: str, counted_gib: float) -> float:
        """Peak in GiB, without margin. Never less than what the same count was seen to take or to overflow."""
        a, b = self.constants(key)
        seen, _ = self.peaks.get(key, {}).get(_rounded(counted_gib), (0.0, 0))
        over = self.overflows.get(key, {}).get(_rounded(counted_gib), 0.0)
        return max(a + b * counted_gib, seen, over * MARGIN)

    def margin(self, key: str) -> float:
        measured = sum(times for _, times in self.peaks.get(key, {}).values())
        return MARGIN if measured >= ENOUGH else MARGIN_UNMEASURED

    def merged(self, other: "Calibration") -> "Calibration":
        """Both together, as when two drivers have learned apart: of one cell the higher peak counts."""
        both = Calibration()
        for one in (self, other):
            for key, rows in one.peaks.items():
                mine = both.peaks.setdefault(key, {})
                for counted, (peak, times) in rows.items():
                    before = mine.get(counted, (0.0, 0))
                    mine[counted] = (max(peak, before[0]), max(times, before[1]))
            for key, limits in one.overflows.items():
                for counted, limit in limits.items():
                    both.observe_out_of_memory(key, counted, limit)
        return both

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": 1,
                "peaks": [
                    [k, c, p, n]
                    for k, rows in sorted(self.peaks.items())
                    for c, (p, n) in sorted(rows.items())
                ],
                "overflows": [
                    [k, c, g] for k, rows in sorted(self.overflows.items()) for c, g in sorted(rows.items())
                ],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "Calibration":
        """What `to_json` wrote; `ClusterError` if it is something else."""
        made = cls()
        try:
            content = json.loads(text)
            if content["version"] != 1:
                raise ValueError(f"version {content['version']}")
            for key, counted, peak, times in content["peaks"]:
                made.peaks.setdefault(str(key), {})[float(counted)] = (float(peak), int(times))
            for key, counted, limit in content["overflows"]:
                made.overflows.setdefault(str(key), {})[float(counted)] = float(limit)
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(
                f"the memory calibration in the storage cannot be read ({error}); delete it to start anew"
            ) from None
        return made


def estimate(
    build_model: "Callable[[], torch.nn.Module]",
    inputs: "Sequence[int] | Callable[[], Any]",
    *,
    loss: Callable[..., Any] | None = None,
    optimizer_states: float = 2.0,
    precision: Precision = "fp32",
    calibration: Calibration | None = None,
    key: str = "",
    host_memory_gib: float = 2.0,
    cpus: float = 1.0,
) -> Footprint:
    """Footprint of training on a GPU; the first arguments are those of `count`."""
    counted = count(build_model, inputs, loss=loss, optimizer_states=optimizer_states, precision=precision)
    learned = calibration or Calibration()
    return Footprint(
        gpu_memory_gib=learned.predict(key, counted.gib),
        margin=learned.margin(key),
        host_memory_gib=host_memory_gib,
        cpus=cpus,
    )


def _rounded(counted_gib: float) -> float:
    return round(counted_gib, 4)


def _fit(rows: list[tuple[float, float]], start: tuple[float, float]) -> tuple[float, float]:
    """a and b of peak = a + b count: least squares of the relative errors, drawn to `start` by its spread (the
    mean of the posterior of a linear model with normal prior)."""
    if not rows:
        return start
    import numpy as np

    counted, peak = np.array(rows, dtype=float).T
    weight = 1 / (_NOISE * np.maximum(peak, 1e-3)) ** 2
    design = np.stack([np.ones_like(counted), counted], axis=1)
    certainty = np.diag(1 / np.square(_PRIOR_SPREAD))
    solved = np.linalg.solve(
        design.T @ (weight[:, None] * design) + certainty, design.T @ (weight * peak) + certainty @ start
    )
    return float(solved[0]), float(solved[1])
