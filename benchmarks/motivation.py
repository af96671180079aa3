"""LOCAL's Figures 2 to 5, measured: how far apart class centres lie, at batches of two images and under imbalance.

    python -m benchmarks.motivation [--storage FOLDER] [--to benchmarks/results]

The figures are of embeddings that drift. This runs `search_spaces.local:MOTIVATION` (a second call only reads) and
draws the largest absolute cosine of two class centres over the batch size, for SCL and OCL, on balanced and on
long-tailed digits: motivation.md and motivation.png.
"""

import argparse
from datetime import date
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import contrasweep as cs
from contrasweep.results.table import Table
from contrasweep.search_spaces.local import MOTIVATION

RESULTS = Path(__file__).parent / "results"
COLOURS = {"scl": "tab:orange", "ocl": "tab:blue"}


def draw(table: Table, to: Path) -> None:
    """Draw a panel for each dataset, with each arm's mean and interval at each batch size; the goals are dashed."""
    figure = Figure(figsize=(7, 3), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    datasets = MOTIVATION.axes["data"]
    batches = MOTIVATION.axes["batch_size"]
    panels = figure.subplots(1, len(datasets), sharey=True)
    for axes, data in zip(panels, datasets, strict=True):
        for arm, colour in COLOURS.items():
            cells = [table.cells[(str(data), str(batch)), (arm,)] for batch in batches]
            low, means, high = np.array(
                [(cell.low, cell.mean, cell.high) for cell in cells], float
            ).T
            axes.errorbar(
                range(len(batches)),
                means,
                yerr=[means - low, high - means],
                color=colour,
                marker="o",
                capsize=3,
                label=arm.upper(),
            )
        for goal, colour in ((1 / 9, COLOURS["scl"]), (0.0, COLOURS["ocl"])):
            axes.axhline(goal, color=colour, linestyle="--", linewidth=0.8)
        axes.set(title=str(data), xlabel="batch size", ylim=(-0.02, 1.02))
        axes.set_xticks(range(len(batches)), map(str, batches))
    panels[0].set_ylabel("largest |cosine| of two class centres")
    panels[0].legend(frameon=False)
    figure.savefig(to)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default="./contrasweep-runs")
    parser.add_argument("--to", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = cs.run(MOTIVATION, storage=options.storage, tracking="none")
    table = results.table(rows=["data", "batch_size"], columns=["arm"])
    draw(table, options.to / "motivation.png")
    (options.to / "motivation.md").write_text(
        "# Class centres at batches of two, and under imbalance\n\n"
        f"{date.today()}, by `python -m benchmarks.motivation`. LOCAL's Figures 2 to 5 are of embeddings that drift; "
        "here it is measured. The cosine is\nthe largest of any two of ten class centres of z, of training rows. "
        "motivation.png draws it over the batch size. Its dashed lines are\nwhat a simplex has (SCL's goal, 1/9) "
        f"and orthogonal centres (OCL's, 0).\n\n{table.to_markdown()}"
    )


if __name__ == "__main__":
    main()
