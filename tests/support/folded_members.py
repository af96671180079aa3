"""Trials of one architecture with numbers of their own, trained alone and as members of one folded step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from contrasweep.trainables import loop, optimisation
from contrasweep.trainables.encoders import ENCODERS, HEADS
from contrasweep.trainables.fusing.folding import FoldedLoss, Step, fold, fold_optimizer
from contrasweep.trainables.losses import AnyLoss, build

CLASSES = 3
SHAPE = (1, 8, 8)


def narrow(net: nn.Module, divisor: int) -> None:
    """Divide the channels of every convolution and batch norm in place, inputs of the first convolution excepted, so
    that a network that has no width of its own keeps its layers, strides and shortcuts at a fraction of the cost."""
    inputs = next(layer.in_channels for layer in net.modules() if isinstance(layer, nn.Conv2d))
    for parent in list(net.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Conv2d):
                sizes = [n if n == inputs else n // divisor for n in (layer.in_channels, layer.out_channels)]
                options = {"kernel_size": layer.kernel_size, "stride": layer.stride, "padding": layer.padding}
                narrower: nn.Module = nn.Conv2d(*sizes, bias=layer.bias is not None, **options)  # type: ignore[arg-type]
                setattr(parent, name, narrower)
            elif isinstance(layer, nn.BatchNorm2d):
                setattr(parent, name, nn.BatchNorm2d(layer.num_features // divisor))


def network(
    name: str, shape: tuple[int, int, int] = SHAPE, head: str = "mlp", divisor: int = 1, **options: Any
) -> Callable[[], nn.Module]:
    """What builds an encoder with its head; the encoder with its channels divided by `divisor`."""

    def built() -> nn.Module:
        encoder = ENCODERS.choose({"name": name, **options}).build(shape)
        if divisor > 1:
            narrow(encoder, divisor)
            encoder.dim //= divisor
        size = {} if head == "none" else {"dim": 6}
        model = nn.Sequential(encoder, HEADS.choose({"name": head, **size}).build(encoder.dim))
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    return built


@dataclass
class Member:
    """A trial alone: its network, loss and optimizer, with the order of its data from its own seed."""

    network: nn.Module
    loss: AnyLoss
    plain: Any
    lr: float
    options: Mapping[str, Any]
    seed: int
    clip: float = 0.0
    guard: loop.Guard = field(default_factory=loop.Guard)

    def __post_init__(self) -> None:
        self.optimizer = self.plain(self.network.parameters(), self.lr, **self.options)

    def batch(self, step: int, rows: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Two views of `rows` images, their labels and the images' numbers."""
        generator = torch.Generator().manual_seed(1000 * self.seed + step)
        images = torch.randn(rows, *shape, generator=generator, dtype=torch.float64)
        noise = torch.randn(2 * rows, *shape, generator=generator, dtype=torch.float64)
        labels = torch.randint(CLASSES, (rows,), generator=generator)
        dtype = next(self.network.parameters()).dtype
        return (images.repeat(2, 1, 1, 1) + 0.3 * noise).to(dtype), labels.repeat(2), torch.arange(rows).repeat(2)

    def train(self, steps: range, rows: int, shape: tuple[int, ...]) -> list[float]:
        """Losses of these steps, taken alone."""
        losses = []
        for step in steps:
            images, labels, ids = self.batch(step, rows, shape)

            def gradients() -> tuple[Tensor, list[Tensor], None]:
                value = self.loss(self.network(images), labels, ids)  # noqa: B023  # called at once
                losses.append(float(value.detach()))
                return value, optimisation.gradients_of(self.optimizer, value), None

            self.guard.step(self.optimizer, gradients, self.clip)
        return losses


def members(
    build_network: Callable[[], nn.Module],
    count: int,
    *,
    loss: str = "supcon",
    plain: Any = optimisation.SGD,
    options: Callable[[int], Mapping[str, Any]] = lambda k: {"weight_decay": 1e-3 * k, "momentum": 0.5 + 0.1 * k},
    numbers: Callable[[int], Mapping[str, Any]] | None = None,
    lr: float = 0.05,
    dtype: torch.dtype = torch.float64,
    **composed: Any,
) -> list[Member]:
    """`count` trials whose weights, rates, decays, momenta, orders and losses' numbers all differ."""
    collected = []
    for k in range(count):
        torch.manual_seed(k)
        network = build_network().to(dtype)
        own = {} if numbers is None else numbers(k)
        collected.append(Member(network, build(loss, **composed, **own), plain, lr * (1 + k), options(k), seed=k + 1))
    return collected


def folded_step(trials: list[Member], engine: str = "grouped", slots: int | None = None) -> Step:
    """The same trials as members of one step, in slots from 0 on."""
    first, count = trials[0], slots or len(trials)
    network = fold(first.network, count, engine)
    loss = FoldedLoss(first.loss, network.slots)
    decay_on = first.options.get("decay_on", "all")
    optimizer = fold_optimizer(first.plain, network.parameters(), network.slots, network.templates, decay_on=decay_on)
    clip = (
        torch.tensor([trial.clip for trial in trials], dtype=torch.float64)
        if any(trial.clip for trial in trials)
        else None
    )
    step = Step(network, loss, optimizer, clip=clip)
    for k, trial in enumerate(trials):
        network.put(k, trial.network.state_dict())
        loss.put(k, trial.loss)
        optimizer.put(k, trial.options, trial.optimizer.state_dict())
        optimizer.lr[k] = trial.lr
    network.slots.activate(range(len(trials)))
    return step


def train(step: Step, trials: list[Member], steps: range, rows: int, shape: tuple[int, ...]) -> list[list[float]]:
    """Losses of these steps, one list a member."""
    losses: list[list[float]] = []
    for number in steps:
        images, labels, ids = map(torch.stack, zip(*(t.batch(number, rows, shape) for t in trials), strict=True))
        losses.append(step(images, labels, ids).losses.tolist())
    return [list(values) for values in zip(*losses, strict=True)]


def furthest(step: Step, trials: list[Member]) -> float:
    """The largest difference between a member's state and the trial's alone, relative to the largest value of each
    tensor."""
    worst = 0.0
    for k, trial in enumerate(trials):
        mine = step.network.take(k)
        for name, theirs in trial.network.state_dict().items():
            scale = max(float(theirs.abs().max()), 1e-3) if theirs.numel() else 1.0
            worst = max(worst, float((mine[name] - theirs).abs().max()) / scale)
    return worst
