"""`fold`: K networks of one architecture as one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.trainables.fusing.folding.engines import Engine, engine_of
from contrasweep.trainables.fusing.folding.slots import Slots, copied
from contrasweep.trainables.fusing.folding.tracing import folded_forward, folded_tree


class Folded:
    """K members of one architecture: images [K n c h w] to what each member's network gives, [K n d].

    Its parameters are leaf tensors [K ...] in the order and under the names of the plain network's. `put` and `take`
    move one member's state in and out, in the plain form and to the bit.
    """

    def __init__(self, model: nn.Module, slots: Slots, engine: Engine, inputs: int = 1) -> None:
        self.slots, self.engine = slots, engine
        self.plain = {name: _empty(value) for name, value in model.state_dict().items()}
        self.tree = folded_tree(model, slots, engine)
        was = model.training
        try:
            forward, self.code = folded_forward(model.train(), self.tree, slots, inputs)
            self.forwards = {True: forward, False: folded_forward(model.eval(), self.tree, slots, inputs)[0]}
        finally:
            model.train(was)
        self.training = not was
        self.train(was)

    def __call__(self, x: Float[Tensor, "k n ..."] | Sequence[Float[Tensor, "k n ..."]]) -> Any:
        """Each member's activations, from its input, or from the sequence of them where the network takes several."""
        return self.forwards[self.training](x)

    @property
    def description(self) -> list[str]:
        """The forward code in training with the constants that it makes, and all plain values that the modules hold."""
        buffers = self.forwards[True].named_buffers()
        constants = (f"{name} {x.dtype} {x[0].tolist()}" for name, x in buffers if not name.startswith("network."))
        held = (f"{name} {type(m).__name__} {_plain_values(m)}" for name, m in self.tree.named_modules())
        return [self.engine.form, str(self.slots.count), self.code, *constants, *held]

    def train(self, mode: bool = True) -> "Folded":
        """Training mode, or evaluation mode."""
        if self.training == mode:
            return self
        self.training = mode
        self.tree.train(mode)
        for forward in self.forwards.values():
            forward.train(mode)
        return self

    def eval(self) -> "Folded":
        """Evaluation mode."""
        return self.train(False)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Plain name and stacked parameter [K ...], in the plain network's order."""
        return self.tree.named_parameters()

    def parameters(self) -> list[nn.Parameter]:
        """The stacked parameters [K ...] that are trained, in the plain network's order."""
        return [value for value in self.tree.parameters() if value.requires_grad]

    @property
    def templates(self) -> list[Tensor]:
        """A tensor without memory for each of `parameters`: the plain one's shape, type and strides."""
        return [self.plain[name] for name, value in self.named_parameters() if value.requires_grad]

    def state(self) -> dict[str, Tensor]:
        """Plain name and stacked tensor [K ...] of parameters and buffers."""
        return {name: value.detach() for name, value in self.tree.state_dict(keep_vars=True).items()}

    @torch.no_grad()
    def put(self, slot: int, state: Mapping[str, Tensor]) -> None:
        """Copy a plain network's state dict into a slot."""
        stacked = self.state()
        if set(stacked) != set(state):
            raise KeyError(f"the state has {sorted(set(state) ^ set(stacked))} beyond or short of the network's")
        for name, value in stacked.items():
            value[slot].copy_(state[name])

    @torch.no_grad()
    def take(self, slot: int) -> dict[str, Tensor]:
        """The state dict of a slot's member, in the plain network's names, types and memory formats."""
        stacked = self.state()
        return {name: copied(stacked[name][slot], plain) for name, plain in self.plain.items()}


def fold(model: nn.Module, slots: int | Slots, engine: str | Engine = "grouped", *, inputs: int = 1) -> Folded:
    """K networks like `model`, each with its weights, as one; `Unfoldable` with the reason where it cannot be. Its
    forward takes so many `inputs`."""
    if isinstance(slots, int):
        slots = Slots(slots, next((p.device for p in model.parameters()), None))
    return Folded(model, slots, engine_of(engine), inputs)


def _empty(value: Tensor) -> Tensor:
    """A tensor without memory, of the same shape, type and strides."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _plain_values(module: nn.Module) -> list[tuple[str, object]]:
    kinds = (int, float, str, tuple, type(None))
    return sorted((k, v) for k, v in vars(module).items() if k[0] != "_" and isinstance(v, kinds))
