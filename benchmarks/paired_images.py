"""LOCAL on image pairs: what a step costs, and the figures and tables of a study that has run.

    python benchmarks/paired_images.py steps   [--device cuda] [--to benchmarks/results]
    python benchmarks/paired_images.py results --storage URI   [--to benchmarks/results]
    python benchmarks/paired_images.py floor   --data FOLDER   [--to benchmarks/results]

`steps`: time per training step and peak memory of ResNet-18/34/50 at 32 to 256 pixels; on a GPU also the four rows of
the paper's Table 1 and the gains of channels last, bfloat16 and torch.compile. Each row is a process of its own, since
a process's peak memory never falls. `results`: the table, verdicts and figures of `search_spaces.local:SYSTEMS_SMALL`.
`floor`: boosted trees on colour statistics of the pairs, on the same folds.
"""

import argparse
import datetime
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

CPU_ROWS = [
    (backbone, side, 4) for backbone in ("resnet18", "resnet34", "resnet50") for side in (32, 64, 128, 256)
]
TABLE_1 = [("resnet50", side, pairs) for side in (512, 256) for pairs in (8, 16)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "results", "floor", "row"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--storage", default="contrasweep-runs")
    parser.add_argument("--data", default="")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--row", default="")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    {"steps": steps, "results": results, "floor": floor, "row": row}[arguments.what](arguments)


def head(title: str) -> str:
    """Title, date and hardware, as every result has them."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"# {title}\n\n{datetime.date.today()}, {model}{gpu}, torch {torch.__version__}, one thread.\n"


def steps(arguments: argparse.Namespace) -> None:
    """Write `paired_images_steps.md`."""
    rows = [{"backbone": b, "side": s, "pairs": n} for b, s, n in CPU_ROWS]
    if arguments.device != "cpu":
        plain = [{"backbone": b, "side": s, "pairs": n} for b, s, n in TABLE_1]
        gains = [plain[2] | extra for extra in ({"channels_last": True}, {"autocast": True},
                 {"channels_last": True, "autocast": True}, {"channels_last": True, "autocast": True, "compile": True})]  # fmt: skip
        rows = plain + gains
    lines = [head("A training step of LOCAL"), "Forward, losses and backward of `pairs` pairs with l, median of the steps after the first. Memory: what the "
             "process's peak rose by on the CPU, what the allocator reserved on a GPU.", "",
             "| backbone | px | pairs | options | s/step | memory MiB |", "|---|---|---|---|---|---|"]  # fmt: skip
    for wanted in rows:
        done = subprocess.run([sys.executable, __file__, "row", "--device", arguments.device, "--row", json.dumps(wanted)],
                              capture_output=True, text=True, check=True)  # fmt: skip
        seconds, memory = json.loads(done.stdout.splitlines()[-1])
        options = ", ".join(k for k in wanted if k not in ("backbone", "side", "pairs")) or "float32"
        lines.append(
            f"| {wanted['backbone']} | {wanted['side']} | {wanted['pairs']} | {options} | {seconds:.3f} | {memory:.0f} |"
        )
        print(lines[-1], flush=True)
    name = "paired_images_steps.md" if arguments.device == "cpu" else "paired_images_steps_gpu.md"
    (arguments.to / name).write_text("\n".join(lines) + "\n")


def row(arguments: argparse.Namespace) -> None:
    """Print [seconds, MiB] of one row."""
    from trainables.paired_images.model import image_model
    from trainables.paired_images.objective import Objective
    from trainables.paired_images.settings import Settings

    wanted, device = json.loads(arguments.row), torch.device(arguments.device)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    settings = Settings(backbone=wanted["backbone"], lat_size=0 if wanted["side"] > 64 else 4)
    layout = torch.channels_last if wanted.get("channels_last") else torch.contiguous_format
    model: Any = (
        image_model(settings, (3, wanted["side"], wanted["side"]), 5).to(device, memory_format=layout).train()
    )
    labels = torch.arange(wanted["pairs"], device=device) % 3
    objective, parameters = Objective(settings, labels, 5, device), list(model.parameters())
    sides = [
        torch.randn(wanted["pairs"], 3, wanted["side"], wanted["side"], device=device).to(
            memory_format=layout
        )
        for _ in range(2)
    ]
    if wanted.get("compile"):
        model = torch.compile(model)
    before, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(4 if device.type == "cpu" else 20):
        start = time.process_time() if device.type == "cpu" else time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=bool(wanted.get("autocast"))):
            out = model(*sides)
        torch.autograd.grad(objective(out, labels, 0.5)[0], parameters)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.process_time() if device.type == "cpu" else time.perf_counter()) - start)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    memory = torch.cuda.max_memory_reserved() / 2**20 if device.type == "cuda" else peak
    print(json.dumps([float(np.median(times[1:])), memory]))


def results(arguments: argparse.Namespace) -> None:
    """Write `paired_images_systems.md` and its figures."""
    import contrasweep as cs
    from search_spaces.local import SYSTEMS_SMALL
    from trainables.paired_images import figures

    found = cs.load(SYSTEMS_SMALL.name, storage=arguments.storage)
    frame = found.to_frame()
    done = frame[frame.status == "done"]
    metrics = [
        "f1_macro",
        "accuracy",
        "centre_cosine",
        "centre_cosine_max",
        "train_centre_cosine",
        "train_centre_cosine_max",
    ]
    wide = done.pivot_table(index="fold", columns="arm", values="f1_macro")
    lines = [head("LOCAL and its relatives on OMBRIA's pairs, five grouped folds"), f"{len(done)} of {len(frame)} trials done.", "",
             markdown(done.groupby("arm")[metrics].mean()), "", "f1_macro by fold:", "", markdown(wide), ""]  # fmt: skip
    for arm in wide.columns:
        if arm != "local":
            verdict = str(found.compare("local", arm)).replace("A against B", f"local against {arm}")
            lines.append(f"- {verdict}")
    (arguments.to / "paired_images_systems.md").write_text("\n".join(lines) + "\n")
    trials = Path(arguments.storage) / SYSTEMS_SMALL.name / "trials"
    folders = {arm: [trials / t / "artifacts" for t in rows.trial_id] for arm, rows in done.groupby("arm")}
    figures.pooled_f1(folders, arguments.to / "paired_images_f1.png")
    for name, file in figures.draw(folders["local"][0], arguments.to / "paired_images_local").items():
        print(name, file)


def markdown(frame: Any) -> str:
    """A frame as a Markdown table, three decimals."""
    lines = [[str(frame.index.name), *map(str, frame.columns)], ["---"] * (1 + len(frame.columns))]
    lines += [
        [str(name), *(f"{value:.3f}" for value in values)]
        for name, values in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def floor(arguments: argparse.Namespace) -> None:
    """Write `paired_images_floor.md`: what colour alone gives, per fold."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import f1_score

    from contrasweep.data import open_dataset, resolve

    dataset = open_dataset(resolve(arguments.data, folds=5, storage=arguments.storage))
    lines = [head("Colour statistics of the pairs, boosted trees"), "| fold | macro-F1 |", "|---|---|"]
    values = []
    for fold in range(5):
        train, test = dataset.parts(fold)
        trees = HistGradientBoostingClassifier(class_weight="balanced", random_state=0)
        trees.fit(colours(train), train.labels)
        values.append(f1_score(test.labels, trees.predict(colours(test)), average="macro"))
        lines.append(f"| {fold} | {values[-1]:.3f} |")
    lines.append(f"| mean | {np.mean(values):.3f} |")
    (arguments.to / "paired_images_floor.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def colours(part: Any) -> Any:
    """Mean, deviation and five quantiles of each channel of both images, and their differences [n 63]."""
    sides = []
    for name in ("pre", "post"):
        pixels = np.asarray(part.array(name)).reshape(len(part), -1, 3).astype(np.float32)
        sides.append(
            np.concatenate(
                [pixels.mean(1), pixels.std(1), *np.quantile(pixels, [0.05, 0.25, 0.5, 0.75, 0.95], axis=1)],
                1,
            )
        )
    return np.concatenate([*sides, sides[1] - sides[0]], axis=1)


if __name__ == "__main__":
    main()
