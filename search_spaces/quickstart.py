"""Does the loss matter on a long tail, and does it depend on the batch size?

SupCon, SINCERE and OCL at two batch sizes on the handwritten digits with an exponential long tail: 30 trials of
well under a second. The same study in YAML is quickstart.yaml.
"""

from contrasweep import AblationGrid, Arm

TRAIN = "contrasweep.trainables.contrastive:train"
BASE = {"encoder": "cnn", "epochs": 12, "learning_rate": 0.1, "checkpoint_every": 4}

STUDY = AblationGrid(
    name="quickstart",
    description="SupCon, SINCERE and OCL at two batch sizes on digits with a long tail",
    arms={
        "supcon": Arm(TRAIN, config=BASE | {"loss": {"name": "supcon", "temperature": 0.2}}),
        "sincere": Arm(TRAIN, config=BASE | {"loss": {"name": "sincere", "temperature": 0.2}}),
        "ocl": Arm(TRAIN, config=BASE | {"loss": {"name": "ocl", "temperature": 0.2}}),
    },
    axes={"batch_size": [32, 128]},
    data="digits-lt",
    folds=5,
    metric="f1_macro",
)
