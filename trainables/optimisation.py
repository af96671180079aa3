"""Optimizers and the learning rate's schedule.

The optimizers are our own and not torch.optim's. The first `torch.optim.SGD` of a process imports 97 modules of
torch._dynamo. That takes as long as importing torch itself, and some 100 MB: more than a whole small trial. Updates are
those of torch.optim, which the tests compare.

Optimizers of torch.optim go by their names (`optimizer: {name: RMSprop, alpha: .9}`), those of other packages by dotted
path: a class that is built as `Class(parameter groups, lr=..., **options)` and has `step`, `state_dict`,
`load_state_dict` and `param_groups`, as torch's have.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

from contrasweep import canonical
from contrasweep.cluster.memory import Precision
from contrasweep.components import (
    Component,
    External,
    Table,
    parameters_class,
    signature_fields,
)
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_path
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.trainables.checkpoint import StateDict
from contrasweep.trainables.fields import BelowOne, NotNegative, Positive
from contrasweep.trainables.pytorch import Tensor, nn, torch, torch_internals

DecayOn = Literal["all", "weights"]
"""What is decayed: all parameters, or those of two dimensions and more, without biases and normalisation."""
UNSUPPORTED = ("LBFGS", "SparseAdam", "Optimizer")
"""Classes of torch.optim that need a closure or sparse gradients, and the base class of all."""


@runtime_checkable
class Optimizer(Protocol):
    """Takes a trial's steps.

    It is built as `Class(parameters, lr, **options)`; `lr` is the learning rate of the next step.

    The keyword-only parameters of the class are what a study can set (`optimizer: {name: sgd, momentum: 0.8}`).

    Example:
        >>> import torch
        >>> from contrasweep.trainables.optimisation import OPTIMIZERS
        >>> weight = torch.ones(2, requires_grad=True)
        >>> optimizer = OPTIMIZERS.choose({"name": "sgd", "momentum": 0.8}).build([weight], 0.5)
        >>> optimizer.step([torch.ones(2)])
        >>> weight.tolist()
        [0.5, 0.5]
    """

    parameters: list[Tensor]
    lr: float

    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters once.

        Args:
            gradients: One tensor a parameter, in the order of `parameters`; they may be overwritten.
        """

    def state_dict(self) -> StateDict:
        """Return what the next step depends on beside parameters and `lr`: tensors and plain values by name."""

    def load_state_dict(self, state: StateDict, /) -> None:
        """Copy in the state that `state_dict` gave."""


class _Momentum:
    """A base class of SGD and LARS: each parameter has a velocity, a decaying sum of its gradients.

    `states` is the number of tensors that are kept for each parameter: the velocity alone.
    """

    states: ClassVar[float] = 1.0

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float) -> None:
        self.parameters = [weight for weight in parameters if weight.requires_grad]
        self.lr = lr
        self.momentum = momentum
        self.velocity = [torch.zeros_like(weight) for weight in self.parameters]

    def move(self, gradients: list[Tensor]) -> None:
        """Move the parameters along their velocities, to which `gradients` are added."""
        # v <- momentum v + g; w <- w - lr v.
        torch_internals.mul_(self.velocity, self.momentum)
        torch_internals.add_(self.velocity, gradients)
        torch_internals.add_(self.parameters, self.velocity, alpha=-self.lr)

    def state_dict(self) -> StateDict:
        """Return the velocities, with one tensor for each parameter."""
        return {"velocity": self.velocity}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Copy the velocities in place."""
        _copy(self.velocity, state["velocity"])


class SGD(_Momentum):
    """Stochastic gradient descent with momentum and L2 weight decay: torch.optim.SGD's update."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        *,
        weight_decay: NotNegative = 0.0,
        momentum: BelowOne = 0.9,
        decay_on: Annotated[DecayOn, OMIT_DEFAULT] = "all",
    ) -> None:
        super().__init__(parameters, lr, momentum)
        self.weight_decay = weight_decay
        self.decayed_indices = decayed_indices(self.parameters, decay_on)

    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters against `gradients`, which this may overwrite."""
        with torch.no_grad():
            # L2: g <- g + weight_decay w, of the parameters that are decayed.
            if self.weight_decay:
                torch_internals.add_(
                    [gradients[i] for i in self.decayed_indices],
                    [self.parameters[i] for i in self.decayed_indices],
                    alpha=self.weight_decay,
                )
            self.move(gradients)


class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), torch.optim.AdamW's update."""

    # See `optimizer_states`.
    states: ClassVar[float] = 2.0

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        *,
        weight_decay: NotNegative = 0.0,
        betas: tuple[BelowOne, BelowOne] = (0.9, 0.999),
        eps: NotNegative = 1e-8,
        decay_on: Annotated[DecayOn, OMIT_DEFAULT] = "all",
    ) -> None:
        self.parameters = [weight for weight in parameters if weight.requires_grad]
        self.decayed_indices = decayed_indices(self.parameters, decay_on)
        self.lr = lr
        self.weight_decay = weight_decay
        self.betas = betas
        self.eps = eps
        self.mean = [torch.zeros_like(weight) for weight in self.parameters]
        self.square = [torch.zeros_like(weight) for weight in self.parameters]
        self.steps = 0

    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters against `gradients`."""
        self.steps += 1
        first, second = self.betas
        with torch.no_grad():
            # Decay, apart from the gradient: w <- (1 - lr weight_decay) w.
            torch_internals.mul_(
                [self.parameters[i] for i in self.decayed_indices], 1 - self.lr * self.weight_decay
            )
            # Running means of the gradient (m) and of its square (v).
            torch_internals.lerp_(self.mean, gradients, 1 - first)
            torch_internals.mul_(self.square, second)
            torch_internals.addcmul_(self.square, gradients, gradients, value=1 - second)
            # w <- w - lr m' / (sqrt(v') + eps), where m' and v' are corrected for their start at 0.
            scale = torch_internals.sqrt(self.square)
            torch_internals.div_(scale, math.sqrt(1 - second**self.steps))
            torch_internals.add_(scale, self.eps)
            torch_internals.addcdiv_(
                self.parameters, self.mean, scale, value=-self.lr / (1 - first**self.steps)
            )

    def state_dict(self) -> StateDict:
        """Return both moments, with one tensor for each parameter, and the number of steps."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Copy both moments in place and set the number of steps."""
        _copy(self.mean, state["mean"])
        _copy(self.square, state["square"])
        self.steps = state["steps"]


class LARS(_Momentum):
    """Layer-wise adaptive rates on SGD with momentum (You, Gitman & Ginsburg 2017), as SimCLR uses them.

    A parameter's step is scaled by `trust` |w| / |g + weight_decay w|. Biases and normalisation (one dimension) are
    neither scaled nor decayed.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        *,
        weight_decay: NotNegative = 0.0,
        momentum: BelowOne = 0.9,
        trust: Positive = 0.001,
    ) -> None:
        super().__init__(parameters, lr, momentum)
        self.weight_decay = weight_decay
        self.trust = trust

    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters against `gradients`, which this may overwrite."""
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                # g <- g + weight_decay w, scaled by trust |w| / |g|; a norm of 0 leaves it as it is.
                if parameter.ndim > 1:
                    gradient.add_(parameter, alpha=self.weight_decay)
                    size = parameter.norm()
                    gradient_norm = gradient.norm()
                    scale = torch.where(
                        (size > 0) & (gradient_norm > 0),
                        self.trust * size / gradient_norm,
                        torch.ones_like(size),
                    )
                    gradient.mul_(scale)
            self.move(gradients)


def decayed_indices(parameters: list[Tensor], decay_on: DecayOn) -> list[int]:
    """Return the indices of the parameters that are decayed: all, or for "weights" those of two dimensions and more.

    Biases and normalisation have one dimension.
    """
    return [i for i, parameter in enumerate(parameters) if decay_on == "all" or parameter.ndim > 1]


class ExternalOptimizer(External):
    """An optimizer that is not in the table; its `target` is a class."""

    @functools.cached_property
    def settings(self) -> type:
        """A class with a field for each parameter of the user's own optimizer, and `decay_on`.

        The parameters to train and the learning rate are the trial's, and have no field.
        """
        fields = {}
        # The first parameter of the class takes what is trained.
        for name, (hint, default) in signature_fields(self.target, after=1).items():
            if name == "weight_decay":
                hint = NotNegative
            # None is torch's "not set"; a trial's identity has such a parameter only where it is set.
            elif default is None:
                hint = Annotated[Any, OMIT_DEFAULT]
            if name not in ("lr", "params"):
                fields[name] = (hint, default)
        fields["decay_on"] = (Annotated[DecayOn, OMIT_DEFAULT], "all")
        return parameters_class("Optimizer", fields)

    def __call__(self, parameters: Iterable[Tensor], lr: float, **options: Any) -> "TorchOptimizer":
        """Build the optimizer of these parameters; `SpecError` where its class fails."""
        decay_on: DecayOn = options.pop("decay_on", "all")
        with errors_named(f"{self.name} cannot be built"):
            return TorchOptimizer(self.target, parameters, lr, decay_on, options)


class TorchOptimizer:
    """One of torch's optimizers, with gradients as arguments instead of attributes of the parameters."""

    def __init__(
        self,
        target: Callable[..., Any],
        parameters: Iterable[Tensor],
        lr: float,
        decay_on: DecayOn,
        options: Config,
    ) -> None:
        self.parameters = [weight for weight in parameters if weight.requires_grad]
        indices = decayed_indices(self.parameters, decay_on)
        with_decay = [self.parameters[i] for i in indices]
        without_decay = [weight for i, weight in enumerate(self.parameters) if i not in indices]
        # Two groups of torch's: one with the optimizer's own weight decay, one with none. An empty one is left out.
        groups: list[dict[str, object]] = [{"params": with_decay}] if with_decay else []
        if without_decay:
            groups.append({"params": without_decay, "weight_decay": 0.0})
        self.inner = target(groups, lr=lr, **options)
        for name in ("step", "state_dict", "load_state_dict", "param_groups"):
            if not hasattr(self.inner, name):
                raise SpecError(
                    "an optimizer has step, state_dict, load_state_dict and param_groups",
                    value=type(self.inner).__name__,
                    hint=f"it has no {name}",
                )
        self.lr = lr

    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters once, at the present `lr`."""
        for group in self.inner.param_groups:
            group["lr"] = self.lr
        # Torch's optimizers read a gradient from its parameter; nothing of ours does, so it is taken away afterwards.
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.inner.step()
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> StateDict:
        """Return the state of the optimizer that is wrapped."""
        state: StateDict = self.inner.state_dict()
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore the state of the optimizer that is wrapped."""
        self.inner.load_state_dict(state)


class WithOwnRates:
    """Several optimizers as one; `ratios` are their learning rates as multiples of the first one's rate."""

    def __init__(self, optimizers: list[Optimizer], ratios: list[float]) -> None:
        self.optimizers = optimizers
        self.ratios = ratios
        self.parameters = [
            parameter for optimizer in optimizers for parameter in optimizer.parameters
        ]

    @property
    def lr(self) -> float:
        """Return the learning rate of the first optimizer, whose ratio is 1."""
        return self.optimizers[0].lr

    @lr.setter
    def lr(self, value: float) -> None:
        """Set the first optimizer's learning rate, and so those of the others."""
        for optimizer, ratio in zip(self.optimizers, self.ratios, strict=True):
            optimizer.lr = value * ratio

    def step(self, gradients: list[Tensor]) -> None:
        """Take a step with each optimizer, which gets its part of `gradients`."""
        start = 0
        for optimizer in self.optimizers:
            end = start + len(optimizer.parameters)
            optimizer.step(gradients[start:end])
            start = end

    def state_dict(self) -> StateDict:
        """Return the states of all optimizers."""
        return {"each": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore the states of all optimizers."""
        for optimizer, part in zip(self.optimizers, state["each"], strict=True):
            optimizer.load_state_dict(part)


def is_torchs(name: str) -> bool:
    """Whether torch.optim has an optimizer of this name that takes a step from dense gradients, without a closure."""
    if name in UNSUPPORTED or not name.isidentifier():
        return False
    entry = getattr(torch.optim, name, None)
    return inspect.isclass(entry) and issubclass(entry, torch.optim.Optimizer)


def find_external(name: str) -> ExternalOptimizer:
    """Return the optimizer that is not in the table: at a dotted path, or of torch.optim by its name.

    `SpecError` where nothing is at the path.
    """
    target = import_path(name, kind="optimizer") if ":" in name else getattr(torch.optim, name)
    return ExternalOptimizer(name, target)


OPTIMIZERS: Table[Any] = Table(
    "optimizer",
    {"sgd": SGD, "adamw": AdamW, "lars": LARS},
    find=find_external,
    knows=is_torchs,
)
"""name -> class, which is built with the parameters to train, the learning rate and what a study sets of it."""


def check_optimizer(optimizer: Component, lr: float) -> None:
    """Raise `SpecError` where the user's own optimizer cannot be built, or cannot take a step."""
    if not isinstance(optimizer.entry, ExternalOptimizer):
        return
    # One step of a small matrix of weights and of a bias.
    parameters = [torch.ones(shape, requires_grad=True) for shape in ((2, 2), (2,))]
    try:
        with errors_named(f"{optimizer.name} cannot take a step"):
            optimizer.build(parameters, lr).step([torch.ones(2, 2), torch.ones(2)])
    except SpecError as error:
        raise error.at("optimizer") from None


def optimizer_states(chosen: Component) -> float:
    """Return how many tensors of a parameter's shape this optimizer keeps for each parameter, by its class's `states`.

    2, as many as Adam, where the class has no `states`.
    """
    return float(getattr(chosen.entry, "states", 2.0))


def gradients_of(optimizer: Optimizer, loss: Tensor) -> list[Tensor]:
    """Return d loss / d parameter for each parameter of the optimizer; zero where the loss does not depend on it."""
    gradients = torch.autograd.grad(loss, optimizer.parameters, allow_unused=True)
    return separate_gradients(optimizer.parameters, gradients)


def separate_gradients(
    parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]
) -> list[Tensor]:
    """Return one gradient for each parameter, zeros in place of None; each may be overwritten without harm to others.

    Autograd gives one tensor to two parameters that are added to each other. To a parameter that is summed it gives
    one number in memory, which stands for all entries.
    """
    separate = []
    # Addresses of the gradients so far. A stride of 0 says that one number stands for many entries.
    places: set[int] = set()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            separate.append(torch.zeros_like(parameter))
            continue
        is_shared = gradient.data_ptr() in places or 0 in gradient.stride()
        places.add(gradient.data_ptr())
        separate.append(gradient.clone() if is_shared else gradient)
    return separate


class TrainingSettings:
    """A base class of the settings of methods that train one network; its properties follow from the fields below."""

    encoder: Component
    projection: Component
    optimizer: Component
    epochs: int
    batch_size: int
    device: str
    autocast: bool
    threads: int

    @property
    def network_text(self) -> str:
        """Encoder and head with their parameters as text: two JSON objects, such as `{"name":"mlp","width":256}`.

        A plan looks up by this text how much memory and work a step of the network takes.
        """
        return " ".join(
            canonical.dumps(part.to_plain()) for part in (self.encoder, self.projection)
        )

    def build_network(self, shape: Any) -> "nn.Sequential":
        """Build encoder and head, initialised from torch's global generator.

        `shape` is what the encoder is built for: the shape of an image, or for texts the number of word indices.
        """
        encoder = self.encoder.build(shape)
        return nn.Sequential(encoder, self.projection.build(encoder.dim))

    @property
    def precision(self) -> Precision:
        """The precision that the network computes in, as the memory model (`cluster.memory`) names it."""
        return "bf16" if self.autocast else "fp32"

    @property
    def evaluated_rows(self) -> int:
        """How many images or texts an evaluation passes through the network at once: 4 batches, but 1024 at most.

        An evaluation keeps nothing for a backward pass, so with these it needs less memory than a training step.
        """
        return min(1024, 4 * self.batch_size)

    def check_batch(self, rows: int) -> None:
        """Raise `SpecError` where a batch is larger than a training part of so many `rows`."""
        if rows < self.batch_size:
            raise SpecError(
                "a batch must not be larger than the training part",
                place="batch_size",
                value=self.batch_size,
                hint=f"it has {rows} rows",
            )

    def workload(self, rows: int) -> MutableConfig:
        """Return those fields of a `Workload` that follow from the settings alone, as keywords.

        `rows` is the number of rows of the training part, from which the number of steps follows.
        """
        return {
            "optimizer_states": optimizer_states(self.optimizer),
            "precision": self.precision,
            "device": self.device,
            "cpus": float(self.threads),
            "steps": float(self.epochs * max(1, rows // self.batch_size)),
        }


@dataclass(frozen=True)
class Schedule:
    """The learning rate at each of `steps` steps: linear warm-up from `warmup_from`, then a cosine to lr * decay^3.

    A warm-up to a rate that is not above `warmup_from` begins at a tenth of that rate. With decay .1 it is the schedule
    of SupContrast. With `constant` there is no cosine: after the warm-up the rate is `lr`. The rate depends on
    the step alone, so that a resumed trial needs no state of the schedule.
    """

    lr: float
    steps: int
    warmup_steps: int = 0
    warmup_from: float = 0.01
    decay: float = 0.1
    constant: bool = False

    @classmethod
    def of(cls, settings: Any, per_epoch: int, **options: Any) -> "Schedule":
        """Return the schedule of a method's `settings`, for epochs of `per_epoch` steps.

        `options` are further fields of `Schedule`, such as `constant`.
        """
        # A warm-up leaves one epoch at least for the cosine.
        warmup = min(settings.warmup_epochs or 0, settings.epochs - 1) * per_epoch
        return cls(settings.learning_rate, settings.epochs * per_epoch, warmup, **options)

    def at(self, step: int) -> float:
        """Return the learning rate of step 0, 1, ..., steps - 1."""
        # The warm-up rises to where the cosine goes on at its end, so that the rate does not jump there.
        after = self._after(max(step, self.warmup_steps))
        if step >= self.warmup_steps:
            return after
        low = self.warmup_from if self.warmup_from < after else after / 10
        return low + (after - low) * step / self.warmup_steps

    def _after(self, step: int) -> float:
        """Return the learning rate of a step after the warm-up: that of the cosine, or `lr` where it is constant."""
        if self.constant:
            return self.lr
        low = self.lr * self.decay**3
        return low + (self.lr - low) * (1 + math.cos(math.pi * step / self.steps)) / 2


def _copy(to: list[Tensor], values: list[Tensor]) -> None:
    """Copy each of `values` into the tensor of the same place in `to`."""
    for tensor, value in zip(to, values, strict=True):
        tensor.copy_(value)
