"""Which similarity and which loss? Spaces for each pair, the survey's case study, and a sweep over losses.

A temperature or margin found for one similarity says nothing about another: cosine spans 2, arc length 1, squared
unit Euclidean 4, and raw distances have no bound. So each similarity has ranges of its own, and a space exists
only for a pair.
"""

from contrasweep import AblationGrid, Arm, Choice, Float, Int, Replicates, Sweep
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError, check_known, choose_from

TRAIN = "contrasweep.trainables.contrastive:train"
Space = dict[str, Float | Int | Choice]

TEMPERATURE: dict[str, Float] = {
    "cosine": Float(1e-3, 1.0, log=True),
    "dot": Float(1e-2, 100.0, log=True),  # raw embeddings set their own scale
    "neg_arc_length": Float(5e-4, 0.5, log=True),
    "neg_euclidean": Float(1e-2, 100.0, log=True),
    "neg_euclidean_unit": Float(1e-3, 1.0, log=True),
    "neg_sq_euclidean_unit": Float(2e-3, 2.0, log=True),
}
"""Temperature, by similarity. SINCERE's authors searched .001 to 1 for cosine."""

MARGIN: dict[str, Float] = {
    "cosine": Float(0.02, 1.0, log=True),
    "dot": Float(0.1, 50.0, log=True),
    "neg_arc_length": Float(0.01, 0.5, log=True),
    "neg_euclidean": Float(0.1, 50.0, log=True),
    "neg_euclidean_unit": Float(0.02, 1.0, log=True),
    "neg_sq_euclidean_unit": Float(0.05, 2.0, log=True),
}
"""Margin between a positive and a negative similarity (triplet, lifted structured, batch hard), by similarity."""

PAIR_MARGINS: dict[str, tuple[Float, Float]] = {
    "cosine": (Float(0.5, 1.0), Float(-0.5, 0.5)),
    "dot": (Float(0.0, 50.0), Float(-50.0, 0.0)),
    "neg_arc_length": (Float(0.75, 1.0), Float(0.25, 0.75)),
    "neg_euclidean": (Float(-5.0, 0.0), Float(-50.0, -5.0)),
    "neg_euclidean_unit": (Float(-0.5, 0.0), Float(-1.5, -0.5)),
    "neg_sq_euclidean_unit": (Float(-0.5, 0.0), Float(-3.0, -0.5)),
}
"""`m_pos` and `m_neg` of margin_contrastive, by similarity: positives above the first, negatives below the second."""

EPSILON = Float(0.0, 0.5)
"""The margin of the cross-entropy family, in units of logits."""
CROSS_ENTROPY = ("infonce", "supcon", "sincere", "ocl")
MARGIN_LOSSES = ("margin_contrastive", "triplet", "lifted_structured", "batch_hard")
LOSSES = (*CROSS_ENTROPY, *MARGIN_LOSSES)


def loss_space(loss: str, similarity: str) -> Space:
    """Return what there is to search in `loss` with `similarity`: setting -> range.

    `SpecError` where either has no search space.
    """
    check_known(
        similarity, "similarities", TEMPERATURE, "it has no search space", place="similarity"
    )
    if loss == "ocl":
        return {"loss.temperature": TEMPERATURE[similarity]}
    if loss in CROSS_ENTROPY:
        return {"loss.temperature": TEMPERATURE[similarity], "loss.epsilon": EPSILON}
    if loss == "margin_contrastive":
        positive, negative = PAIR_MARGINS[similarity]
        return {
            "loss.m_pos": positive,
            "loss.m_neg": negative,
            "loss.squared": Choice([False, True]),
        }
    if loss == "lifted_structured":
        return {"loss.margin": MARGIN[similarity], "loss.smooth": Choice([True, False])}
    # triplet and batch_hard: the soft form has no margin to search, and its triplets are not mined.
    if loss in MARGIN_LOSSES:
        low = MARGIN[similarity].low
        high = MARGIN[similarity].high
        hinge = {"loss.soft": False}
        space: Space = {
            "loss.soft": Choice([False, True]),
            "loss.margin": Float(low, high, log=True, when=hinge),
        }
        if loss == "triplet":
            space["loss.mining"] = Choice(["all", "hard", "semi_hard"], when=hinge)
        return space
    raise SpecError(
        "there is no search space for this loss",
        place="loss",
        value=loss,
        hint=choose_from("losses", list(LOSSES), loss),
    )


OPTIMISATION: Space = {
    "learning_rate": Float(0.01, 1.5, log=True),
    "optimizer.weight_decay": Float(1e-6, 1e-3, log=True),
    "batch_size": Choice([64, 128, 256, 512]),
}
"""What every contrastive method has to tune, for SGD."""


def space(loss: str, similarity: str) -> Space:
    """Return all that is searched in a contrastive trial with this loss and similarity: setting -> range."""
    return {**loss_space(loss, similarity), **OPTIMISATION}


# The case study of Feeney & Hughes (2024): SINCERE with cosine similarity against negative arc length, judged by
# nearest neighbours on the test set in the space that the similarity shaped (the head's embeddings). Recipe of
# SINCERE's experiments; the survey does not name the network, SupContrast's default is taken.
_CASE = {"evaluate_on": "embeddings", "figures": True}
_FULL = _CASE | {
    "encoder": "resnet50",
    "epochs": 800,
    "batch_size": 512,
    "sampling": "class_balanced",
    "learning_rate": 0.65,
    "autocast": True,
    "checkpoint_every": 10,
}

CASE_STUDY = AblationGrid(
    name="similarity-case-study",
    description="SINCERE with cosine similarity against negative arc length, 1NN and 5NN, CIFAR-10 and CIFAR-100",
    arms={
        "cosine": Arm(TRAIN, config=_FULL | {"loss": {"name": "sincere", "similarity": "cosine"}}),
        "neg_arc_length": Arm(
            TRAIN, config=_FULL | {"loss": {"name": "sincere", "similarity": "neg_arc_length"}}
        ),
    },
    data="cifar10",
    zipped=[{"data": ["cifar10", "cifar100"], "loss.temperature": [0.1, 0.05]}],
    seeds=[0, 1, 2, 3, 4],
    metric="knn1",
    reference="cosine",
)

_SMALL = _CASE | {
    "encoder": "cnn",
    "batch_size": 128,
    "sampling": "class_balanced",
    "learning_rate": 0.1,
    "retrieval": False,
}

CASE_STUDY_SMALL = AblationGrid(
    name="similarity-case-study-small",
    description="The case study with a small CNN on long-tailed CIFAR-10 and MNIST: minutes on two cores",
    arms={
        "cosine": Arm(
            TRAIN,
            config=_SMALL
            | {"loss": {"name": "sincere", "similarity": "cosine", "temperature": 0.1}},
        ),
        "neg_arc_length": Arm(
            TRAIN,
            config=_SMALL
            | {"loss": {"name": "sincere", "similarity": "neg_arc_length", "temperature": 0.1}},
        ),
    },
    data="cifar10-lt",
    zipped=[{"data": ["cifar10-lt", "mnist"], "epochs": [10, 1]}],
    seeds=list(range(100, 108)),
    metric="knn1",
    reference="cosine",
)
"""`python -m benchmarks.case_study` sets the paper's own test beside it: 1,000 bootstraps of the test set for each pair
of networks."""

# Every loss with every similarity that it can take, and whether what one shapes transfers: the survey's closing
# hypothesis is that similarities differ in that more than in accuracy. On digits, so that two cores finish them.
_PAIRED = {
    "encoder": "cnn",
    "epochs": 12,
    "batch_size": 64,
    "learning_rate": 0.1,
    "retrieval": False,
}


PAIRS = [
    (loss, similarity)
    for loss in LOSSES
    for similarity in TEMPERATURE
    if loss != "ocl" or similarity in ("cosine", "dot")
]
"""The 44 pairs of a loss and a similarity that fit: OCL needs scores with a sign."""


def _middle(loss: str, similarity: str) -> MutableConfig:
    """Return the settings of a loss, with its temperature or margin at the geometric middle of its search space.

    The rule is the same for every pair of loss and similarity. The two margins of margin_contrastive, which may be
    negative, are at the arithmetic middle.
    """
    settings: MutableConfig = {"name": loss, "similarity": similarity}
    if loss in CROSS_ENTROPY:
        settings["temperature"] = _geometric_mean(TEMPERATURE[similarity])
    elif loss == "margin_contrastive":
        settings["m_pos"], settings["m_neg"] = (
            (bound.low + bound.high) / 2 for bound in PAIR_MARGINS[similarity]
        )
    else:
        settings["margin"] = _geometric_mean(MARGIN[similarity])
    return settings


def _geometric_mean(bounds: Float) -> float:
    """Return the geometric mean of a range's ends, to two digits."""
    return float(f"{(bounds.low * bounds.high) ** 0.5:.2g}")


SIMILARITY_BY_LOSS = AblationGrid(
    name="similarity-by-loss",
    description="Each loss with each similarity that it takes, on long-tailed digits",
    arms={
        f"{loss}-{similarity}": Arm(TRAIN, config=_PAIRED | {"loss": _middle(loss, similarity)})
        for loss, similarity in PAIRS
    },
    data="digits-lt",
    seeds=list(range(100, 112)),
    metric="knn1",
    reference="supcon-cosine",
    smallest_difference=0.01,
)
"""Temperatures and margins are the middles of their spaces, not tuned: `space(loss, similarity)` is there for that."""

TRANSFER = AblationGrid(
    name="similarity-transfer",
    description="Does the similarity decide how well features transfer? SINCERE on MNIST, a linear probe on digits",
    arms={
        similarity: Arm(
            TRAIN,
            config=_PAIRED
            | {
                "epochs": 1,
                "batch_size": 128,
                "loss": _middle("sincere", similarity),
                "transfer": ["digits"],
            },
        )
        for similarity in TEMPERATURE
    },
    data="mnist",
    seeds=[100],
    metric="probe_on_digits",
    reference="cosine",
    smallest_difference=0.01,
    replicates=Replicates(first=8, step=8, most=24, spending="power"),
)
"""Digits are of other writers and at another resolution; those of long-tailed digits would be the same pictures."""

_SWEEP = {"encoder": "resnet18", "epochs": 100, "autocast": True, "evaluate_every": 10}

SWEEP = Sweep(
    name="losses",
    description="Each loss with cosine similarity, tuned with the same budget, confirmed on fresh seeds",
    arms={
        loss: Arm(TRAIN, config=_SWEEP | {"loss": loss}, space=space(loss, "cosine"))
        for loss in LOSSES
    },
    data="cifar10-lt",
    folds=5,
    search_folds=[0],
    trials_per_arm=40,
    metric="f1_macro",
    reference="supcon",
)
