"""What a section of the benchmark gives: rows of figures, checks that may fail, and sentences; as markdown and JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, str | int | float | None]


@dataclass(frozen=True)
class Check:
    """A figure with the limit that it must not exceed."""

    name: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the figure is within its limit; one that is not a number is not."""
        return self.value <= self.limit


@dataclass
class Section:
    """A heading with what was measured below it. `unfinished`: why the rest of it was not measured."""

    title: str
    about: str
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unfinished: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> list[Check]:
        """The checks that did not hold."""
        return [check for check in self.checks if not check.passed]

    def markdown(self) -> list[str]:
        """The section as lines of markdown."""
        lines = [f"## {self.title}", "", self.about, ""]
        if self.rows:
            lines += [*table(self.rows), ""]
        if self.checks:
            worst = max(
                self.checks,
                key=lambda check: check.value / check.limit if check.limit else check.value,
            )
            lines.append(
                f"{len(self.checks) - len(self.failed)} of {len(self.checks)} checks hold; nearest to its limit: "
                f"{worst.name}, {worst.value:.2g} of {worst.limit:.2g}."
            )
            lines += [
                f"- **failed**: {c.name} is {c.value:.3g}, more than {c.limit:.3g}"
                for c in self.failed
            ]
            lines.append("")
        lines += [f"{note}\n" for note in self.notes]
        if self.unfinished:
            lines += [f"Not finished: {self.unfinished}.", ""]
        return [*lines, f"({self.seconds:.0f} s)", ""]


def table(rows: Sequence[Row]) -> list[str]:
    """Rows as a markdown table; columns in the order in which they first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return lines + [f"| {' | '.join(_shown(row.get(name)) for name in names)} |" for row in rows]


def _shown(value: str | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(folder: Path, head: dict[str, Any], sections: Iterable[Section]) -> tuple[Path, Path]:
    """Write gpu.md and gpu.json into `folder`, and return their paths."""
    sections = list(sections)
    folder.mkdir(parents=True, exist_ok=True)
    facts = "; ".join(f"{name} {value}" for name, value in head.items())
    lines = [
        "# What a GPU shows",
        "",
        facts,
        "",
        *(line for section in sections for line in section.markdown()),
    ]
    markdown = folder / "gpu.md"
    plain = folder / "gpu.json"
    markdown.write_text("\n".join(lines).rstrip() + "\n")
    plain.write_text(
        json.dumps({**head, "sections": [asdict(section) for section in sections]}, indent=1) + "\n"
    )
    return markdown, plain
