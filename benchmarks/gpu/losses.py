"""The losses on the device: their values and gradients against float64 on the CPU, and the speed of large batches."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from benchmarks.gpu.context import Context
from benchmarks.gpu.results import Check, Section
from torch import Tensor

from contrasweep.trainables.losses import LOSSES, build, tiled
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.loss import Loss
from contrasweep.trainables.losses.proxies import ComposedProxyLoss, ProxyLoss

DIM = 128
CLASSES = 10
VALUE = 2e-5
GRADIENT = 1e-4
"""The largest error in float32: of the value, relative to one more than it, because a small loss is a difference of
large scores; and of the gradient, the norm of the differences relative to its own."""
BF16 = 2**-7
"""The same of a gradient that bfloat16 holds, which keeps 8 bits."""


def correctness(context: Context) -> Iterator[Section]:
    """Every loss and similarity, dense and in tiles, in float32 and with embeddings in bfloat16."""
    section = Section(
        "Losses against float64",
        "Each loss with each similarity, value and gradient on the device against float64 on the CPU: the largest "
        "errors over the similarities.",
    )
    yield section
    rows = 64 if context.small else 512
    for name in LOSSES:
        errors: dict[str, float] = {}
        for similarity in similarities(name):
            for kind, error in _errors(context, name, similarity, rows):
                errors[kind] = max(errors.get(kind, 0.0), error)
                if kind.endswith("value"):
                    limit = VALUE
                elif kind.startswith("bf16"):
                    limit = BF16
                else:
                    limit = GRADIENT
                label = f"{name}, {similarity}, {kind}" if similarity else f"{name}, {kind}"
                section.checks.append(Check(label, error, limit))
        section.rows.append({"loss": name, "similarities": len(similarities(name)), **errors})
        context.require(5)


def similarities(name: str) -> tuple[str | None, ...]:
    """Names of the similarities that a loss can use; (None,) for a loss of two views, which uses none."""
    loss = LOSSES[name]
    return loss.similarities if isinstance(loss, Loss) else (None,)


def batch(rows: int, seed: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings [n d] in float64 with two views of each instance, labels [n] and instance ids [n]; on the CPU.

    With seeds 0 and 1, triples of 512 rows lie within float32's rounding of their hinges' kinks, where the gradient
    jumps; with seed 2 none does.
    """
    generator = torch.Generator().manual_seed(seed)
    half = rows // 2
    labels = torch.randint(CLASSES, (half,), generator=generator)
    centres = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, DIM, generator=generator, dtype=torch.float64)
    return (
        (centres[labels.repeat(2)] + noise).to(torch.bfloat16).double(),
        labels.repeat(2),
        torch.arange(half).repeat(2),
    )


def _errors(
    context: Context, name: str, similarity: str | None, rows: int
) -> Iterator[tuple[str, float]]:
    of_classes = isinstance(LOSSES[name], ProxyLoss)
    sizes: dict[str, Any] = {"dim": DIM, "classes": CLASSES} if of_classes else {}
    loss = build(name, similarity, **sizes)
    weights = (
        loss.weights.double() if isinstance(loss, ComposedProxyLoss) and loss.weights else None
    )
    # bfloat16 holds these embeddings, so that only the arithmetic is compared
    z, labels, instances = batch(rows)
    expected, slope = _value_and_gradient(
        functools.partial(loss, labels=labels, instance_ids=instances), z
    )
    labels = labels.to(context.device)
    instances = instances.to(context.device)
    if weights is not None:
        weights.to(context.device, torch.float32)
    forms: dict[str, tuple[Callable[[Tensor], Tensor], torch.dtype]] = {
        "fp32": (lambda z: loss(z, labels, instances), torch.float32),
        "bf16": (lambda z: loss(z, labels, instances), torch.bfloat16),
    }
    if isinstance(loss, ComposedLoss) and loss.can_tile:
        ids = loss.ids(labels, instances)
        forms["tiles"] = (
            lambda z: loss.in_tiles(z.float(), ids, max_scores=rows * 40),
            torch.float32,
        )
    for form, (function, dtype) in forms.items():
        value, gradient = _value_and_gradient(function, z.to(context.device, dtype))
        yield f"{form} value", abs(value - expected) / (1 + abs(expected))
        difference = (gradient.double().cpu() - slope).norm() / slope.norm().clamp(min=1e-12)
        yield f"{form} gradient", float(difference)


def _value_and_gradient(function: Callable[[Tensor], Tensor], z: Tensor) -> tuple[float, Tensor]:
    z = z.detach().requires_grad_()
    value = function(z)
    (gradient,) = torch.autograd.grad(value, z)
    return float(value.detach()), gradient


def speed(context: Context) -> Iterator[Section]:
    """Time of the tiled losses by batch and tile size, against the dense formula and the device's matrix products."""
    section = Section(
        "Large batches",
        "Forward and backward in float32, d = 128, cosine; `dense` is SupCon's formula as pytorch-metric-learning "
        "writes it, over whole matrices. TFLOP/s count the three products that the loss and its gradient take "
        "(6 n n d); the last column is the share of what the largest of this device's float32 products reached.",
    )
    yield section
    size = 512 if context.small else 8192
    a = torch.randn(size, size, device=context.device)
    peak = 2 * size**3 / context.seconds_each(lambda: a @ a) / 1e12
    section.notes.append(
        f"A product of two {size} x {size} matrices in float32 runs at {peak:.3g} TFLOP/s."
    )
    for rows in (512, 1024) if context.small else (4096, 8192, 16384, 32768, 65536):
        z, labels, _ = batch(rows)
        z = z.to(context.device, torch.float32).requires_grad_()
        labels = labels.to(context.device)
        for name in ("supcon", "sincere", "ocl"):
            loss = build(name, "cosine")
            assert isinstance(loss, ComposedLoss)
            steps = {
                f"tiles of 2^{power}": functools.partial(
                    _step, functools.partial(_tiled, loss, labels, 2**power), z
                )
                for power in ((14, 17) if context.small else (22, 24, 26, 28))
            }
            if rows <= (1024 if context.small else 16384) and name == "supcon":
                steps["dense"] = functools.partial(
                    _step, functools.partial(dense_supcon, labels=labels), z
                )
            context.require(20 if rows > 20000 else 8)
            for form, seconds in context.interleaved(steps, 0.2, 3).items():
                context.reset_peak()
                steps[form]()
                context.synchronize()
                rate = 6 * rows**2 * DIM / seconds / 1e12
                section.rows.append(
                    {
                        "loss": name,
                        "n": rows,
                        "form": form,
                        "ms": 1e3 * seconds,
                        "TFLOP/s": rate,
                        "of a product's": rate / peak,
                        "peak GiB": context.peak_gib(),
                    }
                )
    chosen = tiled.TILE_SCORES.get(context.device.type, tiled.TILE_SCORES["cuda"])
    section.notes.append(f"The losses take tiles of {chosen} scores on this device.")


def _tiled(loss: ComposedLoss, labels: Tensor, scores: int, z: Tensor) -> Tensor:
    return loss.in_tiles(z, labels, max_scores=scores)


def _step(function: Callable[[Tensor], Tensor], z: Tensor) -> Any:
    return torch.autograd.grad(function(z), z)


def dense_supcon(z: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """SupCon over whole [n n] matrices (Khosla et al. 2020, equation 2), in pytorch-metric-learning's steps."""
    z = torch.nn.functional.normalize(z, dim=1)
    scores = z @ z.T / temperature
    scores = scores - scores.max(1, keepdim=True).values.detach()
    positive = (labels[:, None] == labels).fill_diagonal_(False).to(scores.dtype)
    every = torch.ones_like(positive).fill_diagonal_(0)
    log_share = scores - torch.log((scores.exp() * every).sum(1, keepdim=True))
    return -((positive * log_share).sum(1) / positive.sum(1).clamp(min=1)).mean()
