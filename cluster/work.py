"""The work of a training step, counted without a GPU, and how long a GPU takes for it at least, about.

A step takes as long as its operations at the GPU's peak and its bytes at the peak of its memory, one after the other,
or as the launches of its kernels where these take longer, which they do in small networks at small batches (the
roofline model of Williams, Waterman and Patterson 2009, and what PyTorch needs from Python). The backward pass does
what the forward pass does twice over. Beside the training of ResNet-50 that NVIDIA publishes (DeepLearningExamples,
224 px, one GPU: 367 and 938 images a second in float32 on a V100 and an A100, 1200 and 2470 in half precision), what is
counted here is .6 to 1.05 of the time.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from contrasweep.cluster.inventory.hosts import GPU_PEAKS
from contrasweep.cluster.torch_internals import dispatch_mode, overloads, tree_iter

LAUNCH_S = 20e-6
"""Of one kernel, the mean over a step. The forward pass of ResNet-50 with one image, 227 kernels, takes 10 to 13 ms on
a V100 and a T4 (the same source), twice as long for each; the backward pass does not come from Python."""
PASSES = 3
"""Forward passes that a step amounts to: itself, and the gradients of inputs and of weights."""


@dataclass(frozen=True)
class Work:
    """Of a training step: operations (a multiplication and an addition are two), bytes read and written, kernels."""

    operations: float = 0.0
    moved: float = 0.0
    kernels: float = 0.0

    def times(self, parts: float) -> "Work":
        """A step of so many times the examples, in the same kernels."""
        return Work(self.operations * parts, self.moved * parts, self.kernels)

    def seconds(self, gpu: str, half: bool) -> float | None:
        """Seconds that a step takes on this type of GPU, in half precision or not; None for a type whose peak is not
        known, and where nothing was counted."""
        peak = GPU_PEAKS.get(gpu)
        if peak is None or not self.kernels:
            return None
        reads = self.operations / (1e12 * (peak.half if half else peak.fp32)) + self.moved / (1e9 * peak.gb_per_s)
        return max(reads, self.kernels * LAUNCH_S)


NO_WORK = Work()


@contextlib.contextmanager
def counted_work() -> Iterator[Callable[[], Work]]:
    """Counts what runs while this is open as the forward pass of a step; the function that it gives tells the step's
    work. Tensors may be fake."""
    import torch
    from torch.utils.flop_counter import flop_registry

    class Counting(dispatch_mode()):  # type: ignore[misc]
        operations = moved = kernels = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            read = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
            if read and not func.is_view and func.namespace != "prim":  # which asks for the device
                self.kernels += 1
                written = (x for x in tree_iter(result) if isinstance(x, torch.Tensor))
                self.moved += sum(x.numel() * x.element_size() for x in (*read, *written))
                if (operations := flop_registry.get(overloads(func))) is not None:
                    self.operations += operations(*args, **(kwargs or {}), out_val=result)
            return result

    with Counting() as counting:
        yield lambda: Work(*(float(PASSES * n) for n in (counting.operations, counting.moved, counting.kernels)))
