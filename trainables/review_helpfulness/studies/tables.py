"""Review helpfulness: does adaptive multimodal contrast rank reviews better than seven other models, and why?

Studies of Nguyen et al., EMNLP 2022, at the paper's sizes:

- MAIN_TABLE: their Tables 3 and 4, a block for each category of Lazada's and of Amazon's reviews;
- ABLATION: Table 6; DISTANCES: Tables 7 and 8; SEARCH tunes the proposed model on the validation MAP.

The main table has a form that two cores finish in minutes: narrow models, 40 steps, the real clothing reviews without
images. It says nothing about the paper's table: it shows that the comparison runs, and who is ahead at that size. The
studies of claims.py decide, of the other tables too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from contrasweep import AblationGrid, Arm, Choice, Float, Int, Sweep
from contrasweep.config import Config, MutableConfig
from contrasweep.trainables.review_helpfulness.models import MODELS

TRAINABLE = "contrasweep.trainables.review_helpfulness:train"
DATASETS = "contrasweep.trainables.review_helpfulness.datasets"
MCR_REVIEWS = f"{DATASETS}:MCR_REVIEWS"
PAPER_DATA = f"{MCR_REVIEWS}?category=Clothing"
CATEGORIES = ("Clothing", "Electronics", "Home")
BLOCKS = [
    *(f"{MCR_REVIEWS}?category={category}&market=lazada" for category in CATEGORIES),
    *(f"{MCR_REVIEWS}?category={category}" for category in CATEGORIES),
]
"""The six blocks of Tables 3 and 4. Their manifests say from which label on a review is relevant. The paper begins with
fastText vectors for Lazada's Indonesian and GloVe for Amazon's English: stage both with WORD_VECTORS, and name them by
an axis beside the data, `zipped=[{"data": BLOCKS, "word_vectors": [...]}]`; without it, vectors begin at random."""
SMALL_DATA = f"{DATASETS}:CLOTHING_REVIEWS"
PLANTED_DATA = f"{DATASETS}:SYNTHETIC_REVIEWS"
CALLED = {
    MCR_REVIEWS: "mcr-reviews",
    SMALL_DATA: "clothing-reviews",
    PLANTED_DATA: "synthetic-reviews",
}
"""What tables and reports call each dataset in place of its dotted path."""
SEEDS = [0, 1, 2, 3, 4]

SMALL: MutableConfig = {
    "word_dim": 24,
    "max_tokens": 64,
    "epochs": 2,
    "patience": 0,
    "sampler": {"max_groups": 640, "groups": 32, "num_negatives": 3},
    "learning_rate": 5e-3,
    "model": {"dropout": 0.2},
    "evaluation_rows": 256,
}
"""What all arms of a small study share: 40 steps of 128 reviews. The widths of each model are in `SMALL_MODELS`."""

SMALL_MODELS: dict[str, MutableConfig] = {
    "bimpm": {"dim": 16, "perspectives": 4},
    "conv_knrm": {"filters": 24},
    "eg_cnn": {"filters": 32, "char_dim": 8, "char_filters": 16},
    "prh_net": {"dim": 32},
    "dr_net": {"dim": 32},
    "sse_cross": {"dim": 16},
    "mcr": {
        "dim": 16,
        "common_dim": 16,
        "filters": 2,
        "region_layers": 1,
        "region_dropout": 0.1,
        "graph_hidden": 8,
    },
    "proposed": {"dim": 16, "depth": 2, "region_layers": 1, "region_dropout": 0.1},
}

COMMON_SPACE: dict[str, Float | Int | Choice] = {
    "learning_rate": Float(1e-5, 1e-3, log=True),
    "model.dropout": Float(0.1, 0.5),
    "sampler.num_negatives": Choice([1, 3, 7]),
    "loss.beta": Choice([0.5, 1.0, 2.0]),
    "sampler.interval": Choice([0, 1]),
    "sampler.groups": Choice([2, 4, 8]),
}
"""What every model can search."""

SPACES: dict[str, dict[str, Float | Int | Choice]] = {
    "proposed": {
        **COMMON_SPACE,
        "model.dim": Choice([64, 128, 256]),
        "model.depth": Int(1, 6),
        "model.contrastive_weight": Float(0.01, 1.0, log=True),
        "model.o_pos": Float(1.0, 3.0),
        "model.o_neg": Float(-0.3, 0.3),
        "model.contrastive_reduction": Choice(["sum", "mean_anchor", "balanced"]),
        "helpful_threshold": Choice([1, 2, 3]),
    },
    "bimpm": {
        **COMMON_SPACE,
        "model.dim": Choice([64, 128]),
        "model.perspectives": Choice([4, 8, 16]),
    },
    "conv_knrm": {
        **COMMON_SPACE,
        "model.filters": Choice([64, 128, 256]),
        "model.ngrams": Choice([2, 3]),
        "model.kernels": Choice([6, 11, 21]),
        "model.kernel_sigma": Float(0.05, 0.2, log=True),
    },
    "eg_cnn": {
        **COMMON_SPACE,
        "model.filters": Choice([32, 64, 128]),
        "model.kernel": Choice([3, 5, 7]),
        "model.char_dim": Choice([8, 16, 32]),
        "model.domain_weight": Float(0.01, 1.0, log=True),
    },
    "prh_net": {**COMMON_SPACE, "model.dim": Choice([64, 128, 256])},
    "dr_net": {
        **COMMON_SPACE,
        "model.dim": Choice([64, 128, 256]),
        "model.orthogonality": Choice([0.0, 1e-3, 1e-2, 1e-1]),
    },
    "sse_cross": {
        **COMMON_SPACE,
        "model.image_swap": Float(0.0, 0.7),
        "model.text_swap": Float(0.0, 0.7),
    },
    "mcr": {**COMMON_SPACE, "model.common_dim": Choice([64, 128])},
}
"""The published ranges of each model's own hyperparameters, beside the common ones."""

ABLATIONS: dict[str, MutableConfig] = {
    "full": {},
    "plain-contrast": {"adaptive": False},
    "no-contrast": {"contrastive": False},
    "no-interaction": {"interaction": False},
}
"""Table 6: what is taken out of the proposed model."""


def arm(config: Config, model: Config, **entries: Any) -> Arm:
    """Return an arm of `config`, to which `entries` are added, and `model` to the settings of its model."""
    with_model = {**config, "model": {**config.get("model", {}), **model}}
    return Arm(TRAINABLE, config=with_model | entries)


def model_arms(
    config: Config, models: Mapping[str, Config], names: Iterable[str] = MODELS
) -> dict[str, Arm]:
    """Return an arm for each model in `names`, with `config` and the settings that `models` has for it."""
    return {name: arm(config, {"name": name, **models.get(name, {})}) for name in names}


def dataset_labels(*data: str) -> dict[str, str]:
    """Return dataset -> what tables call it, for each dataset of `data`.

    For `package.module:NAME?category=x` that is, for example, `mcr-reviews?category=x`. The short name in place of the
    dotted path is that of `CALLED`.
    """
    labels = {}
    for name in data:
        path, mark, parameters = name.partition("?")
        labels[name] = CALLED[path] + mark + parameters
    return labels


def _study(
    name: str, about: str, arms: dict[str, Arm], data: str, seeds: list[int], **study_settings: Any
) -> AblationGrid:
    """Return a study that is judged by test MAP, with {} in `about` replaced by the dataset's name.

    `study_settings` are further settings of the study; they go before those that this function sets (metric, mode,
    labels).
    """
    settings: MutableConfig = {
        "metric": "map",
        "mode": "max",
        "labels": dataset_labels(data),
    } | study_settings
    about = about.format(CALLED[data.partition("?")[0]])
    return AblationGrid(name=name, description=about, arms=arms, data=data, seeds=seeds, **settings)  # type: ignore[arg-type]


def main_table(
    name: str,
    data: str,
    config: Config,
    models: Mapping[str, Config],
    seeds: list[int],
    **study_settings: Any,
) -> AblationGrid:
    """Return a study that compares the eight models by test MAP with the proposed one.

    All arms share `config`; `models` has further settings of single models, `study_settings` those of the study.
    """
    arms = model_arms(config, models)
    about = "The proposed model and its seven baselines on {}, test MAP"
    return _study(name, about, arms, data, seeds, reference="proposed", **study_settings)


EVERY_BLOCK: MutableConfig = {"labels": dataset_labels(*BLOCKS), "axes": {"data": list(BLOCKS)}}
MAIN_TABLE = main_table("review-helpfulness", PAPER_DATA, {}, {}, SEEDS, **EVERY_BLOCK)
MAIN_TABLE_SMALL = main_table(
    "review-helpfulness-small", SMALL_DATA, SMALL, SMALL_MODELS, [0, 1, 2]
)

BOTH_MARKETS: MutableConfig = {
    "labels": dataset_labels(*BLOCKS[::3]),
    "axes": {"data": BLOCKS[::3]},
}
"""Clothing of both markets, as Tables 6 to 8 have both; the ablation asks of all categories."""
ABLATION = _study(
    "review-helpfulness-ablation",
    "The proposed model with and without its parts on {}",
    {name: arm({}, {"name": "proposed", **change}) for name, change in ABLATIONS.items()},
    PAPER_DATA,
    SEEDS,
    reference="full",
    **EVERY_BLOCK,
)
DISTANCES = _study(
    "review-helpfulness-distances",
    "Distances between modalities of helpful and unhelpful reviews on {}",
    {
        "mcr": arm({}, {"name": "mcr"}, distances=True),
        "no-contrast": arm({}, {"name": "proposed", "contrastive": False}, distances=True),
        "proposed": arm({}, {"name": "proposed"}, distances=True),
    },
    PAPER_DATA,
    SEEDS,
    metric="cs_intra_review_helpful",
    mode="min",
    reference="proposed",
    **BOTH_MARKETS,
)

SEARCH = Sweep(
    name="review-helpfulness-search",
    description="Each model tuned with the same budget, then five fresh seeds",
    arms={
        model: Arm(TRAINABLE, config={"model": {"name": model}}, space=SPACES[model])
        for model in MODELS
    },
    data=PAPER_DATA,
    trials_per_arm=30,
    metric="dev_map",
    mode="max",
    confirm_seeds=[1000, 1001, 1002, 1003, 1004],
    reference="proposed",
    labels=dataset_labels(PAPER_DATA),
)
