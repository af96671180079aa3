"""Encoders: images [n c h w] to feature vectors [n d]. One table; adding one is a function and a line."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from contrasweep.errors import SpecError, choose_from

Shape = tuple[int, int, int]
"""channels, height, width"""


class Encoder(nn.Module):
    """A network from images to features, which knows how many it gives (`dim`)."""

    def __init__(self, body: nn.Module, dim: int) -> None:
        super().__init__()
        self.body, self.dim = body, dim

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        features: Tensor = self.body(images)
        return features


def mlp(shape: Shape, width: int) -> Encoder:
    """Two hidden layers on the flattened image; `width` units (default 256)."""
    width = width or 256
    inputs = shape[0] * shape[1] * shape[2]
    layers = [nn.Flatten(), *_dense(inputs, width), *_dense(width, width)]
    return Encoder(nn.Sequential(*layers), width)


def small_cnn(shape: Shape, width: int) -> Encoder:
    """Three 3x3 convolutions, the last two with stride 2; `width` channels in the first (default 16), four times
    as many features. The first has a stride too where images are larger than 16 pixels, so that it gives about 16."""
    width = width or 16
    stem = max(1, round(min(shape[1:]) / 16))
    layers = [*_conv(shape[0], width, stem), *_conv(width, 2 * width, 2), *_conv(2 * width, 4 * width, 2)]
    return Encoder(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 4 * width)


def resnet(depth: int) -> Callable[[Shape, int], Encoder]:
    """torchvision's ResNet of this depth, without weights. Images up to 64 pixels get SupContrast's small-image
    stem: a 3x3 convolution with stride 1 and no pooling, because the ImageNet stem would shrink 32 pixels to 8."""

    def build(shape: Shape, width: int) -> Encoder:
        import torchvision  # costs more than a second, so only those who need it pay

        if width:
            raise SpecError("a ResNet's width is fixed", place="encoder_width", value=width, hint="leave it at 0")
        net = getattr(torchvision.models, f"resnet{depth}")(weights=None)
        if max(shape[1:]) <= 64:
            net.conv1 = nn.Conv2d(shape[0], 64, 3, stride=1, padding=1, bias=False)
            nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
            net.maxpool = nn.Identity()
        elif shape[0] != 3:
            net.conv1 = nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False)
        dim = net.fc.in_features
        net.fc = nn.Identity()
        return Encoder(net, dim)

    build.__doc__ = f"torchvision's ResNet-{depth}, with a 3x3 stem for images up to 64 pixels."
    return build


ENCODERS: dict[str, Callable[[Shape, int], Encoder]] = {
    "cnn": small_cnn,
    "mlp": mlp,
    "resnet18": resnet(18),
    "resnet34": resnet(34),
    "resnet50": resnet(50),
}


def build_encoder(name: str, shape: Shape, width: int = 0) -> Encoder:
    """The encoder `name` for images of `shape`; `width` 0 is the encoder's own. Initialised from torch's global
    generator, so seed it before."""
    if name not in ENCODERS:
        raise SpecError(
            "there is no such encoder", place="encoder", value=name, hint=choose_from("encoders", list(ENCODERS), name)
        )
    return ENCODERS[name](shape, width)


def projection_head(kind: str, dim: int, out: int) -> nn.Module:
    """SupContrast's head from `dim` features to `out`: `mlp` (D-ReLU-D->out), `linear`, or `none` (features as they
    are). It does not normalise: that is the similarity's part."""
    heads: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: nn.Sequential(nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, out)),
        "linear": lambda: nn.Linear(dim, out),
        "none": nn.Identity,
    }
    if kind not in heads:
        raise SpecError(
            "there is no such projection head",
            place="projection",
            value=kind,
            hint=choose_from("heads", list(heads), kind),
        )
    return heads[kind]()


def _dense(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]


def _conv(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
