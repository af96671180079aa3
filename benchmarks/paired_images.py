"""LOCAL on image pairs: what a step costs, and the figures and tables of a study that has run.

    python benchmarks/paired_images.py steps   [--device cuda] [--to benchmarks/results]
    python benchmarks/paired_images.py results --storage URI   [--to benchmarks/results]
    python benchmarks/paired_images.py claims  --storage URI   [--to benchmarks/results]

`steps`: time per training step and peak memory of ResNet-18/34/50 at 32 to 256 pixels; on a GPU also the four rows of
the paper's Table 1 and the gains of channels last, bfloat16 and torch.compile. Each row is a process of its own, since
a process's peak memory never falls. `results`: tables, verdicts and figures of the small studies of
`contrasweep.search_spaces.local` on pairs. `claims`: the verdicts of its two studies of single images and of those of
`contrasweep.search_spaces.orthonormal`.
"""

import argparse
import contextlib
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

CPU_ROWS = [(backbone, side, 4) for backbone in ("resnet18", "resnet34", "resnet50") for side in (32, 64, 128, 256)]
TABLE_1 = [("resnet50", side, pairs) for side in (512, 256) for pairs in (8, 16)]

GEOMETRY = ["centre_cosine", "centre_cosine_max", "train_centre_cosine", "train_centre_cosine_max", "z_raw", "accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "results", "claims", "row"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--storage", default="contrasweep-runs")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--row", default="")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    {"steps": steps, "results": results, "claims": claims, "row": row}[arguments.what](arguments)


def head(title: str) -> str:
    """Title, date and hardware, as every result has them."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"# {title}\n\n{datetime.date.today()}, {model}{gpu}, torch {torch.__version__}, one thread.\n"


def steps(arguments: argparse.Namespace) -> None:
    """Write `paired_images_steps.md`."""
    rows = [{"backbone": b, "side": s, "pairs": n} for b, s, n in CPU_ROWS]
    if arguments.device != "cpu":
        plain = [{"backbone": b, "side": s, "pairs": n} for b, s, n in TABLE_1]
        gains = [
            plain[2] | extra
            for extra in (
                {"channels_last": True},
                {"autocast": True},
                {"channels_last": True, "autocast": True},
                {"channels_last": True, "autocast": True, "compile": True},
            )
        ]
        rows = plain + gains
    lines = [
        head("A training step of LOCAL"),
        "Forward, losses and backward of `pairs` pairs with l, median of the steps after the first. Memory: what the "
        "process's peak rose by on the CPU, what the allocator reserved on a GPU.",
        "",
        "| backbone | px | pairs | options | s/step | memory MiB |",
        "|---|---|---|---|---|---|",
    ]
    for wanted in rows:
        done = subprocess.run(
            [sys.executable, __file__, "row", "--device", arguments.device, "--row", json.dumps(wanted)],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds, memory = json.loads(done.stdout.splitlines()[-1])
        options = ", ".join(k for k in wanted if k not in ("backbone", "side", "pairs")) or "float32"
        lines.append(
            f"| {wanted['backbone']} | {wanted['side']} | {wanted['pairs']} | {options} | {seconds:.3f} | "
            f"{memory:.0f} |"
        )
        print(lines[-1], flush=True)
    name = "paired_images_steps.md" if arguments.device == "cpu" else "paired_images_steps_gpu.md"
    (arguments.to / name).write_text("\n".join(lines) + "\n")


def row(arguments: argparse.Namespace) -> None:
    """Print [seconds, MiB] of one row."""
    from contrasweep.trainables.paired.objective import Objective
    from contrasweep.trainables.paired_images.network import image_model
    from contrasweep.trainables.paired_images.settings import Settings

    wanted, device = json.loads(arguments.row), torch.device(arguments.device)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    latent = {"size": 0 if wanted["side"] > 64 else 4}
    shape = (3, wanted["side"], wanted["side"])
    settings = Settings(encoder=wanted["backbone"], latent=latent).for_images(shape)
    layout = torch.channels_last if wanted.get("channels_last") else torch.contiguous_format
    model: Any = image_model(settings, shape, 5).to(device, memory_format=layout).train()
    labels = torch.arange(wanted["pairs"], device=device) % 3
    objective, parameters = Objective(settings, labels, 5, device), list(model.parameters())
    sides = [
        torch.randn(wanted["pairs"], 3, wanted["side"], wanted["side"], device=device).to(memory_format=layout)
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
    """Write `paired_images.md` and its figures from the small studies of `search_spaces.local` that lie in the
    storage."""
    import contrasweep as cs
    from contrasweep.errors import SpecError
    from contrasweep.search_spaces import local
    from contrasweep.trainables.paired import figures

    names = [
        "SYSTEMS_SMALL",
        "PAIRS_SMALL",
        "COLOUR_SMALL",
        "FLOORS_SMALL",
        "GEOMETRY_SMALL",
        *(f"TABLE_{i}_SMALL" for i in range(2, 6)),
        "SWEEP_SMALL",
        "SICK_SMALL",
    ]
    studies = {}
    for name in names:
        with contextlib.suppress(SpecError):  # not run in this storage
            study = cs.load(getattr(local, name).name, storage=arguments.storage)
            if study.counts.get("done"):
                studies[name] = study
    lines = [
        head("LOCAL and its relatives on real pairs, small scale"),
        "The table of each study as `contrasweep report` prints it, and below it the geometry of z: means over all "
        "trials of the cosines between class centres, on the held-out part and on training rows (1: collapsed onto "
        "the shift that "
        "all pairs share; 0: orthogonal; -1/(K-1): a simplex).",
        "",
        "| study | trials done | minutes, summed over trials |",
        "|---|---|---|",
    ]
    for name, study in studies.items():
        frame = study.to_frame()
        lines.append(
            f"| {name} | {int((frame.status == 'done').sum())} of {len(frame)} | {frame.seconds.sum() / 60:.0f} |"
        )
    for name, study in studies.items():
        lines += ["", f"## {name}", "", getattr(local, name).description, "", study.table().to_markdown().strip(), ""]
        frame = study.to_frame()
        done = frame[frame.status == "done"]
        if name in ("SYSTEMS_SMALL", "PAIRS_SMALL", "COLOUR_SMALL", "GEOMETRY_SMALL"):
            lines += [
                markdown(done.groupby("arm", sort=False)[[m for m in GEOMETRY if m in done]].mean()),
                "",
                f"{study.metric} by fold:",
                "",
                markdown(done.pivot_table(index="fold", columns="arm", values=study.metric, sort=False)),
            ]
        if name in ("SYSTEMS_SMALL", "PAIRS_SMALL", "COLOUR_SMALL"):
            lines += [
                "",
                "Every pair of the five test folds, scored by the networks that had not trained on its group:",
                "",
                study.table(metric="recall", over="groups").to_markdown().strip(),
            ]
        if name == "TABLE_3_SMALL":
            lines += [
                markdown(done.groupby("arm", sort=False)[sorted(c for c in done if c.startswith("f1_class_"))].mean())
            ]
    (arguments.to / "paired_images.md").write_text("\n".join(lines) + "\n")
    if "SYSTEMS_SMALL" in studies:
        systems = studies["SYSTEMS_SMALL"]
        done = systems.to_frame().query("status == 'done' and arm in @local.SYSTEMS")
        trials = Path(arguments.storage) / systems.name / "trials"
        folders = {
            str(arm): [trials / t / "artifacts" for t in rows.trial_id] for arm, rows in done.groupby("arm", sort=False)
        }
        figures.pooled_f1(folders, arguments.to / "paired_images_f1.png")
        figures.draw(folders["local"][0], arguments.to / "paired_images_local")
    if "TABLE_2_SMALL" in studies:
        frame = studies["TABLE_2_SMALL"].to_frame().query("image_size == 32")
        figures.scores_against(frame, "batch_size", arguments.to / "paired_images_batch_size.png")


def claims(arguments: argparse.Namespace) -> None:
    """Write `orthonormal.md`."""
    import contrasweep as cs
    from contrasweep.errors import SpecError
    from contrasweep.search_spaces import local, orthonormal

    places = [(local, "TABLE_6_SMALL"), (local, "TABLE_7_SMALL")]
    places += [(orthonormal, name) for name in ("SMALL_BATCHES", "LONG_TAILS", "CENTRES", "ALPHA", "CLASS_WEIGHTS")]
    lines = [
        head("What LOCAL claims of its loss, on long-tailed digits"),
        "Each study's table as `contrasweep report` prints it; its settings, the data that they were chosen on and its "
        "smallest difference stand beside it in `search_spaces/local.py` and `search_spaces/orthonormal.py`. Below it "
        "means over its trials: the share of negatives at a cosine below 0, over all steps of the last epoch, and the "
        "mean absolute cosine of two class centres, held out (0: orthogonal; 1/9: a simplex of ten classes).",
    ]
    for module, name in places:
        study = getattr(module, name)
        with contextlib.suppress(SpecError):  # not run in this storage
            loaded = cs.load(study.name, storage=arguments.storage)
            frame = loaded.to_frame()
            done = frame[frame.status == "done"]
            text = loaded.table().to_markdown().strip()
            took = f"{len(done)} trials, {done.seconds.sum() / 60:.1f} minutes of training, summed."
            lines += ["", f"## {name}", "", study.description, "", text, "", took, ""]
            shown = [m for m in ("f1_macro", "accuracy", "negative_cosines", "centre_cosine_abs") if m in done]
            lines += [markdown(done.groupby("arm", sort=False)[shown].mean())]
    (arguments.to / "orthonormal.md").write_text("\n".join(lines) + "\n")


def markdown(frame: Any) -> str:
    """A frame as a Markdown table, three decimals."""
    lines = [[str(frame.index.name), *map(str, frame.columns)], ["---"] * (1 + len(frame.columns))]
    lines += [
        [str(name), *(f"{value:.3f}" for value in values)]
        for name, values in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
