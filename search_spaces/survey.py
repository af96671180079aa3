"""What Feeney and Hughes' survey (2024) says of losses and similarities, as studies that two cores decide in minutes.

Long-tailed digits, 1NN accuracy on the embeddings that the similarity shaped, as in the survey's case study. Settings
were chosen on folds 0 and 1 of the training part with seed 0, 84 of them: each loss at up to four temperatures or
margins and two learning rates (lifted structured and batch hard also at .01 and .03, since they learn little at .5),
and losses of triplets at 40 and 80 epochs, since 12 leave them below raw pixels.
What decides is the test part, which is balanced, with seeds from 100 on.
"""

from typing import Any

from contrasweep import AblationGrid, Arm, Replicates, SubGrid
from contrasweep.config import Config, MutableConfig
from contrasweep.search_spaces.local import PIXELS
from contrasweep.search_spaces.similarity_losses import TRAIN

POINT = 0.01
"""A point of accuracy, the smallest difference of interest: two to five times what the survey's table has between
similarities (.2 points on CIFAR-10, .4 on CIFAR-100), and what its test sets can tell apart."""

BASE: MutableConfig = {
    "encoder": "cnn",
    "epochs": 12,
    "batch_size": 64,
    "learning_rate": 0.1,
    "evaluate_on": "embeddings",
    "retrieval": False,
}
SUPCON = {"name": "supcon", "temperature": 0.2}
SINCERE = {"name": "sincere", "temperature": 0.2}
TRIPLET = {"name": "triplet", "margin": 0.1}
SEMI_HARD = TRIPLET | {"mining": "semi_hard", "margin": 0.3}
LONG: MutableConfig = BASE | {"epochs": 40, "learning_rate": 0.3}
"""Where the loss of all triplets is past raw pixels on the folds (.98 and .98)."""


def _study(
    name: str,
    description: str,
    losses: dict[str, Config],
    rates: dict[str, float] | None = None,
    base: MutableConfig = BASE,
    **more: Any,
) -> AblationGrid:
    """Return a study with an arm for each of `losses`, of which the first is the reference, and raw pixels as floor.

    `rates` is arm -> learning rate, for arms whose rate is not that of `base`. `more` are further settings of the
    study; they go before those that this function sets. Seeds are added while a comparison is undecided.
    """
    rates = rates or {}
    arms = {}
    for arm, loss in losses.items():
        rate = rates.get(arm, base["learning_rate"])
        arms[arm] = Arm(TRAIN, config=base | {"loss": loss, "learning_rate": rate})
    settings: MutableConfig = {
        "data": "digits-lt",
        "seeds": [100],
        "metric": "accuracy",
        "reference": next(iter(losses)),
        "smallest_difference": POINT,
        "replicates": Replicates(first=8, step=8, most=40, spending="power"),
    }
    return AblationGrid(
        name, arms | {"raw-pixels": Arm(PIXELS)}, description=description, **settings | more
    )


SIMILARITY = _study(
    "survey-similarity",
    "Negative arc length in place of cosine, with SINCERE",
    {
        "arc-length": SINCERE | {"similarity": "neg_arc_length", "temperature": 0.025},
        "cosine": SINCERE,
    },
)
"""The case study's first table: no significant difference, cosine ahead by .2 points of 1NN accuracy on CIFAR-10."""

SIMILARITY_INFONCE = _study(
    "survey-similarity-infonce",
    "Negative arc length in place of cosine, with InfoNCE",
    {
        "arc-length": {"name": "infonce", "similarity": "neg_arc_length", "temperature": 0.025},
        "cosine": {"name": "infonce", "temperature": 0.1},
    },
)
"""What Koishekenov et al. changed, and the survey's motive. The temperatures are the best of four each, at rates of .1
and .3, on the five folds of the training part with seed 0; arc length is at .954 there and cosine at .965."""

SUPERVISED = _study(
    "survey-sincere",
    "SINCERE in place of SupCon, at temperatures of .1, .2 and .4",
    {"sincere": {"name": "sincere"}, "supcon": {"name": "supcon"}},
    question="cells",
    seeds=[400],
    subgrids=[
        SubGrid(arms=["sincere", "supcon"], axes={"loss.temperature": [0.1, 0.2, 0.4]}),
        SubGrid(arms=["raw-pixels"]),
    ],
)
"""Below that table: supervised cross-entropy losses had no significant differences in accuracy either. Declared anew:
asked first at .2 alone, where both were tuned by one seed, and the sign follows the temperature."""

LABELS = _study(
    "survey-labels",
    "What labels add: SupCon against InfoNCE",
    {"supcon": SUPCON, "infonce": {"name": "infonce", "temperature": 0.1}},
)
"""Section on contrastive losses: positives of the same class, and not the other view alone."""

EPSILON = _study(
    "survey-epsilon",
    "A margin in the cross-entropy: SINCERE with epsilon .25 and without",
    {
        "epsilon": SINCERE | {"temperature": 0.1, "epsilon": 0.25},
        "none": SINCERE | {"temperature": 0.1},
    },
)
"""Barbano et al. (2023), as the survey has it: a margin where positives are ahead enough."""

MINING = _study(
    "survey-mining",
    "Which triplets: all, the hardest of an anchor, or semi-hard ones",
    {
        "all": TRIPLET | {"mining": "all"},
        "hard": TRIPLET | {"mining": "hard"},
        "semi-hard": SEMI_HARD,
    },
    {"hard": 0.1, "semi-hard": 0.1},
    LONG,
)
"""The survey: a triplet teaches only while its loss is positive, so such triplets are to be found (Schroff et al.
2015)."""

LIFTED = _study(
    "survey-lifted",
    "Lifted structured loss, and batch hard, in place of triplets",
    {
        "triplet": TRIPLET | {"mining": "all"},
        "lifted": {"name": "lifted_structured", "margin": 1.0, "smooth": False},
        "batch-hard": {"name": "batch_hard", "margin": 0.3, "soft": False},
    },
    {"lifted": 0.03, "batch-hard": 0.1},
    LONG,
)
"""The survey: the lifted loss takes the hardest negative of both ends of a pair, batch hard the hardest of both."""

SETS = _study(
    "survey-sets",
    "A set of negatives in a cross-entropy against triplets chosen by hand",
    {"supcon": SUPCON, "semi-hard": SEMI_HARD},
    {"semi-hard": 0.1},
    LONG,
    seeds=[400],
)
"""The survey: a set of similarities mines hard negatives by itself and avoids the choice of triplets. Declared anew:
asked first at 12 epochs, which leave semi-hard triplets below raw pixels."""
