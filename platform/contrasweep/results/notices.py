"""What trials say of themselves that a reader of their table must know."""

from collections.abc import Iterable

from contrasweep.storage.record import Record, Status

NOTICES = {"ocl_equals_scl": "OCL equals SCL at every step: no cosine of two negatives was negative"}
"""By the metric whose last value is 1 in trials of which the sentence is true."""


def notice_lines(records: Iterable[Record]) -> list[str]:
    """A sentence for each notice that a finished trial gives, with the arms and how many of their finished trials."""
    finished = [record for record in records if record.status == Status.DONE]
    lines = []
    for metric, sentence in NOTICES.items():
        counts: dict[str, list[float]] = {}
        for record in finished:
            if metric in record.metrics:
                counts.setdefault(record.arm, []).append(record.metrics[metric])
        arms = [f"{arm}: {seen.count(1.0)} of {len(seen)} trials" for arm, seen in counts.items() if 1.0 in seen]
        if arms:
            lines.append(f"{sentence} ({', '.join(arms)})")
    return lines
