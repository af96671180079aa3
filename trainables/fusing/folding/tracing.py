"""From a network's unchanged forward code to one for K members: torch.fx writes down what it calls, and each call is
replaced by its folded form."""

import copy
import inspect
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, fx, nn

from contrasweep.trainables.fusing.folding.engines import Engine
from contrasweep.trainables.fusing.folding.errors import Unfoldable
from contrasweep.trainables.fusing.folding.lifting import Lifted, OfOne, is_metadata, refuse_random
from contrasweep.trainables.fusing.folding.rules import rule_of
from contrasweep.trainables.fusing.folding.slots import Slots, stacked


def folded_tree(model: nn.Module, slots: Slots, engine: Engine) -> nn.Module:
    """The modules of `model` under the same names: those with a rule in their folded form, the others as bare holders
    of stacked parameters and buffers. A module used twice is there twice, as one. `Unfoldable` where that leaves other
    parameters than the network has."""
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
    """A member's weights come and go by name, and its optimizer's state in the order of the parameters."""
    pairs = [[[name for name, _ in network.named_parameters()] for network in (model, tree)]]
    pairs.append([sorted(network.state_dict()) for network in (model, tree)])
    for plain, folded in (names for pair in pairs for names in zip_longest(*pair)):
        if plain != folded:
            raise Unfoldable(
                f"its {folded or plain!r} is shared by modules, computed from other parameters, or left out by a rule"
            )


def folded_forward(model: nn.Module, tree: nn.Module, slots: Slots, inputs: int = 1) -> tuple[fx.GraphModule, str]:
    """The forward code of `model`, in the mode in which it is, for the folded modules of `tree`: activations
    [K n ...] to [K n ...], from a sequence of them where there are several `inputs`; and what it calls, as text.
    `Unfoldable` where it cannot be written down, or calls what has no folded form."""
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
    """A tensor that forward code made: the same for all members."""
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
        """What the network does with its input, or with the sequence of them."""
        return self.network(x) if self.inputs == 1 else self.network(*(x[i] for i in range(self.inputs)))


class _Tracer(fx.Tracer):
    """Goes into every module without a rule, and refuses torch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a rule stands for this module."""
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
