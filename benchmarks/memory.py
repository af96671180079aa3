"""GPU memory: the estimate against the LOCAL paper's Table 1, its speed, and, on a GPU, against measured peaks.

python -m benchmarks.memory            # no GPU needed; writes benchmarks/results/memory.md
python -m benchmarks.memory --gpu      # also measures, one fresh process a configuration
"""

import argparse
import json
import multiprocessing
import platform
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import torch
import torchvision

from contrasweep.cluster.memory import Precision, count
from contrasweep.cluster.usage import Meter
from contrasweep.planning.learned import Calibration

TABLE_1_MIB = {(8, 256): 4303, (16, 256): 6153, (8, 512): 9753, (16, 512): 17495}
CALIBRATED = [(8, 256), (16, 256)]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
MEASURED = [
    (name, images, pixels, precision)
    for name, images, pixels in [
        ("resnet18", 32, 32),
        ("resnet18", 128, 32),
        ("resnet18", 64, 128),
        ("resnet34", 64, 128),
        ("resnet34", 32, 256),
        ("resnet50", 32, 128),
        ("resnet50", 16, 256),
        ("resnet50", 32, 256),
    ]
    for precision in PRECISIONS
]
ON_CPU = [
    ("resnet18", 8, 128),
    ("resnet34", 16, 96),
    ("resnet50", 8, 128),
    ("resnet50", 16, 160),  # these calibrate
    ("resnet18", 16, 128),
    ("resnet18", 32, 128),
    ("resnet18", 64, 64),
    ("resnet18", 8, 224),
    ("resnet34", 16, 128),
    ("resnet34", 32, 96),
    ("resnet50", 16, 96),
    ("resnet50", 16, 128),
]  # these are predicted
RESULTS = Path(__file__).parent / "results" / "memory.md"


def table_1() -> list[str]:
    counted = {
        row: count(torchvision.models.resnet50, (2 * row[0], 3, row[1], row[1])).gib
        for row in TABLE_1_MIB
    }
    learned = Calibration()
    for row in CALIBRATED:
        learned.observe("paper", counted[row], TABLE_1_MIB[row] / 1024)
    a, b = learned.constants("paper")
    lines = [
        f"ResNet-50, both images of a pair in one pass, Adam; a = {a * 1024:.0f} MiB, b = {b:.3f} from the rows "
        f"marked *.",
        "",
        "| batch size | pixels | counted MiB | estimated MiB | paper MiB | error |",
        "|---|---|---|---|---|---|",
    ]
    for row, paper in TABLE_1_MIB.items():
        estimated = learned.predict("paper", counted[row]) * 1024
        mark = "*" if row in CALIBRATED else ""
        lines.append(
            f"| {row[0]}{mark} | {row[1]} | {counted[row] * 1024:.0f} | {estimated:.0f} | {paper} | "
            f"{estimated / paper - 1:+.1%} |"
        )
    return lines


def speed() -> list[str]:
    lines = ["| model | pixels | images a step | counted GiB | seconds |", "|---|---|---|---|---|"]
    for name in ("resnet18", "resnet34", "resnet50"):
        for pixels in (32, 128, 256, 512):
            start = time.perf_counter()
            gib = count(getattr(torchvision.models, name), (64, 3, pixels, pixels)).gib
            lines.append(
                f"| {name} | {pixels} | 64 | {gib:.2f} | {time.perf_counter() - start:.2f} |"
            )
    return lines


def cpu_name() -> str:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"model name\s*: (.*)", text)
    return found[1] if found else platform.processor()


def measure(name: str, images: int, pixels: int, precision: str) -> float:
    """Peak GPU memory in GiB of three training steps in this process, as NVML and torch's allocator see it."""
    model = getattr(torchvision.models, name)().cuda().train()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(images, 3, pixels, pixels, device="cuda")
    with Meter(interval_s=0.05) as meter:
        for _ in range(3):
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                output = model(batch)
            output.float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
    assert meter.peak_gpu_memory_gib is not None
    return meter.peak_gpu_memory_gib


def against_gpu() -> list[str]:
    learned = Calibration()
    rows = []
    for i, config in enumerate(MEASURED):
        name, images, pixels, precision = config
        command = [sys.executable, __file__, "--one", json.dumps(config)]
        peak = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        counted = count(
            getattr(torchvision.models, name), (images, 3, pixels, pixels), precision=precision
        ).gib
        rows.append((config, counted, peak))
        if i % 4 == 0:  # a quarter calibrates, the rest is predicted
            learned.observe(precision, counted, peak)
    lines = [
        "| model | images | pixels | precision | estimated GiB | measured GiB | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, images, pixels, precision), counted, peak in rows:
        estimated = learned.predict(precision, counted)
        lines.append(
            f"| {name} | {images} | {pixels} | {precision} | {estimated:.2f} | {peak:.2f} | "
            f"{estimated / peak - 1:+.1%} |"
        )
    return lines


def against_cpu() -> list[str]:
    """Lines that compare the memory model with measured host memory, where there is no GPU."""
    # torch is loaded once; a child begins at the same size each time
    context = multiprocessing.get_context("fork")
    learned = Calibration()
    rows = []
    for i, (name, images, pixels) in enumerate(ON_CPU):
        with context.Pool(1) as pool:
            peak = pool.apply(measure_cpu, (name, images, pixels))
        counted = count(getattr(torchvision.models, name), (images, 3, pixels, pixels)).gib
        rows.append((name, images, pixels, counted, peak))
        if i < 4:
            learned.observe("cpu", counted, peak)
    a, b = learned.constants("cpu")
    lines = [
        f"Host memory (peak resident set) of training in fp32 with Adam; a = {a:.2f} GiB, b = {b:.2f} from the rows "
        f"marked *.",
        "",
        "| model | images | pixels | counted GiB | estimated GiB | measured GiB | error |",
        "|---|---|---|---|---|---|---|",
    ]
    errors = []
    for i, (name, images, pixels, counted, peak) in enumerate(rows):
        estimated = a + b * counted
        if i >= 4:
            errors.append(abs(estimated / peak - 1))
        lines.append(
            f"| {name}{'*' if i < 4 else ''} | {images} | {pixels} | {counted:.2f} | {estimated:.2f} | {peak:.2f} | "
            f"{estimated / peak - 1:+.1%} |"
        )
    errors.sort()
    middle = (errors[len(errors) // 2 - 1] + errors[len(errors) // 2]) / 2
    return [*lines, "", f"Predicted rows: median error {middle:.1%}, largest {errors[-1]:.1%}."]


def measure_cpu(name: str, images: int, pixels: int) -> float:
    torch.set_num_threads(1)
    model = getattr(torchvision.models, name)().train()
    optimizer = torch.optim.Adam(model.parameters())
    with Meter(interval_s=0.05) as meter:
        for _ in range(2):
            model(torch.randn(images, 3, pixels, pixels)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return meter.peak_host_memory_gib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(measure(*json.loads(options.one)))
        return
    torch.set_num_threads(1)
    speeds = speed()
    text = [
        f"# Memory model ({date.today()})",
        "",
        "## The LOCAL paper's Table 1",
        "",
        *table_1(),
        "",
    ]
    text += [
        "## Time of an estimate, one CPU core, no GPU",
        "",
        f"torch {torch.__version__}, {cpu_name()}",
        "",
        *speeds,
        "",
    ]
    if options.cpu:
        text += [f"## Against measured peaks on the CPU, {cpu_name()}", "", *against_cpu(), ""]
    if options.gpu:
        text += [
            f"## Against measured peaks, {torch.cuda.get_device_name()}",
            "",
            *against_gpu(),
            "",
        ]
    RESULTS.write_text("\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    main()
