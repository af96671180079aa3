"""MLflow on PostgreSQL with artifacts in S3, killed under eight trials. Real servers; skipped where there is none."""

import pytest

from benchmarks.tracking import outage_on_postgres
from benchmarks.tracking_services import postgres_missing


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(postgres_missing()), reason=postgres_missing())
def test_a_server_killed_under_eight_trials_loses_nothing() -> None:
    """The server stays dead until the driver has given up; `sync` fills the gap that the driver told of."""
    outcome = outage_on_postgres({"case": True}, 1.0, drivers=1, slots=8, steps=60, workers=1)["case"]
    assert outcome["reports_while_down"] > 0
    assert len(outcome["gaps"]) == 1 and "lacks 8 trials" in outcome["gaps"][0]
    (content,) = outcome["content"]
    assert content == {
        "runs": 8,
        "in_records": 8 * 60 * 4,
        "on_server": 8 * 60 * 4,
        "missing": 0,
        "twice": 0,
        "artifacts": 8,
    }
