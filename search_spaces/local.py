"""Does orthonormality help on image pairs? LOCAL's tables, at the paper's scale and at one that two cores finish.

Paper: LOCAL, Latent Orthonormal Contrastive Learning for Paired Images. Its Table 1 (GPU memory) is the memory
column of `contrasweep plan` on `TABLE_1`, for which no dataset has to be staged: memory depends on batch and input size
and not on what images show. HRA is private: its owner stages it with `contrasweep data stage hra --source CSV`; the
small studies take OMBRIA's real pairs in its place, with the grouped folds that come with them.
"""

from typing import Any

from contrasweep import AblationGrid, Arm, Choice, Float, Int, Replicates, SubGrid, Sweep
from contrasweep.config import MutableConfig

PAIRS = "contrasweep.trainables.paired_images:train"
TEXTS = "contrasweep.trainables.paired_texts:train"
COLOUR = "contrasweep.trainables.paired.colour_baseline:train"
PIXELS = "contrasweep.trainables.raw_pixels:train"
Space = dict[str, Float | Int | Choice]

SCL: MutableConfig = {"loss": "supcon", "beta": 0.0}
L_SCL: MutableConfig = {"loss": "supcon", "beta": 0.5}
OCL_PAIR: MutableConfig = {"loss": "ocl", "beta": 0.0}
LOCAL: MutableConfig = {"loss": "ocl", "beta": 0.5}

SYSTEMS: dict[str, MutableConfig] = {
    "scl": SCL,
    "l-scl": L_SCL,
    "ocl-pair": OCL_PAIR,
    "local": LOCAL,
}
PAPERS = ("scl", "l-scl", "local")
"""The systems in the paper's tables; ocl-pair, which they leave out, tells the loss apart from l."""


def _without(config: MutableConfig, *keys: str) -> MutableConfig:
    """Return the config without these keys: an axis or a search sets them instead."""
    return {key: value for key, value in config.items() if key not in keys}


def arms(
    base: MutableConfig, names: tuple[str, ...] = PAPERS, trainable: str = PAIRS
) -> dict[str, Arm]:
    """Return an arm for each named system of the paper, with the settings of `base`."""
    return {name: Arm(trainable, config=base | SYSTEMS[name]) for name in names}


# The paper states no optimiser, epochs, temperature or beta; these are the family's defaults (temperature .5, since
# at .1 the optima of SCL and OCL differ by 2e-4 only, and no cosine may ever be negative). Alpha falls as it says.
_PAPER: MutableConfig = {
    "encoder": "resnet50",
    "encoder.stem": "imagenet",
    "autocast": True,
    "learning_rate": 3e-4,
    "epochs": 50,
    "artifacts": "figures",
}
_WHERE = {"data": ["hra", "xbd"], "batch_size": [16, 128], "image_size": [512, 128]}


def _table(name: str, description: str, **more: Any) -> AblationGrid:
    """Return a study over five folds that compares LOCAL's accuracy with that of other arms, by default on HRA.

    `more` are further settings of the study, with `arms` among them; they go before those that this function sets
    (data, folds, metric, reference). On HRA the folds are drawn three times (`repeats`).
    """
    settings: MutableConfig = {
        "folds": 5,
        "metric": "accuracy",
        "reference": "local",
        "data": "hra",
    } | more
    if settings["data"] == "hra":
        settings["repeats"] = 3
    return AblationGrid(name=name, description=description, **settings)


TABLE_1 = _table(
    "local-table-1",
    "GPU memory by batch and input size: the memory column of `contrasweep plan --cluster FILE`",
    data="synthetic-pairs",
    arms=arms(_PAPER | {"autocast": False}, ("local",)),
    reference=None,
    zipped=[{"batch_size": [8, 16, 8, 16], "image_size": [512, 512, 256, 256]}],
)
"""On bundled synthetic pairs, 5 classes as HRA has. The images lie on the GPU too: these are 625 pairs; HRA's 3,389 at
512 pixels take 5.0 GiB."""
TABLE_2 = _table(
    "local-table-2",
    "Batch and input size: SCL, L-SCL and LOCAL on HRA and xBD",
    arms=arms(_PAPER),
    zipped=[
        {
            "data": ["hra"] * 4 + ["xbd?size=224"] * 3 + ["xbd"] * 4,
            "batch_size": [8, 16, 8, 16, 8, 16, 64, 8, 16, 64, 128],
            "image_size": [512, 512, 256, 256, 224, 224, 224, 128, 128, 128, 128],
        }
    ],
)
TABLE_3 = _table(
    "local-table-3",
    "F1 of each class at the smallest batch and input",
    arms=arms(_PAPER),
    metric="f1_macro",
    zipped=[{"data": ["hra", "xbd"], "batch_size": [8, 8], "image_size": [256, 128]}],
)
TABLE_4 = _table(
    "local-table-4",
    "Backbones",
    arms=arms(_without(_PAPER, "encoder")),
    zipped=[_WHERE],
    axes={"encoder": ["resnet18", "resnet34", "resnet50"]},
)
TABLE_5 = _table(
    "local-table-5",
    "Stages whose differences make l (the paper's column SCL is L-SCL)",
    arms=arms(_PAPER, ("l-scl", "local")),
    zipped=[_WHERE],
    axes={"latent.blocks": ["1-2-3-4", "2-3-4", "3-4", "4"]},
)

_SINGLE: MutableConfig = {
    "input": "single",
    "beta": 0.0,
    "n_views": 2,
    "optimizer": "sgd",
    "warmup_epochs": 5,
    "epochs": 200,
    "autocast": True,
    "augmentation": "photos",
    "evaluate_every": 10,
    "checkpoint_every": 5,
}


SCL_AND_OCL: dict[str, MutableConfig] = {"scl": {"loss": "supcon"}, "ocl": {"loss": "ocl"}}


def _single_arms(
    base: MutableConfig, configs: dict[str, MutableConfig] = SCL_AND_OCL
) -> dict[str, Arm]:
    """Return an arm for each of `configs`, by its name, with the settings of `base` too.

    By default they are SCL and OCL as on single images, where there is no l.
    """
    return {arm: Arm(PAIRS, config=base | config) for arm, config in configs.items()}


def _cells(*groups: tuple[str, tuple[int, ...], int]) -> dict[str, list[Any]]:
    """Return zipped axes for cells that differ in dataset, batch size, learning rate and D_E (`projection.dim`).

    Each of `groups` is (dataset, batch sizes, D_E) and gives a cell for each batch size. The learning rate of a batch
    size B is .1 B/256. D_E was chosen to be at least the number of classes, but at most 1024.
    """
    axes: dict[str, list[Any]] = {
        name: [] for name in ("data", "batch_size", "learning_rate", "projection.dim")
    }
    for data, batch_sizes, dim in groups:
        for batch_size in batch_sizes:
            axes["data"].append(data)
            axes["batch_size"].append(batch_size)
            axes["learning_rate"].append(0.1 * batch_size / 256)
            axes["projection.dim"].append(dim)
    return axes


_CIFAR = (("cifar10-lt", (4, 8, 12), 128), ("cifar100-lt", (32, 64, 80), 128))
TABLE_6 = AblationGrid(
    name="local-table-6",
    description="Long-tailed single images, folds inside the long-tailed set (what the paper's 92 % on CIFAR-10-LT "
    "can only be)",
    arms=_single_arms(_SINGLE | {"encoder": "resnet18"}),
    data="cifar10-lt",
    folds=5,
    metric="f1_macro",
    reference="ocl",
    zipped=[_cells(*_CIFAR, ("inaturalist-lt", (4, 8, 16), 1024))],
)
TABLE_6_BALANCED = AblationGrid(
    name="local-table-6-balanced",
    description="Long-tailed single images on the official balanced test splits, as the literature reports them",
    arms=_single_arms(_SINGLE | {"encoder": "resnet18"}),
    data="cifar10-lt",
    seeds=[0, 1, 2, 3, 4],
    metric="accuracy",
    reference="ocl",
    zipped=[_cells(*_CIFAR, ("inaturalist-lt", (4, 8, 16), 1024))],
)
TABLE_7 = AblationGrid(
    name="local-table-7",
    description="ImageNet-LT, few epochs",
    arms=_single_arms(_SINGLE | {"encoder": "resnet50", "epochs": 10, "warmup_epochs": 1}),
    data="imagenet-lt",
    seeds=[0, 1, 2],
    metric="accuracy",
    reference="ocl",
    zipped=[_cells(("imagenet-lt", (4, 8, 16), 1024))],
)

# What two cores can do: a ResNet-10 of a quarter of the width, 32 pixels. Chosen on the training part of fold 0 alone,
# its four folds held out in turn (benchmarks/results/paired_images_choice.md).
_NETWORK: MutableConfig = {
    "encoder": "resnet10",
    "encoder.width": 16,
    "encoder.stem": "imagenet",
    "image_size": 32,
    "latent.size": 4,
    "centre": "item",
    "learning_rate": 3e-3,
    "evaluate_every": 0,
    "checkpoint_every": 0,
    "artifacts": "none",
}
_VIEWS: MutableConfig = {
    "augmentation": "pairs",
    "augmentation.crop_area": 1.0,
    "augmentation.jitter": 0.03,
}
_SMALL: MutableConfig = _NETWORK | _VIEWS
_CHOICE: MutableConfig = {
    "batch_size": 32,
    "epochs": 15,
    "centre": "both",
    "wce.class_weights": "root",
    "optimizer.weight_decay": 0.05,
}
_PAIR: MutableConfig = _SMALL | _CHOICE
_BRIEF: MutableConfig = _SMALL | {
    "encoder.width": 8,
    "epochs": 1,
    "alpha": 0.5,
    "alpha_schedule": "const",
}
"""What the small tables share: enough to see that they run and which way they point, not to decide. Alpha is constant,
since an alpha that falls from 1 gives the classifier no share of a first epoch."""
ON_OMBRIA: MutableConfig = {"data": "ombria", "metric": "f1_macro"}

TABLE_2_SMALL = _table(
    "local-table-2-small",
    "Batch and input size on OMBRIA's pairs",
    **ON_OMBRIA,
    arms=arms(_without(_BRIEF, "image_size")),
    zipped=[{"batch_size": [8, 16, 32, 8], "image_size": [32, 32, 32, 16]}],
)
TABLE_3_SMALL = _table(
    "local-table-3-small",
    "F1 of each class at the smallest batch on OMBRIA's pairs",
    **ON_OMBRIA,
    arms=arms(_BRIEF | {"batch_size": 8}),
)
TABLE_4_SMALL = _table(
    "local-table-4-small",
    "Backbones on OMBRIA's pairs",
    **ON_OMBRIA,
    arms=arms(_without(_BRIEF, "encoder") | {"batch_size": 32}),
    axes={"encoder": ["resnet10", "resnet18", "resnet34"]},
)
TABLE_5_SMALL = _table(
    "local-table-5-small",
    "Stages of l on OMBRIA's pairs",
    **ON_OMBRIA,
    arms=arms(_BRIEF | {"batch_size": 32, "encoder.stem": "small"}, ("l-scl", "local")),
    axes={"latent.blocks": ["1-2-3-4", "2-3-4", "3-4", "4"]},
)
"""With the small stem, since the other leaves block 4 a single place at 32 pixels: too few for five orthogonal
classes."""

SINGLE_SMALL: MutableConfig = _SINGLE | {
    "encoder": "resnet10",
    "encoder.width": 8,
    "encoder.stem": "small",
    "augmentation": "glyphs",
    "autocast": False,
    "epochs": 15,
    "warmup_epochs": 0,
    "learning_rate": 0.1,
    "loss.temperature": 0.5,
    "projection.dim": 128,
    "alpha": 0.5,
    "alpha_schedule": "const",
    "evaluate_every": 0,
    "checkpoint_every": 0,
    "artifacts": "none",
}
"""Chosen on the training part of digits-lt, folds 0 and 1 of five, seed 0, mostly at batches of 4 and 16, by what SCL
reaches: 16 settings at temperature .5 (alpha .5, .9, or falling in two ways; 10, 15, 30 and 40 epochs; two
augmentations and none; one view; class weights or none), after 8 at .1, where no cosine is ever negative, and a few at
.2. What is decided on it takes the test part, which is balanced, and seeds from 100 on."""


def small_single(
    name: str, description: str, base: MutableConfig, arms: dict[str, MutableConfig], **more: Any
) -> AblationGrid:
    """Return a study by macro F1 on the test part of digits-lt, whose images are single.

    Each of `arms` (name -> its own settings over `base`) is trained with the trainable of paired images, at batch sizes
    4, 8 and 16. One more arm is the floor: nearest neighbours by raw pixels. `more` are further settings of the study;
    they go before those that this function sets.
    """
    settings: MutableConfig = {
        "data": "digits-lt",
        "seeds": [100],
        "metric": "f1_macro",
        "reference": "ocl",
        "replicates": Replicates(first=8, step=3, most=14, spending="power"),
        "subgrids": [
            SubGrid(arms=list(arms), axes={"batch_size": [4, 8, 16]}),
            SubGrid(arms=["raw-pixels"]),
        ],
    }
    built = _single_arms(base, arms) | {"raw-pixels": Arm(PIXELS)}
    return AblationGrid(name=name, description=description, arms=built, **settings | more)


TABLE_6_SMALL = small_single(
    "local-table-6-small",
    "SCL and OCL on long-tailed digits at small batches, beside cross-entropy alone and raw pixels",
    SINGLE_SMALL,
    SCL_AND_OCL | {"cross-entropy": {"loss": "supcon", "alpha": 0.0}},
    smallest_difference=0.008,
)
"""The smallest difference is half of what Table 6 reports for OCL over SCL on CIFAR-10-LT, 1.6 points of F1 on average
of its batches of 4, 8 and 12."""
MOTIVATION = AblationGrid(
    name="local-motivation",
    description="Figures 2 to 5: do class centres stay apart at batches of two images, and under imbalance?",
    arms=_single_arms(SINGLE_SMALL),
    data="digits-lt",
    axes={"data": ["digits", "digits-lt"], "batch_size": [2, 4, 16]},
    seeds=[100, 101, 102, 103, 104],
    metric="train_centre_cosine_max",
    mode="min",
    reference="ocl",
)
"""The metric is the largest absolute cosine of two class centres of z, of training rows: 1/9 at SCL's optimum, a
simplex, 0 at OCL's, orthogonal centres, near 1 where two classes lie on one another. The figures draw points in a
plane."""
TABLE_7_SMALL = small_single(
    "local-table-7-small",
    "SCL and OCL on long-tailed digits after few epochs",
    SINGLE_SMALL | {"epochs": 10, "learning_rate": 0.2},
    SCL_AND_OCL,
    smallest_difference=0.009,
    replicates=Replicates(first=10, step=10, most=40, spending="power"),
)
"""The smallest difference is half of what Table 7 reports, 1.8 points of F1 on average of its three batches. At 5
epochs neither arm is near raw pixels; of 5, 8 and 10 epochs at rates of .1, .2 and .4 these are the best on the
folds."""

SYSTEMS_SMALL = _table(
    "local-systems-small",
    "The four systems on OMBRIA's pairs, against one side alone and against colour statistics",
    **ON_OMBRIA,
    arms=arms(_PAIR | {"artifacts": "figures"}, tuple(SYSTEMS))
    | {
        "local-pre": Arm(PAIRS, config=_PAIR | LOCAL | {"input": "pre"}),
        "local-post": Arm(PAIRS, config=_PAIR | LOCAL | {"input": "post"}),
        "pre-single": Arm(PAIRS, config=_NETWORK | _CHOICE | OCL_PAIR | {"input": "pre_single"}),
        "post-single": Arm(PAIRS, config=_NETWORK | _CHOICE | OCL_PAIR | {"input": "post_single"}),
        "colour": Arm(COLOUR),
    },
)
"""`local-pre` and `local-post` are LOCAL fed one side twice, `pre-single` and `post-single` networks of one image;
`colour` is the baseline without a network."""

PAIRS_SMALL = _table(
    "local-pairs-small",
    "Do pairs matter? LOCAL against itself fed one side twice, and against colour, three seeds a fold",
    **ON_OMBRIA,
    seeds=[0, 1, 2],
    arms={
        name: SYSTEMS_SMALL.arms[name] for name in ("local", "local-post", "local-pre", "colour")
    },
)
"""Its trials of seed 0 are those of SYSTEMS_SMALL."""

ALPHA_SMALL = _table(
    "local-alpha-small",
    "Should alpha fall on OMBRIA's pairs? From 1 inversely to the epoch, against .5, by the number of epochs",
    **ON_OMBRIA,
    arms={
        "inverse": Arm(
            PAIRS,
            config=_without(_BRIEF, "epochs")
            | LOCAL
            | {"alpha": 1.0, "alpha_schedule": "inverse", "batch_size": 32},
        ),
        "constant": Arm(PAIRS, config=_without(_BRIEF, "epochs") | LOCAL | {"batch_size": 32}),
    },
    reference="constant",
    axes={"epochs": [2, 5, 10]},
    question="cells",
    smallest_difference=0.02,
)

WITH_COLOUR: MutableConfig = _PAIR | LOCAL | {"colour_units": 256}
COLOUR_SMALL = _table(
    "local-colour-small",
    "LOCAL that reads colour statistics beside its images, against itself fed one side twice, and against colour, "
    "three seeds a fold",
    **ON_OMBRIA,
    seeds=[0, 1, 2],
    arms={
        "local": Arm(PAIRS, config=WITH_COLOUR),
        "local-post": Arm(PAIRS, config=WITH_COLOUR | {"input": "post"}),
        "local-pre": Arm(PAIRS, config=WITH_COLOUR | {"input": "pre"}),
        "colour": Arm(COLOUR),
    },
)
"""What the colour baseline knows, given to the network: does it beat the baseline then?"""

GEOMETRY_SMALL = AblationGrid(
    name="local-geometry-small",
    description="When are the class centres of LOCAL's z orthogonal on real pairs?",
    arms=arms(
        _SMALL
        | {
            "batch_size": 32,
            "alpha_schedule": "const",
            "alpha": 0.5,
            "loss.temperature": 0.2,
            "learning_rate": 2e-3,
            "epochs": 40,
            "sampler": "class_balanced",
            "wce.class_weights": "none",
            "augmentation.dihedral": False,
            "augmentation.jitter": 0.0,
        },
        ("local",),
    ),
    data="ombria",
    folds=5,
    metric="train_centre_cosine_max",
    mode="min",
    reference="local",
)
"""With an alpha that falls, or a learning rate of 3e-3, z never leaves the shift that all pairs share (largest cosine
of two class centres above .9); with C(z) alone (alpha 1) two classes stay on one another, where OCL has no gradient to
part them. Half WCE parts them, the balanced sampler gives every class as many positives, and views that stay let the
network fit its training rows. Measured there, folds 0 to 4: .255, .114, .115, .353, .149; on the held-out fold .95 to
.97."""

WEIGHTS: Space = {
    "alpha": Choice([0.5, 0.9, 1.0]),
    "beta": Choice([0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0]),
    "loss.temperature": Float(0.05, 1.0, log=True),
    "learning_rate": Float(1e-5, 3e-3, log=True),
    "batch_size": Choice([8, 16, 32, 64, 128]),
}
"""What the paper leaves open and every pair of systems has to tune; alpha is alpha_0. Batches are as in its tables."""

RECIPE: Space = {
    "optimizer.weight_decay": Float(1e-6, 1e-3, log=True),
    "alpha_schedule": Choice(["parabolic", "linear", "inverse", "cosine", "const"]),
    "projection.dim": Choice([64, 128, 256, 512]),
    "wce.reduction": Choice(["torch_mean", "batch_mean"]),
    "sampler": Choice(["uniform", "class_balanced", "at_least_2_per_class"]),
}
"""More to tune where there is the budget, as at the paper's scale."""


def _searched(base: MutableConfig, space: Space, names: tuple[str, ...]) -> dict[str, Arm]:
    """Return an arm for each named system, which searches `space` around the settings `base`.

    What a system sets itself is not searched: a system without the loss of l keeps `beta` 0.
    """
    searched = {}
    for name in names:
        system = SYSTEMS[name]
        if system["beta"] != 0:
            system = _without(system, "beta")
        # What a system or the base sets is not searched, and what is searched is not set.
        fixed = _without(base, *space) | system
        to_search = {key: value for key, value in space.items() if key not in fixed}
        searched[name] = Arm(PAIRS, config=fixed, space=to_search)
    return searched


SWEEP = Sweep(
    name="local-sweep",
    description="Weights, temperature, rate, batch and recipe of the four systems on xBD, then five fresh seeds",
    arms=_searched(_PAPER | {"image_size": 128}, WEIGHTS | RECIPE, tuple(SYSTEMS)),
    data="xbd",
    folds=5,
    search_folds=[0],
    trials_per_arm=60,
    pruner="asha",
    metric="f1_macro",
    reference="local",
)
SWEEP_SMALL = Sweep(
    name="local-sweep-small",
    description="The sweep on OMBRIA's pairs with a small network",
    arms=_searched(
        _SMALL | {"encoder.width": 8, "epochs": 5},
        WEIGHTS | {"learning_rate": Float(3e-4, 1e-2, log=True)},
        ("scl", "local"),
    ),
    data="ombria",
    folds=5,
    search_folds=[0],
    trials_per_arm=6,
    confirm_seeds=[1000],
    metric="f1_macro",
    reference="local",
)

SICK = AblationGrid(
    name="local-sick",
    description="Sentence pairs: the four systems on SICK's entailment (the paper claims and does not show it)",
    arms=arms({}, tuple(SYSTEMS), TEXTS),
    data="sick",
    seeds=[0, 1, 2, 3, 4],
    metric="f1_macro",
    reference="local",
)
SICK_SMALL = AblationGrid(
    name="local-sick-small",
    description="SICK's entailment with a narrow encoder and few epochs",
    data="sick",
    seeds=list(range(100, 108)),
    smallest_difference=0.02,
    arms=arms(
        {
            "encoder.width": 48,
            "max_words": 24,
            "batch_size": 64,
            "epochs": 6,
            "learning_rate": 3e-3,
            "evaluate_every": 0,
            "checkpoint_every": 0,
            "artifacts": "none",
        },
        tuple(SYSTEMS),
        TEXTS,
    ),
    metric="f1_macro",
    reference="local",
)
