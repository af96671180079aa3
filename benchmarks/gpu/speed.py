"""What memory layout, bfloat16, compilation and CUDA graphs give a trial that runs alone."""

from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.gpu.context import Context, Step
from benchmarks.gpu.networks import graph, training_step
from benchmarks.gpu.results import Section


def engines(context: Context) -> Iterator[Section]:
    """Images a second of one network alone, each way of running it against plain float32."""
    section = Section(
        "One trial alone",
        "Images a second (two views of each image of the batch), and the ratio to plain float32 in the same run.",
    )
    yield section
    models = (
        [("cnn", 8)]
        if context.small
        else [("resnet18", 16), ("resnet18", 128), ("resnet50", 64), ("cnn", 32)]
    )
    for name, batch in models:
        ways: list[dict[str, Any]] = [
            {},
            {"channels_last": True},
            {"channels_last": True, "bf16": True},
        ]
        steps: dict[str, Step] = {}
        for way in ways:
            label = ", ".join(way) or "plain"
            steps[label] = training_step(context, name, batch, **way)
            if context.cuda:
                steps[f"{label}, graph"] = graph(training_step(context, name, batch, **way))
        if context.cuda:
            context.require(90)
            steps["channels_last, bf16, compiled"] = training_step(
                context, name, batch, channels_last=True, bf16=True, compiled=True
            )
        context.require(10)
        times = context.interleaved(steps)
        for label, seconds in times.items():
            section.rows.append(
                {
                    "network": name,
                    "batch": batch,
                    "way": label,
                    "images a second": 2 * batch / seconds,
                    "ratio": times["plain"] / seconds,
                }
            )
        del steps
        torch._dynamo.reset()
        context.reset_peak()
