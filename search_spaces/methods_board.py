"""Which method for a small budget? The shipped methods, each searched as long, on three sets of real pictures.

Long-tailed CIFAR-10, MNIST, and long-tailed 8x8 digits, whose board takes minutes, with a small CNN. Each method tries
eight configurations of its learning rate and of what is its own on fold 0 of the training part; its best is trained
anew on all of it with eight fresh seeds and scored on the test part. The score that decides is the accuracy of the
nearest neighbour by frozen features; a linear probe on all labels and on one in a hundred, seconds and memory are other
columns of the same trials. `docs/methods-board.md` has what came out. The tables of solo-learn and lightly have one run
a cell, so no intervals.

    contrasweep run contrasweep.search_spaces.methods_board:CIFAR
    python -m docs.methods_board --again CIFAR simclr supcon    # these rows of the page, compared to the bit
"""

from contrasweep import Arm, Float, Sweep
from contrasweep.config import MutableConfig
from contrasweep.search_spaces.similarity_losses import Space, loss_space

TIMED_TRAINABLE = "contrasweep.trainables.contrastive.timed:train"
"""The trainable `contrastive`; its reports have `processor_seconds` too."""
BASE: MutableConfig = {
    "encoder": "cnn",
    "retrieval": False,
    "extra_scores": ["few_labels"],
    "evaluate_every": 0,
    "checkpoint_every": 0,
}
TEMPERATURE: Space = {"loss.temperature": Float(0.05, 1.0, log=True)}
MOMENTUM: Space = {"targets.momentum": Float(0.9, 0.999)}
"""How much of the averaged network a step keeps; the authors' .99 and above are made for more steps than these have."""


def _with_hinge(loss: str) -> tuple[MutableConfig, Space]:
    """Return (config, search space) of a method whose loss is `loss` in its hinge form; the margin is searched."""
    hinge: MutableConfig = {"name": loss, "soft": False}
    return {"loss": hinge}, {"loss.margin": loss_space(loss, "cosine")["loss.margin"]}


METHODS: dict[str, tuple[MutableConfig, Space]] = {
    "simclr": ({"loss": "infonce"}, TEMPERATURE),
    "moco": ({"loss": "infonce", "targets": "moco"}, TEMPERATURE | MOMENTUM),
    "nnclr": ({"loss": "infonce", "targets": "nnclr"}, TEMPERATURE),
    "byol": ({"targets": "byol", "view_augmentations": ["byol_first", "byol_second"]}, MOMENTUM),
    "dino": (
        {"targets": "dino"},
        {"targets.teacher_temperature": Float(0.02, 0.1, log=True)} | MOMENTUM,
    ),
    "swav": ({"targets": "swav"}, {"targets.temperature": Float(0.05, 0.5, log=True)}),
    "barlow-twins": ({"loss": "barlow_twins"}, {"loss.redundancy": Float(1e-3, 5e-2, log=True)}),
    "vicreg": ({"loss": "vicreg"}, {"loss.covariance": Float(0.1, 10.0, log=True)}),
    "supcon": ({"loss": "supcon"}, TEMPERATURE),
    "sincere": ({"loss": "sincere"}, TEMPERATURE),
    "ocl": ({"loss": "ocl"}, TEMPERATURE),
    "triplet": _with_hinge("triplet"),
    "lifted": (
        {"loss": "lifted_structured"},
        {"loss.margin": loss_space("lifted_structured", "cosine")["loss.margin"]},
    ),
    "batch-hard": _with_hinge("batch_hard"),
    "proxy-anchor": ({"loss": "proxy_anchor"}, {"loss.scale": Float(4.0, 64.0, log=True)}),
    "arcface": ({"loss": "arcface"}, {"loss.scale": Float(4.0, 64.0, log=True)}),
}
"""Name of a method -> (its config, what is searched beside its learning rate)."""


def _board(data: str, epochs: int, batch_size: int = 128) -> Sweep:
    """Return a sweep on the dataset `data`: each method is searched on fold 0, its best is confirmed on the test part.

    `epochs` and `batch_size` are those of all trials.
    """
    # The learning rate is searched for all methods, beside what is their own.
    base = BASE | {"epochs": epochs, "batch_size": batch_size}
    rate = {"learning_rate": Float(0.01, 1.0, log=True)}
    return Sweep(
        name=f"methods-{data}",
        description="The shipped methods under equal budgets: frozen features by nearest neighbours and linear probes",
        arms={
            name: Arm(TIMED_TRAINABLE, config=base | config, space=rate | space)
            for name, (config, space) in METHODS.items()
        },
        data=data,
        folds=5,
        trials_per_arm=8,
        searcher="random",
        confirm_seeds=list(range(100, 108)),
        confirm_on="test",
        metric="accuracy",
        smallest_difference=0.01,
    )


CIFAR = _board("cifar10-lt", 6)
MNIST = _board("mnist", 1)
DIGITS = _board("digits-lt", 20, 64)
