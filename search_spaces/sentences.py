"""Do labels help sentence embeddings, and is a pair of sentences better used by SimCSE or by SupCon?

SimCSE without labels (two dropout views) and with them (entailed sentences, contradictions as hard negatives), SupCon
over groups of sentences that entailment links, and an encoder that stays at its random weights: Spearman's correlation
with SICK's relatedness, about as many steps each. `contrasweep data stage sick --source SICK.txt` first.
"""

from contrasweep import AblationGrid, Arm

TRAIN = "contrasweep.trainables.texts:train"
BASE = {"batch_size": 64, "checkpoint_every": 0}

STUDY = AblationGrid(
    name="sentences",
    description="SimCSE without and with labels against SupCon over entailment, on SICK's relatedness",
    arms={
        "simcse": Arm(TRAIN, config=BASE | {"positives": "views", "epochs": 10}),
        "simcse-supervised": Arm(TRAIN, config=BASE | {"positives": "entailed", "epochs": 38}),
        "supcon": Arm(
            TRAIN,
            config=BASE
            | {
                "positives": "groups",
                "loss": {"name": "supcon", "temperature": 0.05},
                "epochs": 10,
            },
        ),
        "untrained": Arm(TRAIN, config=BASE | {"epochs": 1, "learning_rate": 1e-9}),
    },
    data="sick",
    seeds=[0, 1, 2, 3, 4, 5, 6],
    metric="spearman",
    reference="simcse",
    smallest_difference=0.02,
)
