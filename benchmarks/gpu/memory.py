"""Memory predicted by the platform's model against measured peaks."""

from collections.abc import Iterator

import torch
import torchvision
from benchmarks.gpu.context import Context
from benchmarks.gpu.results import Section

from contrasweep.cluster.memory import Precision, count
from contrasweep.cluster.usage import Meter
from contrasweep.planning.learned import Calibration

Setting = tuple[str, int, int, Precision]
"""network, images of a step, pixels, precision"""
TABLE_1: tuple[Setting, ...] = tuple(
    ("resnet50", 2 * pairs, px, "fp32") for px in (256, 512) for pairs in (8, 16)
)
"""The LOCAL paper's Table 1: pairs, so two images each."""
MORE: tuple[Setting, ...] = (
    ("resnet18", 32, 32, "fp32"),
    ("resnet18", 256, 32, "bf16"),
    ("resnet18", 64, 128, "fp32"),
    ("resnet18", 128, 128, "bf16"),
    ("resnet34", 64, 128, "fp32"),
    ("resnet34", 32, 256, "bf16"),
    ("resnet34", 128, 96, "fp32"),
    ("resnet34", 64, 224, "bf16"),
    ("resnet50", 32, 128, "fp32"),
    ("resnet50", 64, 128, "bf16"),
    ("resnet50", 32, 224, "fp32"),
    ("resnet50", 64, 224, "bf16"),
)
SMALL: tuple[Setting, ...] = (("resnet18", 2, 32, "fp32"), ("resnet18", 4, 32, "bf16"))


def peaks(context: Context) -> Iterator[Section]:
    """Counts of the model, calibrated on every fourth setting, against what training took."""
    section = Section(
        "Memory",
        "Peak of three training steps with Adam as torch's allocator reserved it, with what the process holds beside "
        "it (the CUDA context, once), against the estimate; rows marked * calibrate it, the rest is predicted.",
    )
    yield section
    outside = _outside(context)
    section.notes.append(f"Beside torch's allocator the process holds {outside:.2f} GiB.")
    calibration = Calibration()
    measured = []
    for i, setting in enumerate(SMALL if context.small else (*TABLE_1, *MORE)):
        context.require(10)
        name, images, pixels, precision = setting
        counted = count(
            getattr(torchvision.models, name), (images, 3, pixels, pixels), precision=precision
        ).gib
        peak = _peak(context, setting) + outside
        measured.append((i, setting, counted, peak))
        if i % 4 == 0:
            calibration.observe(precision, counted, peak)
    errors = []
    for i, (name, images, pixels, precision), counted, peak in measured:
        estimate = calibration.predict(precision, counted)
        if i % 4:
            errors.append(abs(estimate / peak - 1))
        section.rows.append(
            {
                "network": name + ("" if i % 4 else "*"),
                "images": images,
                "pixels": pixels,
                "precision": precision,
                "counted GiB": counted,
                "estimated GiB": estimate,
                "measured GiB": peak,
                "error": f"{estimate / peak - 1:+.1%}",
            }
        )
    if errors:
        errors.sort()
        section.notes.append(
            f"Predicted rows: median error {errors[len(errors) // 2]:.1%}, largest {errors[-1]:.1%}."
        )


def _outside(context: Context) -> float:
    """GiB of GPU memory that this process holds outside of torch's allocator, after a product and a convolution."""
    if not context.cuda:
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return max(0.0, (total - free - torch.cuda.memory_reserved()) / 2**30)


def _peak(context: Context, setting: Setting) -> float:
    name, images, pixels, precision = setting
    with Meter(interval_s=0.05) as meter:
        context.reset_peak()
        model = getattr(torchvision.models, name)().to(context.device).train()
        optimizer = torch.optim.Adam(model.parameters())
        x = torch.randn(images, 3, pixels, pixels, device=context.device)
        for _ in range(3):
            with torch.autocast(context.device.type, torch.bfloat16, enabled=precision == "bf16"):
                output = model(x)
            output.float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        context.synchronize()
    peak = context.peak_gib()
    return meter.peak_host_memory_gib if peak is None else peak
