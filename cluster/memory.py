"""GPU memory and work of training, counted without a GPU; `cluster.calibration` makes peaks of the counts of memory,
`contrasweep.cluster.work` seconds of those of work.

Counted are the tensors that autograd keeps for the backward pass, the parameters once for the weights, once for the
gradients and once for each parameter-sized state of the optimiser (Adam 2, SGD with momentum 1), and what lies on
the device anyway, such as the data. Saved tensors are counted on fake ones, which have shape and storage but no
memory, in under a second.
"""

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.torch_internals import fake_tensors, storage_key
from contrasweep.cluster.work import NO_WORK, Work, counted_work

if TYPE_CHECKING:
    import torch

Precision = Literal["fp32", "bf16", "fp16"]
Inputs = Sequence[int] | Callable[[], tuple[Any, ...]]
GIB = 2**30


@dataclass(frozen=True)
class Count:
    """Bytes that training holds by the model's own account, before calibration, and the `work` of a step."""

    saved: int
    parameters: int
    optimizer_states: float = 2.0
    resident: int = 0
    work: Work = NO_WORK

    @property
    def gib(self) -> float:
        """All of it in GiB."""
        return (self.saved + self.parameters * (2 + self.optimizer_states) + self.resident) / GIB


@dataclass(frozen=True)
class Workload:
    """What a trainable says of one trial, so that its memory can be estimated before it runs.

    `architecture` names what shares calibration constants, `resnet50 bf16`; `shape` is all that the count depends on
    beside it (batch, image size, head, ...), so that equal ones are counted once. `build`, `inputs`, `loss`,
    `optimizer_states` and `precision` are those of `count`. `resident_bytes` lie on the device for the whole trial
    (its data, views drawn ahead). `device`: `auto` takes a GPU where there is one, `cpu` never does, and any other
    needs one. `cpus` are the host cores that the trial keeps busy. A model that looks at its inputs' values is counted
    on real tensors (`fake` False), and then best on a small part of a batch, of which the whole one has `parts`.
    `step` is what `build` and `inputs` would be counted to, where that is known already.
    `gpus` whole GPUs each hold all of this. `steps` such steps are a whole trial (0: not known); what is evaluated,
    read and drawn comes on top of them.
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
        """`count` of one training step, with what is resident."""
        step = self.step or count(self.build, self.inputs, loss=self.loss, precision=self.precision, fake=self.fake)
        return Count(
            int(step.saved * self.parts) * self.gpus,
            step.parameters * self.gpus,
            self.optimizer_states,
            self.resident_bytes * self.gpus,
            step.work.times(self.parts),
        )


def count(
    build_model: "Callable[[], torch.nn.Module]",
    inputs: Inputs,
    *,
    loss: Callable[..., Any] | None = None,
    optimizer_states: float = 2.0,
    precision: Precision = "fp32",
    fake: bool = True,
) -> Count:
    """Count what one training step of `build_model()` keeps, without a GPU, and unless `fake` is off without memory.

    inputs: shape of the one input tensor with all images of a step ([2B c h w] where two views or the images of
    a pair go through the encoder together), or a function that builds the model's arguments, as a tuple.
    loss: what the model's output goes through, where that keeps memory worth counting. The tensors are fake:
    code that looks at their values (`.item()`, `if x > 0`) cannot be counted and raises `ClusterError`.
    """
    import torch

    half = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    try:
        with fake_tensors() if fake else contextlib.nullcontext():
            model = build_model().train()
            arguments = inputs() if callable(inputs) else (torch.empty(tuple(inputs)),)
            parameters = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
            autocast = torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None)
            with _saved_storages(model) as saved, autocast, counted_work() as work:
                output = model(*arguments)
                if loss is not None:
                    output = loss(output)
            return Count(sum(saved.values()), parameters, optimizer_states, work=work())
    except ClusterError:
        raise
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

    own = {storage_key(t.untyped_storage()) for t in (*model.parameters(), *model.buffers())}
    sizes: dict[int, int] = {}
    alive = []  # a storage that is freed could hand its identity to the next

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if (key := storage_key(storage)) not in own:
            sizes[key] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield sizes
