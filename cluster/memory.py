"""GPU memory and work of training, counted without a GPU; `planning.learned` makes peaks of the counts of memory.

Memory has three parts. The first are the tensors that autograd keeps for the backward pass. The second are the
parameters: once for the weights, once for the gradients, once for each parameter-sized state of the optimiser (Adam 2,
SGD with momentum 1). The third is what lies on the device anyway, such as the data. Saved tensors are counted on fake
ones, which have shape and storage but no memory, in under a second.

Work: a step takes the time of its operations at `UTILISATION` of the GPU's peak, plus that of its bytes at the peak of
its memory (the roofline model of Williams, Waterman and Patterson 2009). Where the launches of its kernels take longer,
it takes that time: so it is in small networks at small batches, because of what PyTorch needs from Python. The backward
pass does the work of two forward passes. A trial on a share of a GPU has that share of both peaks.

NVIDIA publishes how fast ResNet-50 trains (DeepLearningExamples, 224 px, one GPU): 367 and 938 images a second in
float32 on a V100 and an A100, 1200 and 2470 in half precision. The time that is counted here is .97 to 1.54 of that.
Steps of models of reviews, which have LSTMs, were timed on a CPU alone (benchmarks/results/review_hours.md).
"""

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.inventory import GPU_MODELS
from contrasweep.cluster.torch_internals import (
    dispatch_mode,
    fake_tensors,
    overloads,
    storage_key,
    tree_iter,
)

if TYPE_CHECKING:
    import torch


LAUNCH_S = 40e-6
"""Seconds that the launch of one counted kernel takes on the host."""
TURN_S = 15e-6
"""Seconds that one counted kernel takes on a GPU on which processes take turns.

One process that trains ResNet-18 on an H100, 32 images of 32 px a step and 267 kernels counted, takes 11.4 ms a step
with loss and optimizer; 4 and 8 processes together do a step in 4.3 and 4.0 ms (benchmarks/results/gpu.md)."""
UTILISATION = 0.3
"""The fraction of a GPU's peak of operations that training of convolutions reaches on tensor cores."""
PLAIN_UTILISATION = 0.6
"""The same fraction without tensor cores."""
PASSES = 3
"""Forward passes that a training step costs: the pass itself, the gradients of inputs, those of weights."""


@dataclass(frozen=True)
class Work:
    """The work of a training step: operations (a multiplication and an addition are two), bytes moved, kernels."""

    operations: float = 0.0
    moved: float = 0.0
    kernels: float = 0.0

    def times(self, parts: float) -> "Work":
        """Return the work of a step on `parts` times as many examples: more operations and bytes, the same kernels."""
        return Work(self.operations * parts, self.moved * parts, self.kernels)

    def seconds(self, gpu: str, in_half: bool, share: float = 1.0) -> float | None:
        """Return the seconds that a step takes on a `share` of this type of GPU, in half precision or not.

        It is the longest of three times; see this module's docstring. The first is that of operations and bytes. The
        second is `TURN_S` for each kernel: kernels of several processes run one after the other, however small they
        are. Both are divided by the share, at most 1. The third is `LAUNCH_S` for each kernel, whatever the share,
        because the host launches them. None for a type whose peak is not known, and where nothing was counted.
        """
        peak = GPU_MODELS.get(gpu)
        if peak is None or not self.kernels:
            return None
        # A V100 and a T4 have no tensor cores for float32: their peak is less than a quarter of that in half precision.
        on_tensor_cores = in_half or 4 * peak.fp32 >= peak.half
        utilisation = UTILISATION if on_tensor_cores else PLAIN_UTILISATION
        operations_per_s = 1e12 * utilisation * (peak.half if in_half else peak.fp32)
        compute_s = self.operations / operations_per_s + self.moved / (1e9 * peak.gb_per_s)
        gpu_s = max(compute_s, self.kernels * TURN_S) / min(1.0, share)
        return max(gpu_s, self.kernels * LAUNCH_S)


NO_WORK = Work()


@contextlib.contextmanager
def counted_work() -> Iterator[Callable[[], Work]]:
    """Count the operations, bytes and kernels of the forward pass that runs in this `with` block. Tensors may be fake.

    Yields a function that returns the `Work` of a whole training step, which is `PASSES` times that of the forward
    pass.
    """
    import torch
    from torch.utils.flop_counter import flop_registry

    class Counting(dispatch_mode()):  # type: ignore[misc]
        operations = moved = kernels = 0  # moved: bytes

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            """Run an operation; count it unless it makes a view, reads no tensor or asks for the device (prim)."""
            result = func(*args, **(kwargs or {}))
            read = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
            if read and not func.is_view and func.namespace != "prim":
                self.kernels += 1
                written = (x for x in tree_iter(result) if isinstance(x, torch.Tensor))
                self.moved += sum(x.numel() * x.element_size() for x in (*read, *written))
                if (operations := flop_registry.get(overloads(func))) is not None:
                    self.operations += operations(*args, **(kwargs or {}), out_val=result)
                # A layer of an LSTM, which the registry lacks: each word of each row is multiplied by the weights of
                # the input (args[1]) and of the state (args[2]).
                elif func.name().startswith("aten::mkldnn_rnn_layer"):
                    words, rows = args[0].shape[:2]
                    self.operations += 2 * words * rows * (args[1].numel() + args[2].numel())
            return result

    with Counting() as counting:
        yield lambda: Work(
            float(PASSES * counting.operations),
            float(PASSES * counting.moved),
            float(PASSES * counting.kernels),
        )


Precision = Literal["fp32", "bf16", "fp16"]
Inputs = Sequence[int] | Callable[[], tuple[Any, ...]]
GIB = 2**30


@dataclass(frozen=True)
class Count:
    """The bytes that training holds, as the structure of the model tells, and the `work` of a step.

    The peaks of measured trials correct them later (calibration, see `planning.learned`).

    `saved` are the bytes kept for the backward pass, `parameters` those of the weights, `resident` those that lie on
    the device anyway. `optimizer_states` counts the optimiser's states, each as large as the parameters.
    """

    saved: int
    parameters: int
    optimizer_states: float = 2.0
    resident: int = 0
    work: Work = NO_WORK

    @property
    def gib(self) -> float:
        """Sum of the bytes, in GiB: parameters count as weights, as gradients and as states of the optimiser."""
        return (self.saved + self.parameters * (2 + self.optimizer_states) + self.resident) / GIB


@dataclass(frozen=True)
class Workload:
    """A trainable's description of one trial, from which the trial's memory is estimated before it runs.

    Attributes:
        architecture: A name for all trials with the same calibration constants, for example `resnet50 bf16`.
        shape: All else that the count depends on (batch, image size, head); trials of equal shape are counted once.
        build, inputs, loss, precision: The arguments of `count`.
        optimizer_states: How many values the optimiser keeps for each parameter.
        resident_bytes: What lies on the device during the whole trial: its data, views drawn in advance.
        device: `auto` takes a GPU where there is one, `cpu` never takes one, any other name needs one.
        cpus: Host cores that the trial keeps busy.
        fake: Count without values. A model that looks at its inputs' values needs False, and real tensors.
        parts: How many times larger a batch is than the counted one, which may be small where `fake` is False.
        gpus: Whole GPUs, each of which holds all of this.
        steps: Training steps of the whole trial, without evaluation; 0 if not known.
        step: The result of the count, where it is known already.
    """

    architecture: str
    shape: Hashable
    build: "Callable[[], torch.nn.Module]"
    inputs: Inputs
    loss: Callable[..., Any] | None = None
    optimizer_states: float = 2.0
    precision: Precision = "fp32"
    resident_bytes: int = 0
    device: str = "auto"
    cpus: float = 1.0
    fake: bool = True
    parts: float = 1.0
    gpus: int = 1
    steps: float = 0.0
    step: Count | None = None

    def count(self) -> Count:
        """Return the count of one training step on all `gpus`, for the whole batch, with the resident bytes.

        `ClusterError` where the model cannot be counted.
        """
        step = self.step or count(
            self.build, self.inputs, loss=self.loss, precision=self.precision, fake=self.fake
        )
        # Each GPU holds a whole model, so bytes are multiplied. All work at the same time, so the work is not.
        return Count(
            saved=int(step.saved * self.parts) * self.gpus,
            parameters=step.parameters * self.gpus,
            optimizer_states=self.optimizer_states,
            resident=self.resident_bytes * self.gpus,
            work=step.work.times(self.parts),
        )


def count(
    build_model: "Callable[[], torch.nn.Module]",
    inputs: Inputs,
    *,
    loss: Callable[..., Any] | None = None,
    precision: Precision = "fp32",
    fake: bool = True,
) -> Count:
    """Count what one training step of `build_model()` keeps; this needs no GPU, and with `fake` no memory either.

    Args:
        build_model: Makes the model.
        inputs: The shape of the one input tensor with all images of a step: (2 B, c, h, w) for B examples of which two
            images each go through the encoder together. Or a function that returns the model's arguments, as a tuple.
        loss: A function of the model's output that is counted too, if it keeps tensors for its gradient; None: none.
        precision: The precision of autocast.
        fake: Whether tensors have no values.

    Raises:
        ClusterError: The model fails; with fake tensors, so does code that looks at values (`.item()`, `if x > 0`).
    """
    import torch

    autocast_dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    try:
        with fake_tensors() if fake else contextlib.nullcontext():
            model = build_model().train()
            arguments = inputs() if callable(inputs) else (torch.empty(tuple(inputs)),)
            # Frozen weights have neither gradients nor states, and are not counted.
            parameters = sum(
                weight.numel() * weight.element_size()
                for weight in model.parameters()
                if weight.requires_grad
            )
            # In full precision autocast is off, and its type does not matter.
            autocast = torch.autocast(
                "cpu",
                dtype=autocast_dtype or torch.bfloat16,
                enabled=autocast_dtype is not None,
            )
            with _saved_storages(model) as saved, autocast, counted_work() as work:
                output = model(*arguments)
                if loss is not None:
                    output = loss(output)
            return Count(sum(saved.values()), parameters, work=work())
    except ClusterError:
        raise
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        raise ClusterError(
            f"the model's memory cannot be counted without running it ({type(error).__name__}: {line})"
        ) from error


@contextlib.contextmanager
def _saved_storages(model: "torch.nn.Module") -> "Iterator[dict[int, int]]":
    """Yield storage key -> bytes, of each storage of a tensor that autograd keeps within the `with` block.

    A tensor that is kept twice or as a view counts once, and the model's own weights and buffers not at all. The
    mapping is filled as the forward pass runs.
    """
    import torch

    kept_anyway = {
        storage_key(tensor.untyped_storage()) for tensor in (*model.parameters(), *model.buffers())
    }
    sizes: dict[int, int] = {}
    alive = []  # a storage that is freed could hand its identity to the next

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        """Note a tensor that autograd saves, and let it be saved as it is."""
        storage = tensor.untyped_storage()
        if (key := storage_key(storage)) not in kept_anyway:
            sizes[key] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield sizes
