"""Studies on image pairs through Ray: the same trials in cohorts and by other engines as by their trainable alone."""

import pytest

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.inventory import Inventory, Node
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.learned import Learned
from contrasweep.planning.planner import plan
from contrasweep.running.driver import run
from contrasweep.storage.store import LocalStore
from contrasweep.trainables.fusing.choices import fusion_of
from contrasweep.trainables.fusing.known_engines import KnownEngines
from contrasweep.trainables.fusing.protocol import Timing

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("running"), pytest.mark.usefixtures("ray_session")]

SMALL = {
    "encoder": {"name": "resnet10", "width": 8, "stem": "small"},
    "projection": {"dim": 8},
    "classifier": {"hidden": 8},
    "alpha": 0.5,
    "optimizer": {"name": "sgd"},
    "learning_rate": 0.01,
    "epochs": 3,
    "evaluate_every": 0,
    "artifacts": "none",
}
LOSS, SCORE = 0.02, 0.1
"""How far a loss (relatively) and a share of 20 test pairs may differ after three epochs in float32."""


def study(**fields):
    """Four trials of LOCAL, two of each temperature."""
    arms = {
        name: Arm(
            "contrasweep.trainables.paired_images:train",
            config=SMALL | {"loss": {"name": "ocl", "temperature": temperature}},
        )
        for name, temperature in (("sharp", 0.2), ("smooth", 0.5))
    }
    data = "synthetic-pairs?pairs=80&size=16"
    return AblationGrid(**{"name": "s", "arms": arms, "data": data, "seeds": [0, 1], "metric": "f1_macro"} | fields)


def records(results):
    return results.records.read(results.records.finished())


def test_fused_gives_the_records_of_off(tmp_path):
    """As if a probe had shown that two together take a tenth of the time."""
    storage = str(tmp_path / "fused")
    planned = plan(study(cohort="auto"), storage=storage)
    known = KnownEngines(LocalStore(tmp_path / "fused"))
    chosen = fusion_of(planned, Footprints(study(cohort=2), Inventory((Node(2, 16),)), Learned()), (), known)
    (key,) = {chosen.of(trial).key for trial in planned.sample_trials}
    chosen.probed(key, [Timing("unfused", 1, 100.0), Timing("grouped", 2, 10.0)])
    results = run(study(cohort="auto"), storage=storage, tracking="none")
    expected = run(study(cohort="off"), storage=str(tmp_path / "off"), tracking="none")
    here, there = records(results), records(expected)
    assert list(here) == list(there) and len(here) == 4
    assert {(record.notes.shared_by, record.notes.engine) for record in here.values()} == {(2, "grouped")}
    for trial_id, record in there.items():
        assert (here[trial_id].status, here[trial_id].step) == (record.status, record.step) == ("done", 3)
        rows, others = results.records.metrics(trial_id), expected.records.metrics(trial_id)
        assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in others], rel=LOSS)
        assert here[trial_id].metrics["f1_macro"] == pytest.approx(record.metrics["f1_macro"], abs=SCORE)
