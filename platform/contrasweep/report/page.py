"""The HTML report: one self-contained file, readable without a network, on a laptop, a phone and in the dark.

A section is a function that says what it shows, and a template that lays it out, `templates/sections/KEY.html`; it is
left out where there is nothing to show.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from markupsafe import Markup

from contrasweep.report import figures, searching
from contrasweep.report.budget import budget_section
from contrasweep.report.charts import COLOURS
from contrasweep.report.comparisons import pair_rows
from contrasweep.report.curves import curves_section
from contrasweep.report.data import ReportData
from contrasweep.report.templating import render_template
from contrasweep.report.trial_list import trials_section
from contrasweep.report.trials import figures_section, items_section
from contrasweep.results.cells import Pair
from contrasweep.storage.record import Phase, Status

MAX_CAUSES = 20
MAX_SENTENCES = 6
TONES = {Status.FAILED: "bad", Status.INFEASIBLE: "bad", Status.PENDING: "open"}


@dataclass(frozen=True)
class Section:
    """A part of the page with its own heading and address."""

    key: str
    title: str
    body: Markup


def html_report(data: ReportData) -> str:
    """The report of a study as one HTML document; it asks nothing of any other file or host."""
    document = data.document
    shown = {key: (title, show(data)) for key, (title, show) in SECTIONS.items()}
    return render_template(
        "page.html",
        name=document.name,
        description=document.description,
        summary=_summary(data),
        counts=list(data.frame["status"].value_counts().items()),
        tones=TONES,
        datasets=sorted({(dataset.name, dataset.synthetic) for dataset in document.datasets}),
        study_link=data.study_link,
        arms=[(arm, data.colour(arm) % COLOURS) for arm in data.arms],
        sections=[
            Section(key, title, render_template(f"sections/{key}.html", **context))
            for key, (title, context) in shown.items()
            if context
        ],
        written=datetime.now(UTC),
    )


def _summary(data: ReportData) -> str:
    size = f"{len(data.frame)} trials"
    if data.search is not None and data.spent is not None:
        searched = int((data.spent["phase"] == Phase.SEARCH).sum())
        size = f"{searched} trials of the search, {len(data.frame)} of the confirmation"
    better = "larger" if data.mode == "max" else "smaller"
    return f"{data.metric}, {better} is better · {len(data.arms)} arms · {size}"


def _answer(data: ReportData) -> Mapping[str, Any]:
    overall = data.overall.pairs if data.overall is not None else ()
    groups = []
    if overall:
        groups.append(_verdicts(f"Over all values of {' and '.join(data.axes)}", overall))
    if data.table.pairs:
        groups.append(_verdicts("Cell by cell" if overall else "", data.table.pairs))
    pairs = [*data.table.pairs, *overall]
    notes = list(dict.fromkeys(note for pair in pairs for note in pair.comparison.notes))
    return {"groups": groups, "notes": notes}


def _verdicts(title: str, pairs: Sequence[Pair]) -> Mapping[str, Any]:
    """The surest first; of many, the rest as rows."""
    ordered = sorted(pairs, key=lambda pair: (not pair.decided, pair.comparison.p_value))
    few = len(pairs) <= MAX_SENTENCES + 2
    return {
        "title": title,
        "first": ordered if few else ordered[:MAX_SENTENCES],
        "rows": [] if few else pair_rows(pairs),
        "decided": sum(pair.decided for pair in pairs),
    }


def _table(data: ReportData) -> Mapping[str, Any]:
    return {
        "table": data.table,
        "overall": data.overall,
        "axes": data.axes,
        "linked": bool(data.links),
        "served": data.served,
    }


def _slices(data: ReportData) -> Mapping[str, Any]:
    shown = [*figures.slices(data), *figures.interaction_figures(data), *figures.variance_figures(data)]
    return {"shown": shown} if shown else {}


def _search(data: ReportData) -> Mapping[str, Any]:
    best, notes = searching.best_settings(data), data.search_notes
    shown = [*searching.budget_figures(data), *searching.slice_figures(data), *searching.importance_figures(data)]
    if not (best or notes.costs or shown):
        return {}
    return {"best": best, "costs": notes.costs, "front": notes.front, "front_title": notes.title, "shown": shown}


def _failures(data: ReportData) -> Mapping[str, Any]:
    """What failed, grouped by the last line of the traceback, with one whole traceback each."""
    lost = data.frame[data.frame["status"].isin([Status.FAILED, Status.INFEASIBLE])]
    if lost.empty:
        return {}
    errors = lost["error"].fillna("").astype(str) if "error" in lost else pd.Series("", index=lost.index)
    causes = [
        error.strip().splitlines()[-1] if error.strip() else str(status)
        for error, status in zip(errors, lost["status"], strict=True)
    ]
    groups = sorted(lost.assign(cause=causes, error=errors).groupby("cause"), key=lambda item: -len(item[1]))
    failures = [
        {
            "count": len(part),
            "cause": str(cause)[:300],
            "arms": ", ".join(f"{arm} ({n})" for arm, n in part["arm"].value_counts().items()),
            "trials": ", ".join(map(str, part["trial_id"].head(8))) + (" …" if len(part) > 8 else ""),
            "traceback": part["error"].iloc[0][-4000:].strip("\n"),
        }
        for cause, part in groups[:MAX_CAUSES]
    ]
    return {"failures": failures, "omitted": len(groups) - MAX_CAUSES}


def _again(data: ReportData) -> Mapping[str, Any]:
    document = data.document
    datasets = [
        [dataset.name + " (synthetic)" * dataset.synthetic, dataset.digest or "–"] for dataset in document.datasets
    ]
    content = {
        "commands": list(document.commands),
        "plan_digest": document.plan_digest,
        "datasets": datasets,
        "versions": [[name, version] for name, version in document.versions.items()],
        "code": data.code,
        "superseded": data.superseded,
    }
    return content if any(content.values()) else {}


SECTIONS: Mapping[str, tuple[str, Callable[[ReportData], Mapping[str, Any]]]] = {
    "answer": ("The answer", _answer),
    "table": ("The table", _table),
    "slices": ("Slices and interactions", _slices),
    "curves": ("Learning curves", curves_section),
    "search": ("Search", _search),
    "figures": ("Figures of trials", lambda data: figures_section(data.images)),
    "items": ("Item by item", lambda data: items_section(data.by_item, data.axes, data.over_groups)),
    "trials": ("All trials", trials_section),
    "budget": ("Budget and GPUs", budget_section),
    "failures": ("Failures", _failures),
    "again": ("To run it again", _again),
}
"""By the key of a section (its address, its template): its heading, and what its template is given."""
