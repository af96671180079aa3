"""The table as HTML: a fragment for notebooks and for the report; each cell opens on its replicates."""

from collections.abc import Iterable, Sequence
from html import escape

from contrasweep.results.cells import ARROWS, Cell, Replicate, number
from contrasweep.results.table import Table

STYLE = """
.cs-table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.95em}
.cs-table th,.cs-table td{padding:.4em .9em;text-align:left;vertical-align:top;border:0;white-space:nowrap}
.cs-table thead th{border-bottom:2px solid currentColor;font-weight:600}
.cs-table tbody tr+tr>*{border-top:1px solid rgba(128,128,128,.3)}
.cs-table tbody th{font-weight:500}
.cs-table .span{opacity:.65;font-size:.87em}
.cs-table .best .mean{font-weight:700}.cs-table .best .mean::after{content:" ★";font-size:.75em;color:#c98500}
.cs-table .gap{opacity:.7;font-style:italic}
.cs-table summary{cursor:pointer;list-style:none}.cs-table summary::-webkit-details-marker{display:none}
.cs-table summary:hover .mean{text-decoration:underline dotted}
.cs-table .runs{font-size:.85em;margin:.4em 0 0;padding:0;list-style:none;max-height:14em;overflow:auto}
.cs-notes{font-size:.88em;opacity:.8;margin:.6em 0;padding-left:1.2em}
"""


def table_html(table: Table) -> str:
    """A fragment with its own style: the table, its legend and its verdicts."""
    legend = "".join(f"<li>{escape(line.replace('* best', '★ best'))}</li>" for line in table.legend)
    words = "".join(f"<li>{escape(line)}</li>" for line in table.verdicts)
    return (
        f'<div class="cs"><style>{STYLE}</style><p><b>{escape(table.heading)}</b></p>{grid(table)}'
        f'<ul class="cs-notes">{legend}</ul><ul class="cs-verdicts">{words}</ul></div>'
    )


def grid(table: Table) -> str:
    """The `<table>` alone, in a box that scrolls sideways where the screen is narrow."""
    over = ""
    if table.column_factors:
        labels = f'<td colspan="{len(table.row_factors)}"></td>' if table.row_factors else ""
        factors = escape(", ".join(table.column_factors))
        over = f'<tr>{labels}<th colspan="{len(table.columns)}" class="span">{factors}</th></tr>'
    head = "".join(f"<th>{escape(name)}</th>" for name in [*table.row_factors, *table.column_titles])
    body = "".join(
        "<tr>"
        + "".join(f"<th>{escape(name)}</th>" for name in labels)
        + "".join(_cell(table, table.cells.get((row, column))) for column in table.columns)
        + "</tr>"
        for row, labels in zip(table.rows, table.row_labels(), strict=True)
    )
    return (
        f'<div style="overflow-x:auto"><table class="cs-table"><thead>{over}<tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def plain(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A simple table of texts, in a box that scrolls sideways."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table class="plain"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(table: Table, cell: Cell | None) -> str:
    shown, decimals = table.cell_text(cell), table.decimals
    if cell is None:
        return f'<td class="gap">{escape(shown)}</td>'
    if cell.mean is None:
        words = f'<span class="mean gap">{escape(shown)}</span>'
    else:
        mean = number(cell.mean, decimals)
        rest = f"{escape(shown.removeprefix(mean))}{ARROWS[cell.mark]}"
        words = f'<span class="mean">{mean}</span><span class="span">{rest}</span>'
    runs = "".join(_replicate(r, decimals + 1) for r in cell.replicates)
    if cell.n > 1 and cell.least is not None and cell.most is not None:
        runs = f"<li>from {number(cell.least, decimals + 1)} to {number(cell.most, decimals + 1)}</li>{runs}"
    kind = ' class="best"' if cell.best else ""
    return f'<td{kind}><details><summary>{words}</summary><ul class="runs">{runs}</ul></details></td>'


def _replicate(replicate: Replicate, decimals: int) -> str:
    value = replicate.status if replicate.value is None else number(replicate.value, decimals)
    fold = "" if replicate.fold == "–" else f"fold {replicate.fold}, "
    words = f"{fold}seed {replicate.seed}: {value}"
    if replicate.url is None:
        return f'<li title="trial {escape(replicate.trial_id)}">{escape(words)}</li>'
    return f'<li><a href="{escape(replicate.url)}" title="trial {escape(replicate.trial_id)}">{escape(words)}</a></li>'
