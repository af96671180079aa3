"""The HTML report: one self-contained file, readable without a network, on a laptop, a phone and in the dark."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources

import pandas as pd

from contrasweep.report import figures, html_table, searching, trials
from contrasweep.report.budget import budget_html
from contrasweep.report.comparisons import pair_rows
from contrasweep.report.curves import curve_figures
from contrasweep.report.data import ReportData
from contrasweep.report.trial_list import trial_list
from contrasweep.results.cells import Pair

CAUSES = 20
SENTENCES = 6
UNBROKEN = "\u00a0=\u00a0"


def html_report(data: ReportData) -> str:
    """The report of a study as one HTML document; it asks nothing of any other file or host."""
    sections = [
        ("answer", "The answer", _answer(data)),
        ("table", "The table", _table(data)),
        (
            "slices",
            "Slices and interactions",
            _figures([*figures.slices(data), *figures.interaction_figures(data), figures.variance_figure(data)]),
        ),
        ("curves", "Learning curves", curve_figures(data)),
        ("search", "Search", _search(data)),
        ("figures", "Figures of trials", trials.figures_html(data.images)),
        ("items", "Item by item", trials.items_html(data.by_item, data.axes, data.over_groups)),
        ("trials", "All trials", searching.parallel_figure(data) + trial_list(data)),
        ("budget", "Budget and GPUs", budget_html(data)),
        ("failures", "Failures", _failures(data)),
        ("again", "To run it again", _provenance(data)),
    ]
    kept = [(key, title, body) for key, title, body in sections if body]
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title, _ in kept)
    body = "".join(f'<section id="{key}"><h2>{title}</h2>{inner}</section>' for key, title, inner in kept)
    name = escape(str(data.facts["name"]))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name} · contrasweep</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{html_table.STYLE}{_file('page.css')}</style></head><body>{_head(data)}"
        f"<nav><div>{links}</div>{figures.keys(data)}</nav><main>{body}</main>"
        f"<footer>Written by contrasweep on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.</footer>"
        f"<script>{_file('page.js')}</script></body></html>"
    )


def _file(name: str) -> str:
    return (resources.files("contrasweep.report") / name).read_text(encoding="utf-8")


def _figures(made: Iterable[str]) -> str:
    inner = "".join(made)
    return f'<div class="figures">{inner}</div>' if inner else ""


def _search(data: ReportData) -> str:
    best = searching.best_settings(data)
    chosen = f"<h3>The best settings of each arm</h3>{html_table.plain(best[0], best[1:])}" if best else ""
    return (
        chosen
        + data.search_notes
        + _figures([searching.budget_figure(data), *searching.slice_figures(data), *searching.importance_figures(data)])
    )


def _head(data: ReportData) -> str:
    facts, counts = data.facts, data.frame["status"].value_counts()
    tone = {"failed": " bad", "infeasible": " bad", "pending": " open", "pruned": ""}
    chips = [f'<span class="chip{tone.get(str(s), "")}"><b>{n}</b> {escape(str(s))}</span>' for s, n in counts.items()]
    shown = {(str(d["name"]), bool(d.get("synthetic"))) for d in facts.get("datasets", [])}
    chips += [
        f'<span class="chip{" open" if synthetic else ""}">data: '
        f"{escape(name)}{' · synthetic' if synthetic else ''}</span>"
        for name, synthetic in sorted(shown)
    ]
    if data.study_link:
        chips.append(f'<a class="chip" href="{escape(data.study_link)}">in MLflow</a>')
    better = "larger" if data.mode == "max" else "smaller"
    about = f"<p>{escape(str(facts['description']))}</p>" if facts.get("description") else ""
    size = f"{len(data.frame)} trials"
    if data.search is not None and data.spent is not None:
        searched = int((data.spent["phase"] == "search").sum())
        size = f"{searched} trials of the search, {len(data.frame)} of the confirmation"
    return (
        f'<header class="top"><button id="theme" aria-label="light or '
        f'dark">◐</button><h1>{escape(str(facts["name"]))}</h1>{about}'
        f'<p class="soft">{escape(data.metric)}, {better} is better · {len(data.arms)} arms · {size}</p>'
        f'<div class="chips">{"".join(chips)}</div></header>'
    )


def _answer(data: ReportData) -> str:
    parts = []
    if data.overall is not None and data.overall.pairs:
        axes = " and ".join(data.axes)
        parts.append(f"<h3>Over all values of {escape(axes)}</h3>{_verdicts(data.overall.pairs)}")
    if data.table.pairs:
        head = "<h3>Cell by cell</h3>" if parts else ""
        parts.append(head + _verdicts(data.table.pairs))
    if not parts:
        return "<p>No two arms have finished a replicate in common yet.</p>"
    pairs = [*data.table.pairs, *(data.overall.pairs if data.overall else ())]
    notes = dict.fromkeys(note for pair in pairs for note in pair.comparison.notes)
    return "".join(parts) + "".join(f'<p class="soft">{escape(note[0].upper() + note[1:])}.</p>' for note in notes)


def _verdicts(pairs: Sequence[Pair]) -> str:
    """Sentences of the surest, and of many all as a table."""
    ordered = sorted(pairs, key=lambda p: (p.decided is False, p.comparison.p_value))
    items = "".join(
        f'<li><span class="pill {"no" if not pair.decided else "yes"}">'
        f"{'undecided' if pair.comparison.verdict == 'undecided' else 'decided'}</span>"
        f"<span>{escape(pair.sentence.replace(' = ', UNBROKEN))}</span></li>"
        for pair in (ordered if len(ordered) <= SENTENCES + 2 else ordered[:SENTENCES])
    )
    if len(pairs) <= SENTENCES + 2:
        return f'<ul class="verdicts">{items}</ul>'
    decided, (head, *rows) = sum(pair.decided for pair in pairs), pair_rows(pairs)
    return (
        f'<ul class="verdicts">{items}</ul><details><summary>All {len(pairs)} comparisons, {decided} of them '
        f"decided</summary>"
        f'<div class="tall">{html_table.plain(head, rows)}</div></details>'
    )


def _table(data: ReportData) -> str:
    says = "".join(f"<li>{escape(line.replace('* best', '★ best'))}</li>" for line in data.table.legend)
    overall = ""
    if data.overall is not None:
        pooled = escape(", ".join(data.axes))
        overall = f"<h3>Arms, averaged over {pooled}</h3>{html_table.grid(data.overall)}"
    runs = " and their MLflow runs" if data.links else ""
    serve = f" (which <code>{escape(data.served)}</code> shows)" if data.links and data.served else ""
    return (
        f'<p class="soft">Click a cell for its replicates{runs}{serve}.</p>'
        f'{html_table.grid(data.table)}<ul class="cs-notes">{says}</ul>{overall}'
    )


def _failures(data: ReportData) -> str:
    """What failed, grouped by the last line of the traceback, with one whole traceback each."""
    lost = data.frame[data.frame["status"].isin(["failed", "infeasible"])]
    if lost.empty:
        return ""
    errors = lost["error"].fillna("").astype(str) if "error" in lost else pd.Series("", index=lost.index)
    causes = [
        error.strip().splitlines()[-1] if error.strip() else str(status)
        for error, status in zip(errors, lost["status"], strict=True)
    ]
    parts = []
    groups = sorted(lost.assign(cause=causes, error=errors).groupby("cause"), key=lambda item: -len(item[1]))
    for cause, part in groups[:CAUSES]:
        arms = ", ".join(f"{arm} ({n})" for arm, n in part["arm"].value_counts().items())
        trials = ", ".join(map(str, part["trial_id"].head(8))) + (" …" if len(part) > 8 else "")
        trace = f"<pre>{escape(part['error'].iloc[0][-4000:])}</pre>" if part["error"].iloc[0].strip() else ""
        parts.append(
            f'<details><summary><span class="pill bad">{len(part)}</span> '
            f"<code>{escape(str(cause)[:300])}</code></summary>"
            f'<p class="soft">{escape(arms)}; trials {escape(trials)}</p>{trace}</details>'
        )
    left = len(groups) - CAUSES
    return "".join(parts) + (f'<p class="soft">{left} rarer causes are not shown.</p>' if left > 0 else "")


def _provenance(data: ReportData) -> str:
    facts = data.facts
    commands = "".join(
        f'<div class="command"><pre>{escape(str(c))}</pre><button>copy</button></div>'
        for c in facts.get("commands", [])
    )
    datasets = [
        [str(d["name"]) + (" (synthetic)" if d.get("synthetic") else ""), str(d.get("digest", "–"))]
        for d in facts.get("datasets", [])
    ]
    versions = [[str(k), str(v)] for k, v in facts.get("versions", {}).items()]
    parts = [commands]
    if facts.get("plan_digest"):
        parts.append(f"<p>Plan digest <code>{escape(str(facts['plan_digest']))}</code></p>")
    if datasets:
        parts.append(f"<h3>Data</h3>{html_table.plain(['dataset', 'digest'], datasets)}")
    if versions:
        parts.append(
            f"<details><summary>Versions</summary>{html_table.plain(['package', 'version'], versions)}</details>"
        )
    return "".join(parts)
