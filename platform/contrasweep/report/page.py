"""The HTML report: one self-contained file, readable without a network, on a laptop, a phone and in the dark."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources

import pandas as pd

from contrasweep.report import figures, html_table, text, trials
from contrasweep.report.source import Source
from contrasweep.report.table import Pair

CAUSES = 20
SHOWN_VERDICTS = 60


def html_report(source: Source) -> str:
    """The report of a study as one HTML document; it asks nothing of any other file or host."""
    sections = [
        ("answer", "The answer", _answer(source)),
        ("table", "The table", _table(source)),
        ("slices", "Slices and interactions", _figures([*figures.slices(source), *figures.interaction_figures(source), figures.variance_figure(source)])),
        ("curves", "Learning curves", figures.curve_figures(source)),
        ("search", "Search", _figures([*figures.search_figures(source), *figures.importance_figures(source)])),
        ("figures", "Figures of trials", trials.figures_html(source.images)),
        ("items", "Item by item", trials.items_html(source.by_item)),
        ("trials", "All trials", figures.parallel_figure(source)),
        ("budget", "Budget and GPUs", _budget(source)),
        ("failures", "Failures", _failures(source)),
        ("again", "To run it again", _provenance(source)),
    ]  # fmt: skip
    kept = [(key, title, body) for key, title, body in sections if body]
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title, _ in kept)
    body = "".join(f'<section id="{key}"><h2>{title}</h2>{inner}</section>' for key, title, inner in kept)
    name = escape(str(source.facts["name"]))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name} · contrasweep</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{html_table.STYLE}{_file('page.css')}</style></head><body>{_head(source)}"
        f'<nav><div>{links}<button id="theme">light / dark</button></div></nav><main>{figures.keys(source)}{body}</main>'
        f"<footer>Written by contrasweep on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.</footer>"
        f"<script>{_file('page.js')}</script></body></html>"
    )


def _file(name: str) -> str:
    return (resources.files("contrasweep.report") / name).read_text(encoding="utf-8")


def _figures(made: Iterable[str]) -> str:
    inner = "".join(made)
    return f'<div class="figures">{inner}</div>' if inner else ""


def _head(source: Source) -> str:
    facts, counts = source.facts, source.frame["status"].value_counts()
    tone = {"failed": " bad", "infeasible": " bad", "pending": " open", "pruned": ""}
    chips = [
        f'<span class="chip{tone.get(str(s), "")}"><b>{n}</b> {escape(str(s))}</span>'
        for s, n in counts.items()
    ]
    for data in facts.get("datasets", []):
        synthetic = " · synthetic" if data.get("synthetic") else ""
        chips.append(
            f'<span class="chip{" open" if synthetic else ""}">data: {escape(str(data["name"]))}{synthetic}</span>'
        )
    better = "larger" if source.mode == "max" else "smaller"
    about = f"<p>{escape(str(facts['description']))}</p>" if facts.get("description") else ""
    return (f'<header class="top"><h1>{escape(str(facts["name"]))}</h1>{about}<p class="soft">{escape(source.metric)}, {better} is better · '
            f'{len(source.arms)} arms · {len(source.frame)} trials</p><div class="chips">{"".join(chips)}</div></header>')  # fmt: skip


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
    return "".join(parts) + "".join(
        f'<p class="soft">{escape(note[0].upper() + note[1:])}.</p>' for note in notes
    )


def _verdicts(pairs: Sequence[Pair]) -> str:
    ordered = sorted(pairs, key=lambda p: p.comparison.verdict == "undecided")
    items = "".join(
        f'<li><span class="pill {"no" if pair.comparison.verdict == "undecided" else "yes"}">'
        f"{'undecided' if pair.comparison.verdict == 'undecided' else 'decided'}</span><span>{escape(pair.sentence)}</span></li>"
        for pair in ordered[:SHOWN_VERDICTS])  # fmt: skip
    left = len(pairs) - SHOWN_VERDICTS
    more = f'<p class="soft">{left} more comparisons are in the CSV of comparisons.</p>' if left > 0 else ""
    return f'<ul class="verdicts">{items}</ul>{more}'


def _table(source: Source) -> str:
    says = "".join(
        f"<li>{escape(line.replace('* best', '★ best'))}</li>" for line in text.legend(source.table)
    )
    overall = ""
    if source.overall is not None:
        pooled = escape(", ".join(source.axes))
        overall = f"<h3>Arms, averaged over {pooled}</h3>{html_table.grid(source.overall)}"
    return (f'<p class="soft">Click a cell for its replicates{" and their MLflow runs" if source.links else ""}.</p>'
            f'{html_table.grid(source.table)}<ul class="cs-notes">{says}</ul>{overall}')  # fmt: skip


def _budget(source: Source) -> str:
    frame = source.frame
    if "seconds" not in frame or not frame["seconds"].notna().any():
        return ""
    rows = []
    for arm in source.arms:
        part = frame[frame["arm"].astype(str) == arm]
        seconds = part["seconds"].astype("float64")
        memory, busy = _column(part, "gpu_memory_gib"), _column(part, "gpu_utilisation")
        rows.append([arm, str(len(part)), str(int((part["status"] == "done").sum())), duration(float(seconds.sum())),
                     duration(float(seconds.median())), _or_dash(memory.max(), "{:.2f} GiB"), _or_dash(busy.mean() * 100, "{:.0f} %")])  # fmt: skip
    head = ["arm", "trials", "done", "training time", "median trial", "peak GPU memory", "GPU busy"]
    total = duration(float(frame["seconds"].astype("float64").sum()))
    equal = len({row[1] for row in rows}) <= 1
    says = (
        "Every arm has the same number of trials."
        if equal
        else "The arms do not have the same number of trials."
    )
    return f'<p class="soft">{total} of training in all. {says}</p>{_plain(head, rows)}{_hosts(frame)}'


def _hosts(frame: pd.DataFrame) -> str:
    if "host" not in frame or not frame["host"].astype(str).str.len().gt(0).any():
        return ""
    used = frame[frame["host"].astype(str).str.len().gt(0)].groupby("host")["seconds"].agg(["size", "sum"])
    rows = [[str(host), str(int(size)), duration(float(total))] for host, size, total in used.itertuples()]
    return f"<h3>Hosts</h3>{_plain(['host', 'trials', 'training time'], rows)}"


def _column(frame: pd.DataFrame, name: str) -> "pd.Series[float]":
    values = frame[name] if name in frame else pd.Series(float("nan"), index=frame.index)
    return pd.to_numeric(values, errors="coerce").astype("float64")


def _or_dash(value: float, form: str) -> str:
    return "–" if pd.isna(value) else form.format(value)


def duration(seconds: float) -> str:
    """Seconds as people say them: 45 s, 12.5 min, 3.2 h."""
    if pd.isna(seconds):
        return "–"
    return (
        f"{seconds:.1f} s"
        if seconds < 90
        else f"{seconds / 60:.1f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def _plain(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table class="plain"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


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
        parts.append(f'<details><summary><span class="pill bad">{len(part)}</span> <code>{escape(str(cause)[:300])}</code></summary>'
                     f'<p class="soft">{escape(arms)}; trials {escape(trials)}</p>{trace}</details>')  # fmt: skip
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
        parts.append(f"<h3>Data</h3>{_plain(['dataset', 'digest'], data)}")
    if versions:
        parts.append(
            f"<details><summary>Versions</summary>{_plain(['package', 'version'], versions)}</details>"
        )
    return "".join(parts)
