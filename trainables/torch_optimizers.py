"""Optimizers of torch.optim and of other packages, behind our own protocol: `optimizer: {name: RMSprop, alpha: .9}`, or
a class by its dotted path that is built as `Class(parameter groups, lr=..., **options)` and has `step`, `state_dict`,
`load_state_dict` and `param_groups`, as torch's have.

The first of them in a process imports 97 modules of torch._dynamo, which takes a second or two.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from contrasweep.components import Component, parameters_class, signature_fields
from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.trainables.checkpoint import StateDict
from contrasweep.trainables.fields import NotNegative
from contrasweep.trainables.pytorch import Tensor, torch

DecayOn = Literal["all", "weights"]
"""What is decayed: all parameters, or those of two dimensions and more, without biases and normalisation."""
NOT_OURS = ("LBFGS", "SparseAdam", "Optimizer")
"""Classes of torch.optim that need a closure or other gradients."""


@dataclass(frozen=True)
class ExternalOptimizer:
    """An optimizer class by the name it has in a study."""

    name: str
    target: Callable[..., Any]

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What its class says."""
        return inspect.getdoc(self.target) or self.name

    def __call__(self, parameters: Iterable[Tensor], lr: float, **options: Any) -> "TorchOptimizer":
        decay_on: DecayOn = options.pop("decay_on", "all")
        try:
            return TorchOptimizer(self.target, parameters, lr, decay_on, options)
        except SpecError:
            raise
        except Exception as error:  # someone else's code
            rule = f"{self.name} cannot be built"
            raise SpecError(rule, value=options, hint=f"{type(error).__name__}: {error}") from None


class TorchOptimizer:
    """One of torch's optimizers, which is given gradients instead of reading them from the parameters."""

    def __init__(
        self, target: Callable[..., Any], parameters: Iterable[Tensor], lr: float, decay_on: DecayOn, options: Config
    ) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        decayed = [p for p in self.parameters if decay_on == "all" or p.ndim > 1]
        free = [p for p in self.parameters if decay_on != "all" and p.ndim <= 1]
        groups: list[dict[str, object]] = [{"params": decayed}] if decayed else []
        if free:
            groups.append({"params": free, "weight_decay": 0.0})
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
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.inner.step()
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> StateDict:
        """The inner optimizer's state."""
        state: StateDict = self.inner.state_dict()
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore the inner optimizer's state."""
        self.inner.load_state_dict(state)


def is_torchs(name: str) -> bool:
    """Whether torch.optim has an optimizer of this name that takes gradients alone."""
    entry = getattr(torch.optim, name, None) if name.isidentifier() and name not in NOT_OURS else None
    return inspect.isclass(entry) and issubclass(entry, torch.optim.Optimizer)


def find(name: str) -> ExternalOptimizer:
    """The optimizer of this name, which is not in the table."""
    target = import_path(name, kind="optimizer") if ":" in name else getattr(torch.optim, name)
    return ExternalOptimizer(name, target)


@functools.cache
def settings(entry: ExternalOptimizer) -> type:
    """What can be set of it: all that its class takes after parameters and learning rate, and `decay_on`."""
    fields = {k: f for k, f in signature_fields(entry.target, after=1).items() if k not in ("lr", "params")}
    fields = {k: (Annotated[Any, OMIT_DEFAULT] if f[1] is None else f[0], f[1]) for k, f in fields.items()}
    if "weight_decay" in fields:
        fields["weight_decay"] = (NotNegative, fields["weight_decay"][1])
    decay_on = (Annotated[DecayOn, OMIT_DEFAULT], "all")
    return parameters_class("Optimizer", {**fields, "decay_on": decay_on})


def check(optimizer: Component, lr: float) -> None:
    """`SpecError` where an optimizer of somebody else's cannot be built, or cannot take a step."""
    if not isinstance(optimizer.entry, ExternalOptimizer):
        return
    weight = torch.ones(2, 2, requires_grad=True)
    try:
        optimizer.build([weight], lr).step([torch.ones(2, 2)])
    except SpecError as error:
        raise error.at("optimizer") from None
    except Exception as error:  # someone else's code
        hint = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError(f"{optimizer.name} cannot take a step", place="optimizer", hint=hint) from None
