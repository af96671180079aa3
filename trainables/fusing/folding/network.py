"""`fold`: K networks of one architecture as one.

torch.fx writes down what the network's unchanged forward code calls, and each call is replaced by its folded form.
A module with a rule is replaced by that rule's. A function that does not ask for axes is called as it is. All else goes
through `torch.vmap`, which is exact for any function that has no state and draws no random numbers.
"""

import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from contrasweep.trainables.fusing.folding.rules import Engine, Slots, Unfoldable, copied, engine_of, rule_of, stacked
from contrasweep.trainables.precision import leave_autocast, widened
from contrasweep.trainables.pytorch import Float

ELEMENTWISE: frozenset[Any] = frozenset(
    (
        *(getattr(operator, name) for name in ("add", "iadd", "sub", "isub", "mul", "imul", "truediv", "neg")),
        *(torch.add, torch.sub, torch.mul, torch.div, torch.relu, torch.sigmoid, torch.tanh),
        *(F.relu, F.relu6, F.gelu, F.silu, F.leaky_relu, F.elu, F.sigmoid, F.tanh, F.hardswish, F.hardsigmoid),
        *("add", "add_", "mul", "mul_", "sub", "div", "relu", "relu_", "float", "double", "contiguous", "clone"),
        *(widened,),
    )
)
"""Functions, and names of methods, that do the same on every entry."""
RANDOM: frozenset[Any] = frozenset(
    (
        *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, F.rrelu),
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.dropout),
        *(torch.rand_like, torch.randn_like, torch.randint_like),
        *("bernoulli_", "normal_", "uniform_", "random_", "exponential_"),
    )
)
METADATA: frozenset[Any] = frozenset(("size", "dim", "numel", "stride", "type", "is_floating_point"))
ATTRIBUTES: frozenset[str] = frozenset(("shape", "ndim", "dtype", "device", "is_cuda"))


def is_metadata(function: Any, arguments: Sequence[Any]) -> bool:
    """Return whether a call asks for sizes, types or the device, which are the same for every member."""
    if function is getattr:
        return arguments[1] in ATTRIBUTES
    return function in METADATA if isinstance(function, str) else function is leave_autocast


def refuse_random(function: Any) -> None:
    """Raise `Unfoldable` for a function that draws random numbers."""
    name = function if isinstance(function, str) else getattr(function, "__name__", str(function))
    if (isinstance(function, str) or callable(function)) and (function in RANDOM or "stochastic_depth" in name):
        raise Unfoldable(f"its forward calls {name}, which draws random numbers for all members from one generator")


class Lifted(nn.Module):
    """A function, or the method of that name, of plain activations, for [K ...] ones."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.direct = _callable(function), function in ELEMENTWISE
        self.shifted = SHIFTED.get(function)

    def forward(self, folded: tuple[bool, ...], *args: Any, **kwargs: Any) -> Any:
        """Call the function.

        `folded` tells for each tensor argument, in order, whether it has the members' axis.
        """
        if self.shifted is not None and not kwargs:
            return self.shifted(*args)
        flat, spec = pytree.tree_flatten((args, kwargs))
        places = [i for i, value in enumerate(flat) if isinstance(value, Tensor)]
        tensors = [flat[i] for i in places]
        if self.direct and len({value.ndim for value in tensors}) == 1:
            return self.function(*args, **kwargs)
        if self.function is operator.getitem and not isinstance(args[0], Tensor):
            return args[0][args[1]]

        def of_one(*values: Tensor) -> Any:
            given = list(flat)
            for place, value in zip(places, values, strict=True):
                given[place] = value
            positional, named = pytree.tree_unflatten(given, spec)
            return self.function(*positional, **named)

        axes = tuple(0 if has else None for has in folded) if len(folded) == len(tensors) else 0
        return torch.vmap(of_one, in_dims=axes, randomness="error")(*tensors)


class OfOne(nn.Module):
    """A node of the graph that asks for a size or type, answered by the activations of the first member."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = _callable(function)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return what the plain module would return for its own activations."""
        return self.function(x[0], *args, **kwargs)


def _callable(function: Any) -> Callable[..., Any]:
    return _method(function) if isinstance(function, str) else function


def _method(name: str) -> Callable[..., Any]:
    def call(value: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(value, name)(*args, **kwargs)

    return call


def _flatten(x: Tensor, first: int = 0, last: int = -1) -> Tensor:
    return x.flatten(*(axis if axis < 0 else axis + 1 for axis in (first, last)))


def _cat(values: Sequence[Tensor], axis: int = 0) -> Tensor:
    return torch.cat(list(values), axis if axis < 0 else axis + 1)


SHIFTED: dict[Any, Callable[..., Any]] = {torch.flatten: _flatten, "flatten": _flatten, torch.cat: _cat}
"""Functions with axes that are frequent enough to be shifted by hand."""


def folded_tree(model: nn.Module, slots: Slots, engine: Engine) -> nn.Module:
    """Return the modules of `model` under the same names, in their folded form.

    Those without a rule are bare holders of stacked parameters and buffers. A module used twice is there twice, as one.
    Raises `Unfoldable` where that leaves other parameters than the network has.
    """
    done: dict[int, nn.Module] = {}

    def folded(module: nn.Module) -> nn.Module:
        if id(module) not in done:
            rule = rule_of(module)
            done[id(module)] = holder(module) if rule is None else rule(module, slots, engine)
        return done[id(module)]

    def holder(module: nn.Module) -> nn.Module:
        bare = nn.Module()
        for name, parameter in module._parameters.items():
            bare.register_parameter(name, None if parameter is None else stacked(parameter, slots.count))  # type: ignore[arg-type]
        for name, value in module._buffers.items():
            kept = None if value is None else stacked(value, slots.count)
            bare.register_buffer(name, kept, persistent=name not in module._non_persistent_buffers_set)
        for name, child in module.named_children():
            bare.add_module(name, folded(child))
        return bare

    tree = folded(model)
    _check_names(model, tree)
    return tree


def _check_names(model: nn.Module, tree: nn.Module) -> None:
    """Check that parameters and states have the same names, in the same order, in the plain and the folded network.

    Weights of a member are copied by name, states of its optimizer by position.
    """
    pairs = [[[name for name, _ in network.named_parameters()] for network in (model, tree)]]
    pairs.append([sorted(network.state_dict()) for network in (model, tree)])
    for plain, folded in (names for pair in pairs for names in zip_longest(*pair)):
        if plain != folded:
            raise Unfoldable(
                f"its {folded or plain!r} is shared by modules, computed from other parameters, or left out by a rule"
            )


def folded_forward(model: nn.Module, tree: nn.Module, slots: Slots, inputs: int = 1) -> tuple[fx.GraphModule, str]:
    """Return the forward code of `model` for the folded modules of `tree`, and what it calls, as text.

    The code takes activations [K n ...] to [K n ...], from a sequence of them where there are several `inputs`; it is
    that of the mode in which `model` is. Raises `Unfoldable` where it cannot be written down, or calls what has no
    folded form.
    """
    model = copy.deepcopy(model)  # forward code may set attributes
    tracer = _Tracer()
    try:
        with torch.random.fork_rng(devices=()):
            before = torch.get_rng_state()
            graph = tracer.trace(_Root(model, inputs))
            if not torch.equal(before, torch.get_rng_state()):
                raise Unfoldable("its forward draws random numbers, which would be the same in every step")
    except Unfoldable:
        raise
    except Exception as error:  # forward code is the author's
        raise Unfoldable(
            f"the forward code of {type(model).__name__} cannot be written down as a graph: "
            f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        ) from error
    code = str(graph)
    root = nn.Module()
    root.network = tree
    folded: set[fx.Node] = set()
    for number, node in enumerate(graph.nodes):
        if node.op in ("placeholder", "call_module"):
            folded.add(node)
        elif node.op == "get_attr":
            _constant(node, tracer.root, root, slots)
            folded.add(node)
        elif node.op in ("call_function", "call_method"):
            refuse_random(node.target)
            if isinstance(node.target, type) and issubclass(node.target, tuple):
                folded.add(node)  # a named tuple is put together as it is
            elif any(n in folded for n in node.all_input_nodes):
                _lift(node, f"call{number}", root, folded)
    return fx.GraphModule(root, graph), code


def _lift(node: fx.Node, name: str, root: nn.Module, folded: set[fx.Node]) -> None:
    """Let a call of a function or method be that of its lifted form, a module `name` of `root`."""
    if is_metadata(node.target, node.args):
        root.add_module(name, OfOne(node.target))
    else:
        root.add_module(name, Lifted(node.target))
        axes: list[bool] = []
        fx.node.map_arg((node.args, node.kwargs), lambda n: axes.append(n in folded))
        node.args = (tuple(axes), *node.args)
        folded.add(node)
    node.op, node.target = "call_module", name


def _constant(node: fx.Node, traced: nn.Module, root: nn.Module, slots: Slots) -> None:
    """Give a tensor that forward code made to all members."""
    name = str(node.target)
    if name.startswith("network."):
        return
    value: Tensor = getattr(traced, name)
    root.register_buffer(name, value.expand(slots.count, *value.shape), persistent=False)


class _Root(nn.Module):
    """The network below a root of its own, so that the network itself may have a rule."""

    def __init__(self, network: nn.Module, inputs: int) -> None:
        super().__init__()
        self.network, self.inputs = network, inputs

    def forward(self, x: Any) -> Any:
        """Return what the network does with its input, or with the sequence of them."""
        return self.network(x) if self.inputs == 1 else self.network(*(x[i] for i in range(self.inputs)))


class _Tracer(fx.Tracer):
    """Goes into every module without a rule, and refuses torch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a folding rule exists for this module."""
        if rule_of(m) is not None:
            return True
        if type(m).__module__.startswith("torch.nn") and not isinstance(m, nn.Sequential):
            name = module_qualified_name.removeprefix("network").removeprefix(".")
            raise Unfoldable(f"module {name!r} is a {type(m).__name__}, which has no folding rule")
        return False

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Forward code without the wrappers that check types, which know no proxies."""
        name = self.path_of_module(m)
        if any((m._forward_pre_hooks, m._forward_hooks, m._backward_pre_hooks, m._backward_hooks)):
            raise Unfoldable(
                f"module {name.removeprefix('network').removeprefix('.')!r} has hooks, which are not folded"
            )
        if self.is_leaf_module(m, name):
            return self.create_proxy("call_module", name, args, kwargs)
        return inspect.unwrap(type(m).forward)(m, *args, **kwargs)


class Folded:
    """K members of one architecture in training mode: images [K n c h w] to what each member's network gives, [K n d].

    Its parameters are leaf tensors [K ...] in the order and under the names of the plain network's. `put` and `take`
    move one member's state in and out, in the plain form and to the bit.
    """

    def __init__(self, model: nn.Module, slots: Slots, engine: Engine, inputs: int = 1) -> None:
        self.slots, self.engine = slots, engine
        self.plain = {name: _empty(value) for name, value in model.state_dict().items()}
        self.tree = folded_tree(model, slots, engine)
        was = model.training
        try:
            self.forward, self.code = folded_forward(model.train(), self.tree, slots, inputs)
        finally:
            model.train(was)

    def __call__(self, x: Float[Tensor, "k n ..."] | Sequence[Float[Tensor, "k n ..."]]) -> Any:
        """Return each member's outputs, from its input or, where the network takes several, from their sequence."""
        return self.forward(x)

    @property
    def description(self) -> list[str]:
        """Return the forward code with its constants, and all plain values that the modules hold."""
        buffers = self.forward.named_buffers()
        constants = (f"{name} {x.dtype} {x[0].tolist()}" for name, x in buffers if not name.startswith("network."))
        held = (f"{name} {type(m).__name__} {_plain_values(m)}" for name, m in self.tree.named_modules())
        return [self.engine.convolution, str(self.slots.count), self.code, *constants, *held]

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Plain name and stacked parameter [K ...], in the plain network's order."""
        return self.tree.named_parameters()

    def parameters(self) -> list[nn.Parameter]:
        """Return the stacked parameters [K ...] that are trained, in the plain network's order."""
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
        """Return the state dict of a slot's member, in the plain network's names, types and memory formats."""
        stacked = self.state()
        return {name: copied(stacked[name][slot], plain) for name, plain in self.plain.items()}


def fold(model: nn.Module, slots: int | Slots, engine: str = "grouped", *, inputs: int = 1) -> Folded:
    """Return K networks like `model`, each with its weights, as one.

    The forward of `model` takes so many `inputs`. Raises `Unfoldable` with the reason where it cannot be folded.
    """
    if isinstance(slots, int):
        slots = Slots(slots, next((p.device for p in model.parameters()), None))
    return Folded(model, slots, engine_of(engine), inputs)


def _empty(value: Tensor) -> Tensor:
    """Return a tensor without memory, of the same shape, type and strides."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _plain_values(module: nn.Module) -> list[tuple[str, object]]:
    kinds = (int, float, str, tuple, type(None))
    return sorted((k, v) for k, v in vars(module).items() if k[0] != "_" and isinstance(v, kinds))
