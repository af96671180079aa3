"""Trials of `trainables.contrastive` on the device, on scikit-learn's digits: resumed to the bit, and for real."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.gpu.context import Context, OutOfTime
from benchmarks.gpu.results import Check, Section

from contrasweep.data import resolve
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.checkpoint import FILE
from contrasweep.trainables.contrastive import train
from contrasweep.trial import Report, Trial

ARMS = {
    "supcon": {"name": "supcon", "temperature": 0.1},
    "sincere": {"name": "sincere", "temperature": 0.1},
    "ocl": {"name": "ocl", "temperature": 0.1},
}


def trial(data: Manifest, arm: str, **config: Any) -> Trial:
    """A trial of one fold of the digits."""
    return Trial(
        "gpu",
        arm,
        "contrasweep.trainables.contrastive:train",
        {"loss": ARMS[arm], **config},
        data,
        fold=0,
        seed=0,
    )


def resumed(context: Context) -> Iterator[Section]:
    """A trial that is stopped after each epoch and goes on from its checkpoint gives the reports of a calm one."""
    section = Section(
        "Resumed to the bit",
        "Reports of a trial that is stopped in the middle and goes on from its checkpoint, against one in one go.",
    )
    yield section
    with tempfile.TemporaryDirectory() as folder:
        data = resolve("digits-lt", folds=5, storage=folder, write=True)
        for encoder in ("cnn",) if context.small else ("cnn", "mlp", "resnet18"):
            for autocast in (False,) if context.small or encoder == "mlp" else (False, True):
                context.require(30)
                one = trial(
                    data,
                    "supcon",
                    encoder=encoder,
                    epochs=4,
                    batch_size=64,
                    checkpoint_every=1,
                    autocast=autocast,
                    device=context.device.type,
                )
                calm = [_numbers(report) for report in train(one)]
                gone_on = [
                    *_until(one, 2, Path(folder) / "checkpoint"),
                    *_after(one, Path(folder) / "checkpoint"),
                ]
                differing = sum(a != b for a, b in zip(calm, gone_on, strict=True))
                way = f"{encoder}, {'bf16' if autocast else 'fp32'}"
                section.rows.append({"trial": way, "reports": len(calm), "differing": differing})
                section.checks.append(Check(f"{way}: reports that differ", differing, 0.5))


def _until(trial: Trial, epoch: int, keep: Path) -> Iterator[object]:
    reports = train(trial)
    for report in reports:
        yield _numbers(report)
        if report.step == epoch:
            assert report.checkpoint is not None
            keep.mkdir(exist_ok=True)
            (keep / FILE).write_bytes((report.checkpoint / FILE).read_bytes())
            break
    reports.close()


def _after(one: Trial, checkpoint: Path) -> Iterator[object]:
    yield from map(_numbers, train(one, resume=checkpoint))


def _numbers(report: Report) -> object:
    items = {name: np.asarray(values).tobytes() for name, values in report.items.items()}
    return report.step, {name: float(value).hex() for name, value in report.metrics.items()}, items


def for_real(context: Context) -> Iterator[Section]:
    """SupCon, SINCERE and OCL trained in the time that is left, shared by the three: what the table would say."""
    section = Section(
        "Trained for real",
        "The three losses on one fold of the long-tailed digits (real images, 8 x 8), ResNet-18, batch 64; as many "
        "epochs as their share of the command's time allows.",
    )
    yield section
    with tempfile.TemporaryDirectory() as folder:
        data = resolve("digits-lt", folds=5, storage=folder, write=True)
        for number, arm in enumerate(ARMS):
            seconds = (
                2.0 if context.small else min(180.0, (context.left - 15) / (len(ARMS) - number))
            )
            if seconds < (1 if context.small else 20):
                raise OutOfTime("less than 20 s were left for an arm")
            section.rows.append(_trained(context, data, arm, seconds))


def _trained(
    context: Context, data: Manifest, arm: str, seconds: float
) -> dict[str, str | int | float | None]:
    device = context.device.type
    encoder = "cnn" if context.small else "resnet18"
    shared: dict[str, Any] = {
        "encoder": encoder,
        "batch_size": 64,
        "device": device,
        "learning_rate": 0.05,
    }
    began = time.monotonic()
    list(train(trial(data, arm, epochs=2, **shared)))
    each = (time.monotonic() - began) / 2
    epochs = int(max(2, min(400, (seconds - 2 * each) / each)))
    context.reset_peak()
    began = time.monotonic()
    reports = list(train(trial(data, arm, epochs=epochs, **shared)))
    took = time.monotonic() - began
    last = reports[-1].metrics
    scores = {name: float(last[name]) for name in ("knn1", "probe", "f1_macro", "map_at_r")}
    return {
        "loss": arm,
        "epochs": epochs,
        "seconds": took,
        "first loss": float(reports[0].metrics["loss"]),
        "last loss": float(last["loss"]),
        **scores,
        "peak GiB": context.peak_gib(),
    }
