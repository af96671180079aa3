"""Which loss wins on a long tail when each is tuned by the same search?

SupCon, SINCERE and OCL over temperature and learning rate on the long-tailed handwritten digits, with a small CNN:
12 configurations a loss on fold 0, then each loss's best on the four other folds and two fresh seeds. 60 trials.
"""

from contrasweep import Arm, Float, Sweep

TRAIN = "contrasweep.trainables.contrastive:train"
BASE = {
    "encoder": "cnn",
    "epochs": 12,
    "batch_size": 128,
    "evaluate_every": 4,
    "checkpoint_every": 4,
}
SPACE = {
    "loss.temperature": Float(0.05, 1.0, log=True),
    "learning_rate": Float(0.01, 1.0, log=True),
}

STUDY = Sweep(
    name="tuned-losses",
    description="SupCon, SINCERE and OCL on digits with a long tail, each with its best temperature and learning rate",
    arms={
        loss: Arm(TRAIN, config=BASE | {"loss": loss}, space=SPACE)
        for loss in ("supcon", "sincere", "ocl")
    },
    data="digits-lt",
    folds=5,
    trials_per_arm=12,
    confirm_seeds=[1000, 1001],
    metric="f1_macro",
    reference="supcon",
)
