"""Bring MLflow up to the ledger of a campaign."""

import hashlib
import time

from contrasweep.campaign.history import History, Line
from contrasweep.markdown_text import markdown_text
from contrasweep.results.ledger import Ledger
from contrasweep.study.dotted import flatten
from contrasweep.tracking.kinds import Trackers
from contrasweep.tracking.mlflow.decisions import CampaignBoard, ShownDecision
from contrasweep.tracking.sync import SyncSummary

MEASURES = ("estimate", "low", "high", "p", "level", "screened", "seeds", "trials", "gpu_hours", "cost", "kept")


def publish(history: History, storage: str, trackers: Trackers) -> SyncSummary | None:
    """Show the decisions of a campaign in MLflow; None where the trackers have no MLflow.

    Raises:
        TrackingError: MLflow cannot be reached, or does not take it.
    """
    if trackers.store.is_none:
        return None
    began, ledger = time.time(), Ledger(storage, history.campaign).read()
    shown = [_shown(row, ledger) for row in history.rows if row.decision is not None]
    # When it began tells a campaign from one of the same name in another storage.
    origin = hashlib.sha256(repr(ledger.began).encode()).hexdigest()[:32]
    board = CampaignBoard(trackers.store, storage, history.campaign, origin)
    board.update(_note(history), history.to_html().decode(), shown)
    there = len(shown) - board.added - board.replaced
    name = f"MLflow at {trackers.store}"
    return SyncSummary(history.campaign, name, board.added, board.replaced, 0, there, time.time() - began, board.url)


def _shown(row: Line, ledger: Ledger) -> ShownDecision:
    decision, asked, decided = row.decision, ledger.asked(row.number), ledger.decision(row.number)
    assert decision is not None and decided is not None
    known = ((name, getattr(decision, name)) for name in MEASURES)
    return ShownDecision(
        row.number,
        row.candidate,
        hashlib.sha256(repr((decision, decided.at)).encode()).hexdigest()[:16],
        asked.at,
        decided.at,
        {name: float(value) for name, value in known if value is not None},
        flatten({"incumbent": decision.incumbent, **asked.arm}),
        {
            "verdict": decision.verdict,
            "kept": str(decision.kept).lower(),
            "by": row.by,
            "why": row.why,
            "reason": decision.reason,
            "studies": ", ".join(ledger.studies_of(row.number)),
            "mlflow.note.content": markdown_text(decision.sentence()),
        },
    )


def _note(history: History) -> str:
    """The campaign in Markdown: its summary, and a sentence a candidate."""
    sentences = [row.decision.sentence() if row.decision else f"{row.candidate} is not decided" for row in history.rows]
    lines = (f"{i}. {markdown_text(sentence)}" for i, sentence in enumerate(sentences, 1))
    return "\n".join([markdown_text(history.summary), "", *lines])
