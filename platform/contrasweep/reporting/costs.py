"""What a study has cost: trials and training time by arm, phase and host."""

import pandas as pd

from contrasweep.planning.durations import duration
from contrasweep.reporting.data import ReportData, Variables
from contrasweep.storage.record import COUNTING


def budget_section(data: ReportData) -> Variables:
    """Costs by arm and by host; empty before a trial has ended."""
    spent = data.spent if data.spent is not None else data.frame
    if "seconds" not in spent or not spent["seconds"].notna().any():
        return {}
    phased = "phase" in spent and spent["phase"].nunique() > 1
    rows, counts = [], dict[str | None, set[int]]()
    for arm in data.arms:
        for phase in dict.fromkeys(spent["phase"]) if phased else [None]:
            part = spent[(spent["arm"].astype(str) == arm) & (phase is None or spent.get("phase") == phase)]
            if len(part):
                counts.setdefault(phase, set()).add(len(part))
                rows.append([data.names(arm), *([phase] if phase else []), *_costs(part)])
    columns = ["trials", "done", "training time", "median trial", "peak GPU memory", "GPU busy"]
    hosts = spent.groupby("host")["seconds"].agg(["size", "sum"]) if "host" in spent else pd.DataFrame()
    return {
        "total": duration(float(spent["seconds"].astype("float64").sum())),
        "equal": all(len(sizes) == 1 for sizes in counts.values()),
        "costs": [["arm", *["phase"] * phased, *columns], *rows],
        "hosts": [[str(host), str(int(size)), duration(total)] for host, size, total in hosts.itertuples() if host],
    }


def _costs(part: pd.DataFrame) -> list[str]:
    seconds = part["seconds"].astype("float64")
    memory, busy = (
        pd.to_numeric(part.get(name, pd.Series(dtype=float)), errors="coerce").astype("float64")
        for name in ("gpu_memory_gib", "gpu_utilisation")
    )
    return [
        str(len(part)),
        str(int(part["status"].isin(COUNTING).sum())),
        duration(float(seconds.sum())),
        "–" if seconds.isna().all() else duration(float(seconds.median())),
        "–" if memory.isna().all() else f"{memory.max():.2f} GiB",
        "–" if busy.isna().all() else f"{busy.mean() * 100:.0f} %",
    ]
