"""The HTML report: one self-contained file, readable without a network, on a laptop, a phone and in the dark."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources

import pandas as pd

from contrasweep.report import figures, html_table, searching, text, trials
from contrasweep.report.budget import budget_html
from contrasweep.report.curves import curve_figures
from contrasweep.report.source import Source
from contrasweep.report.table import Pair
from contrasweep.report.trial_list import trial_list

CAUSES = 20
SENTENCES = 6
UNBROKEN = "\u00a0=\u00a0"


def html_report(source: Source) -> str:
    """The report of a study as one HTML document; it asks nothing of any other file or host."""
    sections = [
        ("answer", "The answer", _answer(source)),
        ("table", "The table", _table(source)),
        (
            "slices",
            "Slices and interactions",
            _figures([*figures.slices(source), *figures.interaction_figures(source), figures.variance_figure(source)]),
        ),
        ("curves", "Learning curves", curve_figures(source)),
        ("search", "Search", _search(source)),
        ("figures", "Figures of trials", trials.figures_html(source.images)),
        ("items", "Item by item", trials.items_html(source.by_item, source.axes, source.over_groups)),
        ("trials", "All trials", searching.parallel_figure(source) + trial_list(source)),
        ("budget", "Budget and GPUs", budget_html(source)),
        ("failures", "Failures", _failures(source)),
        ("again", "To run it again", _provenance(source)),
    ]
    kept = [(key, title, body) for key, title, body in sections if body]
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title, _ in kept)
    body = "".join(f'<section id="{key}"><h2>{title}</h2>{inner}</section>' for key, title, inner in kept)
    name = escape(str(source.facts["name"]))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name} · contrasweep</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{html_table.STYLE}{_file('page.css')}</style></head><body>{_head(source)}"
        f"<nav><div>{links}</div>{figures.keys(source)}</nav><main>{body}</main>"
        f"<footer>Written by contrasweep on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.</footer>"
        f"<script>{_file('page.js')}</script></body></html>"
    )


def _file(name: str) -> str:
    return (resources.files("contrasweep.report") / name).read_text(encoding="utf-8")


def _figures(made: Iterable[str]) -> str:
    inner = "".join(made)
    return f'<div class="figures">{inner}</div>' if inner else ""


def _search(source: Source) -> str:
    best = searching.best_settings(source)
    chosen = f"<h3>The best settings of each arm</h3>{html_table.plain(best[0], best[1:])}" if best else ""
    return (
        chosen
        + source.search_notes
        + _figures(
            [searching.budget_figure(source), *searching.slice_figures(source), *searching.importance_figures(source)]
        )
    )


def _head(source: Source) -> str:
    facts, counts = source.facts, source.frame["status"].value_counts()
    tone = {"failed": " bad", "infeasible": " bad", "pending": " open", "pruned": ""}
    chips = [f'<span class="chip{tone.get(str(s), "")}"><b>{n}</b> {escape(str(s))}</span>' for s, n in counts.items()]
    shown = {(str(d["name"]), bool(d.get("synthetic"))) for d in facts.get("datasets", [])}
    chips += [
        f'<span class="chip{" open" if synthetic else ""}">data: '
        f"{escape(name)}{' · synthetic' if synthetic else ''}</span>"
        for name, synthetic in sorted(shown)
    ]
    if source.study_link:
        chips.append(f'<a class="chip" href="{escape(source.study_link)}">in MLflow</a>')
    better = "larger" if source.mode == "max" else "smaller"
    about = f"<p>{escape(str(facts['description']))}</p>" if facts.get("description") else ""
    size = f"{len(source.frame)} trials"
    if source.search is not None and source.spent is not None:
        searched = int((source.spent["phase"] == "search").sum())
        size = f"{searched} trials of the search, {len(source.frame)} of the confirmation"
    return (
        f'<header class="top"><button id="theme" aria-label="light or '
        f'dark">◐</button><h1>{escape(str(facts["name"]))}</h1>{about}'
        f'<p class="soft">{escape(source.metric)}, {better} is better · {len(source.arms)} arms · {size}</p>'
        f'<div class="chips">{"".join(chips)}</div></header>'
    )


def _answer(source: Source) -> str:
    parts = []
    if source.overall is not None and source.overall.pairs:
        axes = " and ".join(source.axes)
        parts.append(f"<h3>Over all values of {escape(axes)}</h3>{_verdicts(source.overall.pairs)}")
    if source.table.pairs:
        head = "<h3>Cell by cell</h3>" if parts else ""
        parts.append(head + _verdicts(source.table.pairs))
    if not parts:
        return "<p>No two arms have finished a replicate in common yet.</p>"
    pairs = [*source.table.pairs, *(source.overall.pairs if source.overall else ())]
    notes = dict.fromkeys(note for pair in pairs for note in pair.comparison.notes)
    return "".join(parts) + "".join(f'<p class="soft">{escape(note[0].upper() + note[1:])}.</p>' for note in notes)


def _verdicts(pairs: Sequence[Pair]) -> str:
    """Sentences of the surest, and of many all as a table."""
    ordered = sorted(pairs, key=lambda p: (p.comparison.verdict == "undecided", p.comparison.p_value))
    items = "".join(
        f'<li><span class="pill {"no" if pair.comparison.verdict == "undecided" else "yes"}">'
        f"{'undecided' if pair.comparison.verdict == 'undecided' else 'decided'}</span>"
        f"<span>{escape(pair.sentence.replace(' = ', UNBROKEN))}</span></li>"
        for pair in (ordered if len(ordered) <= SENTENCES + 2 else ordered[:SENTENCES])
    )
    if len(pairs) <= SENTENCES + 2:
        return f'<ul class="verdicts">{items}</ul>'
    decided = sum(pair.comparison.verdict != "undecided" for pair in pairs)
    return (
        f'<ul class="verdicts">{items}</ul><details><summary>All {len(pairs)} comparisons, {decided} of them '
        f"decided</summary>"
        f'<div class="tall">{_comparisons(pairs)}</div></details>'
    )


def _comparisons(pairs: Sequence[Pair]) -> str:
    head = [
        *(factor for factor, _ in pairs[0].context),
        "a",
        "b",
        "difference a - b",
        "interval",
        "p",
        "p by Holm",
        "n",
        "verdict",
        "replicates missing",
    ]
    rows = []
    for pair in pairs:
        found = pair.comparison
        more = "no number" if found.more_needed is None else str(found.more_needed)
        rows.append(
            [
                *(value for _, value in pair.context),
                pair.a,
                pair.b,
                f"{found.difference:+.3g}",
                f"[{found.low:+.3g}, {found.high:+.3g}]",
                f"{pair.raw_p:.2g}",
                f"{found.p_value:.2g}",
                str(found.n),
                found.verdict,
                more,
            ]
        )
    return html_table.plain(head, rows)


def _table(source: Source) -> str:
    says = "".join(f"<li>{escape(line.replace('* best', '★ best'))}</li>" for line in text.legend(source.table))
    overall = ""
    if source.overall is not None:
        pooled = escape(", ".join(source.axes))
        overall = f"<h3>Arms, averaged over {pooled}</h3>{html_table.grid(source.overall)}"
    runs = " and their MLflow runs" if source.links else ""
    serve = f" (which <code>{escape(source.served)}</code> shows)" if source.links and source.served else ""
    return (
        f'<p class="soft">Click a cell for its replicates{runs}{serve}.</p>'
        f'{html_table.grid(source.table)}<ul class="cs-notes">{says}</ul>{overall}'
    )


def _failures(source: Source) -> str:
    """What failed, grouped by the last line of the traceback, with one whole traceback each."""
    lost = source.frame[source.frame["status"].isin(["failed", "infeasible"])]
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


def _provenance(source: Source) -> str:
    facts = source.facts
    commands = "".join(
        f'<div class="command"><pre>{escape(str(c))}</pre><button>copy</button></div>'
        for c in facts.get("commands", [])
    )
    data = [
        [str(d["name"]) + (" (synthetic)" if d.get("synthetic") else ""), str(d.get("digest", "–"))]
        for d in facts.get("datasets", [])
    ]
    versions = [[str(k), str(v)] for k, v in facts.get("versions", {}).items()]
    parts = [commands]
    if facts.get("plan_digest"):
        parts.append(f"<p>Plan digest <code>{escape(str(facts['plan_digest']))}</code></p>")
    if data:
        parts.append(f"<h3>Data</h3>{html_table.plain(['dataset', 'digest'], data)}")
    if versions:
        parts.append(
            f"<details><summary>Versions</summary>{html_table.plain(['package', 'version'], versions)}</details>"
        )
    return "".join(parts)
