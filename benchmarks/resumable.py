"""Simulations that go on where they ended: what came of each study is a line of a file, which says what there is."""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

AT_ONCE = 25
"""Studies of one kind that are run before the clock is read."""


def command_line(doc: str | None, name: str, studies: int) -> argparse.Namespace:
    """Parse a simulation's arguments: `simulate` (seconds, number of studies) or `write`
    (benchmarks/results/`name`.md).
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("what", choices=["simulate", "write"])
    parser.add_argument("--studies", type=int, default=studies)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--rows", type=Path, default=Path(f"build/{name}.jsonl"))
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / f"{name}.md"
    )
    return parser.parse_args()


def main(
    doc: str | None,
    name: str,
    kinds: Iterable[str],
    study: Callable[[str, int], Any],
    page: Callable[[dict[str, list[Any]]], Iterable[str]],
) -> None:
    """The command of a simulation: `simulate` studies of each kind, or `write` the results page."""
    options = command_line(doc, name, 1000)
    if options.what == "simulate":
        simulate(options.rows, dict.fromkeys(kinds, options.studies), study, options.seconds)
    else:
        write_lines(options.output, page(read_rows(options.rows, kinds)))


def simulate(
    rows: Path, wanted: Mapping[str, int], study: Callable[[str, int], Any], seconds: float
) -> None:
    """Run `study(kind, seed)` until each kind has as many studies as `wanted`, or for `seconds`.

    The kind that has the smallest share of its studies is next.
    """
    rows.parent.mkdir(parents=True, exist_ok=True)
    counts = {kind: len(known) for kind, known in read_rows(rows, wanted).items()}
    end = time.monotonic() + seconds
    with rows.open("a") as sink:
        while time.monotonic() < end:
            kind = min(wanted, key=lambda kind: counts[kind] / wanted[kind])
            if counts[kind] >= wanted[kind]:
                return
            for seed in range(counts[kind], min(wanted[kind], counts[kind] + AT_ONCE)):
                sink.write(
                    json.dumps({"kind": kind, "seed": seed, "came": study(kind, seed)}) + "\n"
                )
                counts[kind] += 1
            sink.flush()


def read_rows(rows: Path, kinds: Iterable[str]) -> dict[str, list[Any]]:
    """Outcomes of the studies of each kind so far, in the order of their seeds."""
    known: dict[str, list[Any]] = {kind: [] for kind in kinds}
    if rows.exists():
        for line in rows.read_text().splitlines():
            row = json.loads(line)
            known[row["kind"]].append(row["came"])
    return known


def write_lines(output: Path, lines: Iterable[str]) -> None:
    """Write lines to the file `output`, and print them."""
    text = "\n".join(lines)
    output.write_text(f"{text}\n")
    print(text)
