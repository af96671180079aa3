"""Encoders: images [n c h w] to feature vectors [n d], and the projection heads after them.

Adding one is a function and its line in the table; its keyword-only parameters are what can be set of it. All are
initialised from torch's global generator, so seed it before.

Encoders that are not in the table are torchvision's by their names, timm's by `timm:NAME`, and your own by dotted
path: a callable `(shape, **options) -> module`, whose module has `dim`, the number of its features. Torchvision's and
timm's models lose their classifier, and take `weights`, a file of a state dict, which is checked by its digest.
"""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any

from contrasweep.components import (
    Component,
    External,
    Table,
    parameters_class,
    signature_fields,
)
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_path, install_command
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.trainables.fields import Count
from contrasweep.trainables.files import load_weights
from contrasweep.trainables.pytorch import Tensor, nn, torch

Shape = tuple[int, int, int]
"""channels, height, width"""
TIMM_PREFIX = "timm:"
"""The names of timm's networks in a study begin with this."""
WeightsFile = Annotated[str, OMIT_DEFAULT]
"""The path of a file with a state dict; "" for none."""
WeightsDigest = Annotated[str, OMIT_DEFAULT]
"""The SHA-256 of such a file; "" for none."""


def mlp(shape: Shape, *, width: Count = 256) -> "nn.Module":
    """Two hidden layers of `width` units on the flattened image."""
    inputs = shape[0] * shape[1] * shape[2]
    layers = [nn.Flatten(), *_dense(inputs, width), *_dense(width, width)]
    return encoder_of(nn.Sequential(*layers), width)


def small_cnn(shape: Shape, *, width: Count = 16) -> "nn.Module":
    """Three 3x3 convolutions, the last two with stride 2; `width` channels in the first, four times as many features.

    The stride of the first one brings the image's shorter side to about 16 pixels; it is 1 for small images.
    """
    first_stride = max(1, round(min(shape[1:]) / 16))
    layers = [
        *_conv(shape[0], width, first_stride),
        *_conv(width, 2 * width, 2),
        *_conv(2 * width, 4 * width, 2),
    ]
    return encoder_of(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 4 * width)


def resnet(depth: int) -> Callable[..., Any]:
    """Return torchvision's ResNet of this depth, without weights.

    Images up to 64 pixels get SupContrast's small-image stem: a 3x3 convolution with stride 1 and no pooling. The
    ImageNet stem would shrink 32 pixels to 8.
    """

    def build(
        shape: Shape, *, weights: WeightsFile = "", sha256: WeightsDigest = ""
    ) -> "nn.Module":
        """Return the ResNet for images of this shape, with the weights of a file where one is given."""
        import torchvision  # costs more than a second, so only those who need it pay

        net = getattr(torchvision.models, f"resnet{depth}")(weights=None)
        # The ImageNet stem takes three channels: small images get another, and others one for their channels.
        if max(shape[1:]) <= 64:
            net.conv1 = nn.Conv2d(shape[0], 64, 3, stride=1, padding=1, bias=False)
            nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
            net.maxpool = nn.Identity()
        elif shape[0] != 3:
            net.conv1 = nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False)
        dim = net.fc.in_features
        net.fc = nn.Identity()
        return encoder_of(net, dim, weights, sha256)

    build.__doc__ = f"torchvision's ResNet-{depth}, with a 3x3 stem for images up to 64 pixels."
    return build


class ExternalEncoder(External):
    """An encoder that is not in the table. It is built by `target(shape, **options)`."""

    @functools.cached_property
    def settings(self) -> type:
        """A class with a field for each parameter that the encoder's function takes after the shape of the images.

        If the function takes `**kwargs`, the class accepts any further parameter.
        """
        # `after=None` selects the keyword-only parameters: our functions for torchvision and timm, which are partial
        # objects, have no others to set.
        after = None if isinstance(self.target, functools.partial) else 1
        is_open = any(
            parameter.kind is parameter.VAR_KEYWORD
            for parameter in inspect.signature(self.target).parameters.values()
        )
        return parameters_class("Encoder", signature_fields(self.target, after=after), more=is_open)

    def __call__(self, shape: Shape, **options: Any) -> "nn.Module":
        """Return the module, whose `dim` is the number of its features; `SpecError` where it fails or has no `dim`."""
        with errors_named(f"{self.name} cannot be built for images {list(shape)}"):
            module = self.target(shape, **options)
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
    """Return the encoder that is not in the table: timm's (`timm:NAME`), torchvision's, or at a dotted path.

    `SpecError` where nothing is at the path.
    """
    if name.startswith(TIMM_PREFIX):
        return ExternalEncoder(name, functools.partial(_timm, name.removeprefix(TIMM_PREFIX)))
    if ":" not in name:
        return ExternalEncoder(name, functools.partial(_torchvision, name))
    return ExternalEncoder(name, import_path(name, kind="encoder"))


ENCODERS: Table[Callable[..., Any]] = Table(
    "encoder",
    {
        "cnn": small_cnn,
        "mlp": mlp,
        "resnet18": resnet(18),
        "resnet34": resnet(34),
        "resnet50": resnet(50),
    },
    find=find,
    knows=is_torchvision,
)
"""name -> (shape of the images, parameters) -> encoder."""


def mlp_head(features: int, *, dim: Count = 128) -> "nn.Module":
    """SupContrast's head: linear, ReLU, linear to `dim`. No head normalises: that is the similarity's part."""
    return nn.Sequential(
        nn.Linear(features, features), nn.ReLU(inplace=True), nn.Linear(features, dim)
    )


def linear_head(features: int, *, dim: Count = 128) -> "nn.Module":
    """One linear layer to `dim`."""
    return nn.Linear(features, dim)


def no_head(features: int) -> "nn.Module":
    """No head: the features are the embeddings."""
    return nn.Identity()


HEADS: Table[Callable[..., Any]] = Table(
    "projection head", {"mlp": mlp_head, "linear": linear_head, "none": no_head}
)
"""name -> (number of features, parameters) -> head."""


def check_encoder(encoder: Component, projection: Component, shape: Shape) -> None:
    """Raise `SpecError` where the user's own encoder, weights or head give no features for images of this `shape`.

    Two black images go through both, on the CPU. Encoders and heads of our own tables are not tried without weights.
    """
    weights = encoder.parameters.get("weights")
    if encoder.name in ENCODERS and not weights and projection.name in HEADS:
        return
    # The state of torch's generator is put back, so that the trial draws what it would without this check.
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
            raise SpecError(
                "a head is a torch module", place="projection", value=type(head).__name__
            )
        embeddings = _output(head.eval(), features, "projection", projection.name)
        if embeddings.ndim != 2 or len(embeddings) != 2:
            raise SpecError(
                "a head gives one embedding per row",
                place="projection",
                value=f"{list(embeddings.shape)} for 2 rows",
                hint=projection.name,
            )


def _output(module: "nn.Module", values: Tensor, place: str, name: str) -> Tensor:
    """Return the output tensor of `module` for the input `values`.

    `SpecError`, at the setting `place`, where the module has lazy weights, raises an error or returns no tensor. The
    error calls the module `name`.
    """
    if any(map(torch.nn.parameter.is_lazy, module.parameters())):
        rule = "a lazy module has no weights before its first batch, and an optimizer needs them"
        raise SpecError(rule, place=place, value=name)
    with errors_named(f"{name} fails on input {list(values.shape)}", place):
        output = module(values)
    if not isinstance(output, Tensor):
        raise SpecError(f"{name} must give a tensor", place=place, value=type(output).__name__)
    return output


def _torchvision(
    name: str, shape: Shape, *, weights: WeightsFile = "", sha256: WeightsDigest = ""
) -> "nn.Module":
    """Return a network of torchvision as an encoder: its features are what its last linear layer gets."""
    import torchvision

    # Vision transformers are made for one image size. Two networks have options that torchvision warns of.
    builder = torchvision.models.get_model_builder(name)
    options: MutableConfig = {"image_size": shape[1]} if name.startswith("vit_") else {}
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": True}
    net = builder(weights=None, **options)
    linear = [
        (path, module) for path, module in net.named_modules() if isinstance(module, nn.Linear)
    ]
    if not linear:
        raise SpecError(
            f"{name} does not end with a linear layer, in whose place its features would stand"
        )
    # The last linear layer is the classifier: without it, its inputs come out.
    path, last = linear[-1]
    net.set_submodule(path, nn.Identity())
    if shape[0] != 3:
        _first_conv(net, shape[0])
    return encoder_of(net, last.in_features, weights, sha256)


def import_timm(name: str) -> Any:
    """Return the package timm; `SpecError` that names its network `name` where timm is not installed."""
    try:
        import timm
    except ImportError:
        raise SpecError(
            "timm is not installed", value=f"{TIMM_PREFIX}{name}", hint=install_command("timm")
        ) from None
    return timm


def _timm(
    name: str, shape: Shape, *, weights: WeightsFile = "", sha256: WeightsDigest = ""
) -> "nn.Module":
    """Return a network of timm as an encoder of its pooled features."""
    timm = import_timm(name)
    options: MutableConfig = {"pretrained": False, "num_classes": 0, "in_chans": shape[0]}
    try:
        net = timm.create_model(name, img_size=shape[1:], **options)
    except TypeError:  # only some take a size
        net = timm.create_model(name, **options)
    # Networks with a hidden layer after the pooling say its width beside that of the last map.
    features: Any = getattr(net, "head_hidden_size", net.num_features)
    return encoder_of(net, int(features), weights, sha256)


def _first_conv(net: "nn.Module", channels: int) -> None:
    """Replace the first convolution of `net` by one for images with `channels` channels.

    The new convolution has new weights; its other parameters (size, stride, padding) are those of the old one.
    """
    convolutions = [
        (path, module) for path, module in net.named_modules() if isinstance(module, nn.Conv2d)
    ]
    path, first = convolutions[0]
    same: MutableConfig = {
        name: getattr(first, name)
        for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
    }
    convolution = nn.Conv2d(channels, first.out_channels, bias=first.bias is not None, **same)
    net.set_submodule(path, convolution)


def encoder_of(net: "nn.Module", dim: int, file: str = "", sha256: str = "") -> "nn.Module":
    """Return `net` as an encoder with the attribute `dim`, the number of its features.

    Its weights come from `file`, a state dict with this SHA-256 digest, unless that is "".
    """
    if file:
        load_weights(net, file, sha256)
    # The names of the tensors in checkpoints begin with "body."
    encoder = nn.Sequential(OrderedDict(body=net))
    encoder.dim = dim  # type: ignore[assignment]
    return encoder


def _dense(inputs: int, outputs: int) -> "list[nn.Module]":
    """Return a layer of the multi-layer perceptron: linear, batch normalisation, ReLU."""
    return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]


def _conv(inputs: int, outputs: int, stride: int) -> "list[nn.Module]":
    """Return a layer of the small CNN from so many channels to so many: 3x3, batch normalisation, ReLU."""
    conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
