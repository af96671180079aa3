"""What does not fit is refused when a study is planned, in one line that names the place, before a GPU is asked for."""

from typing import Any

import numpy as np
import pytest
from folders import importable
from PIL import Image
from refusals import refused

from contrasweep import AblationGrid, Arm, ContrasweepError, data, plan

OWN = '''
import torch
from torch import nn

class Nothing:
    pass

def no_module(features):
    return lambda rows: rows

class Tuples(nn.Linear):
    dim = 4
    def __init__(self, shape):
        super().__init__(1, 4)
    def forward(self, images):
        return images, images

class Pair(nn.Module):
    """A loss of two views with weights."""
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
    def forward(self, first, second):
        return self.scale * (first - second).square().mean()

class NoStep:
    def __init__(self, model, steps, dim):
        self.trained, self.parts = nn.Module(), {}

class Fails:
    def __init__(self, model, steps, dim):
        self.trained, self.parts = nn.Module(), {}
    def step(self, views, labels, rows, loss):
        return views.view(-1, 7)
    def after_step(self, step):
        pass

class NoLoss(Fails):
    def step(self, views, labels, rows, loss):
        return None, views

class Own(Fails):
    joined = False
    n_views = 0
    def step(self, views, labels, rows, loss):
        z = views.flatten(1).requires_grad_()
        return loss(z, labels, rows), z

def two_views(z1, z2):
    return (z1 - z2).square().mean()

def endless(first, second):
    return (first - second).square().mean() / 0

def rows_alone(first, second):
    return (first - second).square().sum(1)

class Weighted(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.layer = nn.Linear(dim, classes + 1)
    def forward(self, embeddings, labels):
        return nn.functional.cross_entropy(self.layer(embeddings), labels + 9)

def distance(rows, columns):
    return torch.cdist(rows, columns)

def one_column(rows, columns):
    return rows.sum(1)

def fixed(rows, columns):
    return (rows.detach() @ columns.detach().T)

def cosine(rows, columns):
    return nn.functional.normalize(rows) @ nn.functional.normalize(columns).T

def fit(first, second, scale: float = 2.0):
    """A loss of two views that suits."""
    return scale * (first - second).square().mean()
'''
CONTRASTIVE = "contrastive"
IMAGES = "paired_images"
TEXTS = "paired_texts"
PIXELS = "contrasweep.trainables.raw_pixels:train"
TUNED = "contrasweep.trainables.finetune:train"
TOWERS = "contrasweep.trainables.two_tower:train"
REVIEWS = "contrasweep.trainables.review_helpfulness:train"
LONGEST = "contrasweep.trainables.review_helpfulness.longest_first:train"
COLOURS = "contrasweep.trainables.paired.colour_baseline:train"
SYNTHETIC_REVIEWS = "contrasweep.trainables.review_helpfulness.datasets:SYNTHETIC_REVIEWS"
OF_DIGITS: list[tuple[dict[str, Any], str]] = [
    ({"targets": "own_parts:Nothing"}, "targets: own_parts:Nothing cannot take a step; TypeE"),
    ({"targets": "own_parts:NoStep"}, "targets: targets have step, after_step, got"),
    ({"targets": "own_parts:Fails"}, "targets: own_parts:Fails cannot take a step; Runtime"),
    ({"targets": "own_parts:NoLoss"}, "targets: a step of targets gives (loss, embeddings)"),
    ({"targets": "own_parts:Own", "n_views": 3}, "n_views: targets 'own_parts:Own' compare"),
    (
        {"targets": "own_parts:Own", "resources": {"processes": 2}},
        "targets: targets 'own_parts:Own' do not say that they join the rows of several processes",
    ),
    ({"projection": "own_parts:no_module"}, "projection: a head is a torch module, got 'function"),
    ({"encoder": "own_parts:Tuples"}, "encoder: own_parts:Tuples must give a tensor, got 'tuple'"),
    ({"encoder": "squeezenet1_1"}, "squeezenet1_1 does not end with a linear layer"),
    ({"transfer": ["synthetic-pairs"]}, "it must hold images with labels"),
    ({"loss": "nt_xent"}, "there is no such loss, got 'nt_xent'; did you mean 'infonce'?"),
    ({"reports_per_epoch": 1000}, "reports_per_epoch: an epoch has 4 batches, got 1000"),
    ({"loss": "own_parts:two_views"}, "a loss of two views has the parameters first, second"),
    ({"loss": "own_parts:rows_alone"}, "loss: a loss gives one finite number"),
    ({"loss": "own_parts:endless"}, "loss: a loss gives one finite number, got 'inf'"),
    ({"loss": "no_parts:fit"}, "loss: the loss's module cannot be imported, got 'no_parts:fit'"),
    ({"loss": "own_parts:Weighted"}, "loss: own_parts:Weighted fails on 4 embeddings"),
    (
        {"loss": {"name": "supcon", "similarity": "own_parts:distance"}},
        "loss.similarity: a row is more alike itself than others, so a distance is negated",
    ),
    (
        {"loss": {"name": "supcon", "similarity": "own_parts:one_column"}},
        "loss.similarity: a similarity gives a finite score for each row with each column, got '[4] for",
    ),
    (
        {"loss": {"name": "supcon", "similarity": "own_parts:fixed"}},
        "loss.similarity: a similarity has a gradient",
    ),
    (
        {"loss": {"name": "ocl", "similarity": "own_parts:cosine"}},
        "loss.similarity: this loss needs a similarity where 0 means unrelated",
    ),
    (
        {"loss": {"name": "supcon", "similarity": "own_parts:cosin"}},
        "loss.similarity: the similarity's module has no such function or class",
    ),
]
"""Settings of `contrastive` on digits."""
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    (CONTRASTIVE, SYNTHETIC_REVIEWS, {}, "arms.a.config: contrastive trains on images; dataset "),
    (CONTRASTIVE, "synthetic-pairs", {}, "is of kind 'image-pair'"),
    (TUNED, "synthetic-pairs", {}, "finetune trains on images; dataset synthetic-pairs is of kind"),
    (TUNED, "unlabelled", {}, "dataset 'unlabelled' has no labels to train on"),
    (IMAGES, "digits-lt", {}, "needs a dataset of kind 'image-pair'"),
    (TEXTS, "digits-lt", {}, "paired_texts trains on text pairs"),
    (REVIEWS, "digits-lt", {}, "review_helpfulness trains on reviews"),
    (LONGEST, "digits-lt", {}, "digits-lt is of kind 'image'"),
    (COLOURS, "digits-lt", {}, "needs image pairs; digits-lt is of kind 'image'"),
    (PIXELS, "synthetic-pairs", {}, "needs labelled images; synthetic-pairs"),
    (
        "contrasweep.trainables.texts:train",
        "digits-lt",
        {},
        "texts trains on text pairs; digits-lt is",
    ),
    (TOWERS, "synthetic-pairs", {}, "two_tower needs images with captions"),
    (
        TOWERS,
        "digits-lt",
        {"loss": "own_parts:Nothing", "learnable_temperature": False},
        "loss: own_parts:Nothing fails on scores",
    ),
    (CONTRASTIVE, "unlabelled", {"loss": "arcface"}, "has no labels, which this loss needs"),
    (
        CONTRASTIVE,
        "unlabelled",
        {"loss": "infonce", "sampling": "class_balanced"},
        "sampling: dataset 'unlabelled' has no labels, ",
    ),
    (IMAGES, "unlabelled", {"input": "single", "beta": 0}, "unlabelled has no labels, which"),
    (IMAGES, "synthetic-pairs", {"batch_size": 10**6}, "batch_size: a batch must not be larger"),
    (IMAGES, "synthetic-pairs", {"latent": {"size": 1}}, "latent.size: l needs a dimension for"),
    (
        "contrasweep.trainables.contrastive.timed:train",
        "digits-lt",
        {"resources": {"processes": 2}},
        "resources: the clock is that of one process, got 2",
    ),
    *((CONTRASTIVE, "digits-lt", config, says) for config, says in OF_DIGITS),
]


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "images").mkdir()
    for i in range(12):
        pixels = np.random.default_rng(i).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"images/{i}.png")
    data.stage("images", str(folder / "datasets/unlabelled"), source=folder / "images")
    with importable(folder, own_parts=OWN):
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainable", "dataset", "config", "says"), REFUSED, ids=[row[3][:40] for row in REFUSED]
)
def test_what_does_not_fit_is_one_line(storage, unchecked_shapes, trainable, dataset, config, says):
    study = AblationGrid("s", {"a": Arm(trainable, config=config)}, dataset, metric="knn1")
    with refused(ContrasweepError, says):
        plan(study, storage=str(storage))


@pytest.mark.parametrize(
    "config",
    [
        {"loss": {"name": "own_parts:fit", "scale": 3.0}},
        {"loss": {"name": "supcon", "similarity": "own_parts:cosine"}},
        {"targets": "own_parts:Own"},
        {"loss": "own_parts:Pair"},
    ],
)
def test_what_fits_is_planned_with_its_parameters(storage, config):
    study = AblationGrid("s", {"a": Arm(CONTRASTIVE, config=config)}, "digits-lt", metric="knn1")
    (trial,) = plan(study, storage=str(storage)).trials
    for name, value in config.items():
        assert trial.config[name]["name"] == (value if isinstance(value, str) else value["name"])
    assert trial.config["loss"].get("scale", 3.0) == 3.0
