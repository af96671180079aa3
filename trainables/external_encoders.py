"""Encoders that are not in the table: torchvision's by their names, timm's by `timm:NAME`, your own by dotted path.

An own one is a callable `(shape, **options) -> module`, whose module has `dim`, the number of its features; what it
takes beside `shape` (channels, height, width) can be set of it. Torchvision's and timm's models lose their classifier,
and take `weights`, a file of a state dict, which is checked by its digest.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from contrasweep.components import Component, parameters_class, signature_fields
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.trainables import weights as weight_files
from contrasweep.trainables.pytorch import Tensor, nn, torch

TIMM = "timm:"
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class ExternalEncoder:
    """An encoder by the name it has in a study, built by `target(shape, **options)`."""

    name: str
    target: Callable[..., Any]

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What its function or class says."""
        return inspect.getdoc(self.target) or self.name

    def __call__(self, shape: Shape, **options: Any) -> "nn.Module":
        """The module, which has `dim`; `SpecError` where it cannot be built or has none."""
        try:
            module = self.target(shape, **options)
        except SpecError:
            raise
        except Exception as error:  # someone else's code
            rule = f"{self.name} cannot be built for images {list(shape)}"
            raise SpecError(rule, value=options or None, hint=f"{type(error).__name__}: {error}") from None
        dim = getattr(module, "dim", None)
        if not isinstance(module, nn.Module) or not isinstance(dim, int):
            raise SpecError(
                f"an encoder is a torch module with `dim`, the number of its features, which {self.name} does not give",
                value=type(module).__name__ if dim is None else f"dim {dim!r}",
            )
        return module


def is_torchvision(name: str) -> bool:
    """Whether torchvision has a classifier of this name."""
    import torchvision

    return name in torchvision.models.list_models(module=torchvision.models)


def find(name: str) -> ExternalEncoder:
    """The encoder of this name, which is not in the table."""
    if name.startswith(TIMM):
        return ExternalEncoder(name, functools.partial(_timm, name.removeprefix(TIMM)))
    if ":" not in name:
        return ExternalEncoder(name, functools.partial(_torchvision, name))
    return ExternalEncoder(name, import_path(name, kind="encoder"))


@functools.cache
def settings(entry: ExternalEncoder) -> type:
    """What can be set of it: all that it takes after the shape."""
    after = None if isinstance(entry.target, functools.partial) else 1
    more = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(entry.target).parameters.values())
    return parameters_class("Encoder", signature_fields(entry.target, after=after), more=more)


def check(encoder: Component, projection: Component, shape: Shape) -> None:
    """`SpecError` where an encoder or head of somebody else's does not give features for images of this `shape`. Two
    black images go through both, on the CPU; those of our own tables are known to."""
    ours = (encoder.entry, projection.entry)
    if all(getattr(entry, "__module__", "") == "contrasweep.trainables.encoders" for entry in ours):
        return
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        built = encoder.build(shape).eval()
        features = _output(built, torch.zeros(2, *shape), "encoder", encoder.name)
        if tuple(features.shape) != (2, built.dim):
            raise SpecError(
                "an encoder gives a row of `dim` features for each image",
                place="encoder",
                value=f"{list(features.shape)} for 2 images with dim {built.dim}",
                hint=encoder.name,
            )
        head = projection.build(built.dim)
        if not isinstance(head, nn.Module):
            raise SpecError("a head is a torch module", place="projection", value=type(head).__name__)
        embeddings = _output(head.eval(), features, "projection", projection.name)
        if embeddings.ndim != 2 or len(embeddings) != 2:
            raise SpecError(
                "a head gives one embedding a row",
                place="projection",
                value=f"{list(embeddings.shape)} for 2 rows",
                hint=projection.name,
            )


def _output(module: "nn.Module", values: Tensor, place: str, name: str) -> Tensor:
    try:
        output = module(values)
    except Exception as error:  # someone else's code
        rule, hint = f"{name} fails on input {list(values.shape)}", f"{type(error).__name__}: {error}"
        raise SpecError(rule, place=place, hint=" ".join(hint.split())) from None
    if not isinstance(output, Tensor):
        raise SpecError(f"{name} must give a tensor", place=place, value=type(output).__name__)
    return output


def _torchvision(
    name: str, shape: Shape, *, weights: Annotated[str, OMIT_DEFAULT] = "", sha256: Annotated[str, OMIT_DEFAULT] = ""
) -> "nn.Module":
    import torchvision

    builder = torchvision.models.get_model_builder(name)
    options: MutableConfig = {"image_size": shape[1]} if name.startswith("vit_") else {}
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": True}
    net = builder(weights=None, **options)
    linear = [(path, module) for path, module in net.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise SpecError(f"{name} does not end with a linear layer, in whose place its features would stand")
    path, last = linear[-1]
    net.set_submodule(path, nn.Identity())
    if shape[0] != 3:
        _first_conv(net, shape[0])
    return encoder_of(net, last.in_features, weights, sha256)


def import_timm(name: str) -> Any:
    """The package timm, for its network `name`; `SpecError` where it is not installed."""
    try:
        import timm
    except ImportError:
        raise SpecError("timm is not installed", value=f"{TIMM}{name}", hint="pip install timm") from None
    return timm


def _timm(
    name: str, shape: Shape, *, weights: Annotated[str, OMIT_DEFAULT] = "", sha256: Annotated[str, OMIT_DEFAULT] = ""
) -> "nn.Module":
    timm = import_timm(name)
    options: MutableConfig = {"pretrained": False, "num_classes": 0, "in_chans": shape[0]}
    try:
        net = timm.create_model(name, img_size=shape[1:], **options)
    except TypeError:  # only some take a size
        net = timm.create_model(name, **options)
    features: Any = net.num_features
    return encoder_of(net, int(features), weights, sha256)


def _first_conv(net: "nn.Module", channels: int) -> None:
    """Let the first convolution take so many channels."""
    path, old = next((path, m) for path, m in net.named_modules() if isinstance(m, nn.Conv2d))
    kept: MutableConfig = {
        name: getattr(old, name) for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
    }
    net.set_submodule(path, nn.Conv2d(channels, old.out_channels, bias=old.bias is not None, **kept))


def encoder_of(net: "nn.Module", dim: int, file: str = "", sha256: str = "") -> "nn.Module":
    """`net` as an encoder of `dim` features, with the weights of a `file` of this digest where one is given."""
    from contrasweep.trainables.features import Encoder

    if file:
        weight_files.load(net, file, sha256)
    return Encoder(net, dim)
