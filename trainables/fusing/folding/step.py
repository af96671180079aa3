"""One training step of K members: forward, losses, gradients, and the update of those that are active.

The members' losses are summed, so that each gradient is that of its own loss (a mean would divide the learning rates
by K). A member whose loss or gradient is not finite skips its step alone, as `trainables.loop.Guard` has it.

A compiled step is traced once, compiled by torch's inductor as one graph with loss and update, and kept on disk. A
program of the same network, loss, optimizer, precision, sizes, torch and source code is compiled once a node: others
wait for it and read it, which takes seconds instead of tens. Programs lie in `contrasweep` below inductor's own cache
(`TORCHINDUCTOR_CACHE_DIR`), which is as trusted as it: both hold code.
"""

import hashlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import torch
from torch import Tensor, nn
from torch.func import functional_call

from contrasweep.trainables import torch_internals
from contrasweep.trainables.checkpoint import StateDict
from contrasweep.trainables.fusing.folding.losses import FoldedTemperature, StepLoss
from contrasweep.trainables.fusing.folding.network import Folded
from contrasweep.trainables.fusing.folding.optimisers import FoldedOptimizer
from contrasweep.trainables.fusing.folding.rules import PerMember, like
from contrasweep.trainables.losses import ComposedLoss
from contrasweep.trainables.losses.negatives import count_members
from contrasweep.trainables.pytorch import Bool, Float, Int, Shaped
from contrasweep.trainables.torch_internals import Program


class FoldedAverage:
    """Moving averages of the members' weights: average = decay * average + (1 - decay) * weight after each step.

    A step that a member does not take does not count, as in `averaging.Averaged`. `put` and `take` give whole state
    dicts, with the buffers of the network as they are.
    """

    def __init__(self, network: Folded) -> None:
        self.network = network
        self.values = {name: value.detach().clone() for name, value in network.named_parameters()}
        slots = network.slots
        self.decay: Float[Tensor, " k"] = torch.zeros(slots.count, dtype=torch.float64, device=slots.active.device)

    @torch.no_grad()
    def put(self, slot: int, decay: float, state: Mapping[str, Tensor]) -> None:
        """Let a slot's average go on from a plain network's state dict."""
        self.decay[slot] = decay
        for name, value in self.values.items():
            value[slot].copy_(state[name])

    def take(self, slot: int) -> dict[str, Tensor]:
        """Return the plain state dict of a slot's average."""
        state: StateDict = self.network.take(slot)
        for name, value in self.values.items():
            state[name].copy_(value[slot])
        return state


SOURCES = (
    *(
        "contrasweep.trainables.fusing.folding",
        "contrasweep.trainables.losses",
        "contrasweep.trainables.similarities",
        "contrasweep.trainables.contrastive.temperature",
    ),
    *(
        "contrasweep.trainables.paired",
        "contrasweep.trainables.precision",
        "contrasweep.trainables.fusing.cohorts.paired_objective",
    ),
)
"""Modules of ours whose code is in a program."""


def program_of(step: Program, inputs: Sequence[Tensor], identity: Sequence[str], tree: nn.Module) -> Program:
    """Compile `step` (tensors, which it may change in place -> tensors) for tensors like `inputs`.

    `identity` and the code of the classes in `tree` say what it computes, so that a program on disk is found without
    tracing the step again.
    """
    path = torch_internals.compiler_folder() / "contrasweep" / f"{_digest(inputs, identity, tree)}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_suffix(".lock")), torch_internals.compiling():
        return _load(path) or torch_internals.compile_step(step, inputs, path)


def _load(path: Path) -> Program | None:
    """Return the program at `path`; None where there is none that this torch can read."""
    if not path.is_file():
        return None
    try:
        return torch_internals.load_step(path)
    except Exception:  # inductor's: of another version, or half deleted; a new one replaces it
        path.unlink(missing_ok=True)
        return None


def _digest(inputs: Sequence[Tensor], identity: Sequence[str], tree: nn.Module) -> str:
    of_inputs = [f"{x.dtype} {tuple(x.shape)} {x.stride()} {x.device.type}" for x in inputs]
    machine = [torch.__version__, str(torch.get_num_threads()), torch.backends.cpu.get_cpu_capability()]
    whole = hashlib.sha256("\n".join([*identity, repr(tree), *of_inputs, *machine]).encode())
    for file in sorted(_source_files(tree)):
        whole.update(Path(file).read_bytes())
    return whole.hexdigest()[:32]


def _source_files(tree: nn.Module) -> set[str]:
    names = {name for name in sys.modules if name.startswith(SOURCES)} | {type(m).__module__ for m in tree.modules()}
    files = {inspect.getsourcefile(sys.modules[name]) for name in names if not name.startswith("torch.")}
    return {file for file in files if file}


Tensors = dict[str, Tensor]


class Outcome(NamedTuple):
    """The outcome of a step for each member.

    These are its loss, the norm of its gradient before clipping, whether it took the step (an inactive slot did not),
    its embeddings, and the terms that the loss names, by default the loss alone. `negatives` counts, for each kind of
    embeddings that is compared, the negatives with a score below 0 and all of them (0 where they are not counted).
    """

    losses: PerMember
    norms: PerMember
    taken: Bool[Tensor, " k"]
    embeddings: Float[Tensor, "k n d"]
    negatives: Int[Tensor, "k c"]
    terms: Float[Tensor, "k t"]


@dataclass
class Step:
    """A step of these parts; `clip` [K] is each member's largest norm of gradients (0: any), None for none at all.

    The optimizer's parameters are the network's, and the temperature's `log_scale` after them where one is learned.
    """

    network: Folded
    loss: StepLoss
    optimizer: FoldedOptimizer
    temperature: FoldedTemperature | None = None
    average: FoldedAverage | None = None
    clip: PerMember | None = None
    counted: ComposedLoss | None = None
    """The loss of a trial alone, where its negatives are counted."""
    programs: dict[Any, tuple[Program, list[Tensor]]] = field(default_factory=dict, repr=False)
    """Compiled steps with the tensors that they read and write, by the shapes of batches."""

    def __call__(
        self,
        batch: Shaped[Tensor, "k n ..."] | Sequence[Shaped[Tensor, "k n ..."]],
        labels: Int[Tensor, "k n"],
        rows: Int[Tensor, "k n"],
    ) -> Outcome:
        """Train all active members on a batch each, which is what the network takes.

        `labels` and `rows` are those of the embeddings.
        """
        pairing = self.loss.pairing(labels, rows)
        if self.counted is not None:
            pairing = (*pairing, labels if self.counted.loss.positives == "labels" else rows)
        if self.network.engine.compiled and self.loss.can_compile(labels.shape[1]) and torch_internals.can_compile():
            return self._compiled(batch, pairing)
        return self.run(self.tensors(), batch, pairing, eager=True)

    def _compiled(self, batch: Tensor | Sequence[Tensor], pairing: tuple[Tensor, ...]) -> Outcome:
        """Take the step by its program, which is compiled for the first batch of a size."""
        single, sides = isinstance(batch, Tensor), _sides(batch)
        shapes = tuple((tuple(value.shape), value.dtype) for value in (*sides, *pairing))
        if shapes not in self.programs:
            tensors = self.tensors()
            names, values = list(tensors), [value.detach() for value in tensors.values()]

            def traced(*given: Tensor) -> tuple[Tensor, ...]:
                batch, rest = given[: len(sides)], given[len(sides) :]
                tensors = dict(zip(names, rest, strict=False))
                return tuple(self.run(tensors, batch[0] if single else batch, rest[len(names) :]))

            inputs = [*sides, *values, *pairing]
            self.programs[shapes] = program_of(traced, inputs, self.identity, self.network.tree), values
        program, values = self.programs[shapes]
        return Outcome(*program(*sides, *values, *pairing))

    @property
    def identity(self) -> list[str]:
        """Return what defines the computation, besides sizes of tensors and code of modules."""
        optimizer, parts = self.optimizer, (self.temperature, self.average, self.clip)
        kinds = [type(optimizer).__name__, str(optimizer.decayed), *(str(part is not None) for part in parts)]
        kinds.append("" if self.counted is None else f"{self.counted.similarity.name} {self.counted.loss.positives}")
        device = self.network.slots.active.device.type  # what is traced within autocast has its casts in it
        kinds.append(str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "")
        return [*self.network.description, str(self.loss.structure), *kinds]

    def tensors(self) -> Tensors:
        """Return all that a step reads and writes beside its batch, by name."""
        optimizer, slots = self.optimizer, self.network.slots
        named: Tensors = {f"network.{name}": value for name, value in self.network.tree.named_parameters()}
        named |= {f"network.{name}": value for name, value in self.network.tree.named_buffers()}
        named |= {f"loss.{name}": value for name, value in self.loss.hyperparameters.items()}
        named |= {f"scalar.{name}": value for name, value in optimizer.scalars.items()}
        for name, stacked in optimizer.states.items():
            named |= {f"state.{name}.{i}": value for i, value in enumerate(stacked)}
        named["active"] = slots.active
        if self.temperature is not None:
            named |= {"log_scale": self.temperature.log_scale, "initial": self.temperature.initial}
        if self.average is not None:
            named |= {f"average.{name}": value for name, value in self.average.values.items()}
            named["decay"] = self.average.decay
        if self.clip is not None:
            named["clip"] = self.clip
        return named

    def run(
        self, tensors: Tensors, batch: Tensor | Sequence[Tensor], pairing: tuple[Tensor, ...], *, eager: bool = False
    ) -> Outcome:
        """Take the step as a function of tensors alone, so that a compiler or a CUDA graph can capture it.

        It changes those of `tensors` in place. `eager`: they are the parts' own, and their values may decide what is
        computed.
        """
        names = self.trained
        leaves = [tensors[name] if eager else tensors[name].detach().requires_grad_() for name in names]
        given = dict(zip(names, leaves, strict=True))
        outputs = self.network(batch) if eager else self._forward({**tensors, **given}, batch)
        own = {name.removeprefix("loss."): value for name, value in tensors.items() if name.startswith("loss.")}
        scale = None if self.temperature is None else given["log_scale"].exp()
        ids, pairing = (None, pairing) if self.counted is None else (pairing[-1], pairing[:-1])
        losses, compared, terms = self.loss.judge(outputs, own, pairing, scale)
        gradients = list(torch.autograd.grad(losses.sum(), leaves, materialize_grads=True))
        with torch.no_grad():
            norms = torch.stack([torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1) for g in gradients], 1)
            norms = torch.linalg.vector_norm(norms, dim=1)
            losses, compared, terms = losses.detach(), [rows.detach() for rows in compared], terms.detach()
            taken = torch.isfinite(losses + norms) & tensors["active"]
            for rows in compared:
                taken &= torch.isfinite(rows).flatten(1).all(1)
            if self.clip is not None:
                factor = (tensors["clip"].to(norms.dtype) / (norms + 1e-6)).clamp(max=1)
                factor = torch.where(tensors["clip"] > 0, factor, 1.0)
                gradients = [g * like(factor.to(g.dtype), g) for g in gradients]
            self._update(tensors, gradients, taken, everyone=eager and bool(taken.all()))
            negatives = self._negatives(compared, ids)
        return Outcome(losses, norms, taken, compared[0], negatives, terms)

    def _negatives(self, compared: Sequence[Tensor], ids: Tensor | None) -> Int[Tensor, "k c"]:
        if self.counted is None or ids is None:
            return torch.zeros(len(compared[0]), 2 * len(compared), dtype=torch.int64, device=compared[0].device)
        return torch.cat([count_members(self.counted, rows, ids) for rows in compared], 1)

    @property
    def trained(self) -> list[str]:
        """Names of the optimizer's parameters, in its order."""
        names = [f"network.{name}" for name, value in self.network.named_parameters() if value.requires_grad]
        return names if self.temperature is None else [*names, "log_scale"]

    def _forward(self, tensors: Tensors, batch: Tensor | Sequence[Tensor]) -> Any:
        """Run the network's forward pass on other tensors than its own."""
        slots = self.network.slots
        kept, slots.active, slots.masked = slots.active, tensors["active"], True
        try:
            state = {name: value for name, value in tensors.items() if name.startswith("network.")}
            return functional_call(self.network.forward, state, (batch,))
        finally:
            slots.active, slots.masked = kept, False

    def _update(self, tensors: Tensors, gradients: list[Tensor], taken: Tensor, *, everyone: bool) -> None:
        optimizer, parameters = self.optimizer, [tensors[name] for name in self.trained]
        states = {name: [tensors[f"state.{name}.{i}"] for i in range(len(parameters))] for name in optimizer.states}
        scalars = {name: tensors[f"scalar.{name}"] for name in optimizer.scalars}
        weights, moved, counts = optimizer.moved(parameters, gradients, states, scalars)
        if self.temperature is not None:
            weights[-1] = self.temperature.clipped(weights[-1], tensors["initial"])
        pairs = [*zip(parameters, weights, strict=True)]
        for name, stacked in moved.items():
            pairs += zip(states[name], stacked, strict=True)
        pairs += [(scalars[name], value) for name, value in counts.items()]
        if self.average is not None:
            for name, weight in zip(self.trained, weights, strict=True):
                if name.startswith("network."):
                    old = tensors[f"average.{name.removeprefix('network.')}"]
                    share = like((1 - tensors["decay"]).to(old.dtype), old)
                    pairs.append((old, old + (weight - old) * share))
        for old, new in pairs:
            old.copy_(new if everyone else torch.where(like(taken, old), new, old))


def _sides(batch: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [batch] if isinstance(batch, Tensor) else list(batch)
