"""How a plan shows itself in a notebook and in an interpreter: briefly, whatever its number of trials."""

import html
from typing import Any


class ShownPlan:
    """A plan's short text and its HTML: what `contrasweep plan` says of the study, and the cells of the table."""

    def __repr__(self) -> str:
        plan: Any = self
        total = "as many trials as the budget pays for" if plan.total is None else f"{plan.total} trials"
        data = ", ".join(dict.fromkeys(manifest.name for manifest in plan.table_datasets))
        return f"{type(self).__name__}({plan.study.name}: {total} on {data}, {len(plan.cells)} cells)"

    def _repr_html_(self) -> str:
        import pandas as pd

        plan: Any = self
        rows = [{"arm": cell.arm, **cell.axes, "replicates": len(cell.trials) or "–"} for cell in plan.cells]
        lines = html.escape("\n".join(plan.lines({})))
        frame = pd.DataFrame(rows).fillna("–").to_html(index=False, escape=True, max_rows=60, border=0)
        return f"<pre>{lines}</pre>{frame}"
