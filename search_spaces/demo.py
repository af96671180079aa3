"""Do labels help on a long tail, and does the form of the supervised loss matter?

SupCon against SINCERE (the same positives, another denominator) and InfoNCE (no labels: the positive is the other view)
on the handwritten digits with an exponential long tail, by mean average precision at R of the test images' neighbours.
Differences of less than 0.02 are of no interest. The study starts with 2 seeds on each of five folds and adds seeds
only to arms that a comparison is still open for.

The metric and the smallest difference were chosen on the same folds with seeds 0 to 3, so that the table has something
to decide; the study has seeds of its own, from 100 on. It shows what a table says and is no finding about these losses.
"""

from contrasweep import AblationGrid, Arm, Replicates

TRAIN = "contrasweep.trainables.contrastive:train"
BASE = {
    "encoder": "cnn",
    "epochs": 6,
    "learning_rate": 0.1,
    "checkpoint_every": 3,
    "batch_size": 128,
}
# Retrieval in every evaluation, so that the metric has a curve.
BASE |= {"figures": "first_fold", "evaluate_every": 1, "retrieval": "always"}

STUDY = AblationGrid(
    name="demo",
    description="SupCon against SINCERE and InfoNCE on digits with a long tail",
    arms={
        "supcon": Arm(TRAIN, config=BASE | {"loss": {"name": "supcon", "temperature": 0.2}}),
        "sincere": Arm(TRAIN, config=BASE | {"loss": {"name": "sincere", "temperature": 0.2}}),
        "infonce": Arm(TRAIN, config=BASE | {"loss": {"name": "infonce", "temperature": 0.2}}),
    },
    data="digits-lt",
    folds=5,
    seeds=[100],
    metric="map_at_r",
    reference="supcon",
    smallest_difference=0.02,
    replicates=Replicates(first=2, step=1, most=4, spending="power"),
)
