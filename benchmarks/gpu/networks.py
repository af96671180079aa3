"""Training steps of one network alone, eager or tuned, for what is compared with them."""

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.gpu.context import Context, Step
from torch import Tensor, nn

from contrasweep.trainables.encoders import ENCODERS, HEADS
from contrasweep.trainables.losses import build

Shape = tuple[int, int, int]


def network(name: str, shape: Shape) -> nn.Module:
    """An encoder of the platform's table with the head of 128 dimensions after it."""
    encoder = ENCODERS.choose(name).build(shape)
    return nn.Sequential(encoder, HEADS.choose("mlp").build(encoder.dim))


def training_step(
    context: Context,
    name: str,
    batch: int,
    shape: Shape = (3, 32, 32),
    *,
    channels_last: bool = False,
    bf16: bool = False,
    compiled: bool = False,
    seed: int = 0,
) -> Step:
    """One step of SupCon with SGD on both views of `batch` images, random pixels: its time is what counts."""
    torch.manual_seed(seed)
    model: Any = network(name, shape).to(context.device).train()
    views = torch.randn(2 * batch, *shape, device=context.device)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        views = views.to(memory_format=torch.channels_last)
    labels = (torch.arange(batch, device=context.device) % 10).repeat(2)
    loss = build("supcon", "cosine")
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, foreach=True
    )
    forward: Callable[[Tensor], Tensor] = torch.compile(model) if compiled else model

    def step() -> None:
        # Autocast's cache of weights would be freed under a CUDA graph.
        with torch.autocast(context.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            z = forward(views)
        loss.dense(z.float(), labels).backward()  # type: ignore[union-attr]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def graph(step: Step) -> Step:
    """`step` as one CUDA graph: no launch costs. Captured on a stream of its own, as torch asks for."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream):
        step()
    return captured.replay
