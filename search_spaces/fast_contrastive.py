"""How fast is supervised contrastive learning of small images? A recipe.

The plain recipe is SupCon as `survey` trains it, scored on the encoder's features, which are better there. The fast one
differs in five parts, which were chosen on 5,000 images of MNIST with seeds 0 to 2. What decides is other images, other
datasets, and seeds from 100 on. `benchmarks/results/fast_contrastive.md` says which images, what else was tried, and
what came out.

`accuracy` is that of the nearest neighbour; what it cost is another column of the same trials:

    contrasweep run contrasweep.search_spaces.fast_contrastive:MNIST
    contrasweep report contrasweep.search_spaces.fast_contrastive:MNIST --metric processor_seconds
"""

from contrasweep import AblationGrid, Arm
from contrasweep.config import MutableConfig
from contrasweep.search_spaces.survey import BASE, POINT, SUPCON

TIMED_TRAINABLE = "contrasweep.trainables.contrastive.timed:train"
"""The trainable `contrastive`; its reports have `processor_seconds` too."""

PLAIN: MutableConfig = BASE | {
    "loss": SUPCON,
    "evaluate_on": "features",
    "evaluate_every": 0,
    "checkpoint_every": 0,
}
MILD: dict[str, MutableConfig] = {
    "glyphs": {"name": "glyphs", "area": [0.8, 1.0], "rotation": 8.0, "jitter_share": 0.0},
    "photos": {"name": "photos", "area": [0.5, 1.0], "jitter_share": 0.0, "grayscale": 0.0},
}
"""Views that differ less, and cost less. Those of photographs were not tried before they were decided on."""
FAST: MutableConfig = PLAIN | {
    "n_views": 1,
    "projection": "linear",
    "evaluate_on": "embeddings",
    "loss": SUPCON | {"temperature": 0.1},
    "batch_size": 128,
}
"""Positives are other images of the class, so one view of each is enough; embeddings of a linear head are scored."""


def _against_plain(data: str, third: int, look: str) -> AblationGrid:
    """Return the study of a dataset: the plain recipe trains for 3 x `third` epochs, the fast one for 2 x `third`.

    `look`, a key of `MILD`, says which mild views suit the images.
    """
    # The plain recipe, the same cut to a third, and the fast one, which costs about as much as that third.
    arms = {
        "plain": PLAIN | {"epochs": 3 * third},
        "plain-third": PLAIN | {"epochs": third},
        "fast": FAST | {"epochs": 2 * third, "augmentation": MILD[look]},
    }
    return AblationGrid(
        name=f"fast-contrastive-{data}",
        description="SupCon in a third of the time: the fast recipe, the plain one, and that one trained for a third",
        arms={arm: Arm(TIMED_TRAINABLE, config=config) for arm, config in arms.items()},
        data=data,
        seeds=list(range(100, 108)),
        metric="accuracy",
        reference="fast",
        smallest_difference=POINT,
    )


DIGITS = _against_plain("digits", 2, "glyphs")
MNIST = _against_plain("mnist", 1, "glyphs")
CIFAR = _against_plain("cifar10-lt", 2, "photos")
