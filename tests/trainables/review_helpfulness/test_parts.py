"""What is particular to one model or layer and the shared suite cannot see."""

import dataclasses
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from contrasweep.schema import checked, resolved_config
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    HelpfulnessModel,
    Inputs,
    Output,
    Sequences,
)
from contrasweep.trainables.review_helpfulness.corpora import PreparedParts
from contrasweep.trainables.review_helpfulness.metrics import distance_metrics, relation_distances
from contrasweep.trainables.review_helpfulness.models import MODELS
from contrasweep.trainables.review_helpfulness.networks.layers import (
    join,
    masked_max,
    masked_mean,
    masked_softmax,
)
from contrasweep.trainables.review_helpfulness.networks.mcr import CoherentGraph
from contrasweep.trainables.review_helpfulness.networks.proposed import STREAMS
from contrasweep.trainables.review_helpfulness.networks.sse_cross import swap_partners
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trainables.review_helpfulness.trainer import BestWeights, PlateauSchedule, Trainer


def test_pooling_of_rows_without_valid_positions_is_zero():
    x = torch.randn(1, 3, 4)
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    pooled = masked_mean(x, nothing), masked_max(x, nothing)
    assert not torch.cat(pooled).any() and not masked_softmax(x[..., 0], nothing, dim=1).any()


def test_joining_with_a_gap():
    a = Sequences(torch.ones(1, 2, 1), torch.ones(1, 2, dtype=bool))
    b = Sequences(torch.ones(1, 1, 1), torch.ones(1, 1, dtype=bool))
    joined = join(a, b, gap=True)
    assert joined.x.flatten().tolist() == [1, 1, 0, 1]
    assert joined.mask.flatten().tolist() == [
        True,
        True,
        False,
        True,
    ]
    assert join(a, b).x.shape == (1, 3, 1)


def test_the_graph_in_slices_is_the_graph():
    """Value and gradient as from the formula written with all pairs at once; 70 nodes are three slices."""
    torch.manual_seed(0)
    graph = CoherentGraph(4, layers=1, hidden=3).double()
    mask = torch.ones(2, 70, dtype=torch.bool)
    mask[0, 50:] = False
    x = torch.randn(2, 70, 4, dtype=torch.float64, requires_grad=True)

    def formula(x):
        pairs = torch.cat(
            [x[:, :, None].expand(2, 70, 70, 4), x[:, None].expand(2, 70, 70, 4)], dim=-1
        )
        both = torch.cat([graph.query[0].weight, graph.key[0].weight], dim=1)
        scores = (torch.relu(pairs @ both.T + graph.query[0].bias) @ graph.weight[0].weight.T)[
            ..., 0
        ]
        return (
            torch.softmax(scores.masked_fill(~mask[:, None], float("-inf")), -1)
            @ x
            * mask[..., None]
        )

    parameters = [x, *graph.parameters()]
    expected = formula(x)
    mixed = graph(x, mask)
    assert_close(mixed, expected)
    for a, b in zip(
        torch.autograd.grad(mixed.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        assert_close(a, b)


def test_interaction_keeps_reading_the_original_features(corpus, make_trainer):
    """With another second layer for one stream, no other stream changes."""
    trainer = make_trainer("proposed", corpus)
    trainer.model.eval()
    streams = trainer.model.encode(corpus.batch(np.arange(6)))
    before = trainer.model.interact(streams)
    with torch.no_grad():
        trainer.model.interaction["text_p"].layers[0].out.weight.mul_(-1)
    after = trainer.model.interact(streams)
    assert [name for name in STREAMS if not torch.equal(before[name].x, after[name].x)] == [
        "text_p"
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"adaptive": False},
        {"o_pos": 1.5},
        {"o_neg": 0.1},
        {"clamp_weights": True},
        {"detach_weights": True},
        {"contrastive_reduction": "sum"},
        {"mask_same_product": True},
        {"contrastive": False},
        {"contrastive_form": "code"},
        {"interaction": False},
        {"head": "mlp"},
    ],
    ids=str,
)
def test_the_ablations_change_the_model(options, corpus, make_trainer):
    whole = make_trainer("proposed", corpus)
    less = make_trainer("proposed", corpus, options)
    whole = whole.train_epoch(1)
    less = less.train_epoch(1)
    assert whole["loss"] != less["loss"]
    assert ("contrastive_loss" in less) == options.get("contrastive", True)
    assert 0 < whole["contrastive_rows"] <= 32


def test_partners_of_swaps():
    labels = np.repeat([0, 1, 2], [50, 30, 1])
    rng = np.random.default_rng(0)
    rows = np.arange(80)
    same = swap_partners(labels, rows, odds=1e12, rng=rng)
    assert (labels[same] == labels[rows]).all() and (same != rows).all()
    assert (labels[swap_partners(labels, rows, odds=0.0, rng=rng)] != labels[rows]).all()
    assert swap_partners(labels, np.array([80]), odds=1e12, rng=rng).tolist() == [80]


def test_swaps_happen_in_training_only_and_leave_the_data_alone(corpus, make_trainer):
    trainer = make_trainer("sse_cross", corpus, {"image_swap": 1.0, "text_swap": 0.0})
    rows = np.arange(8)
    kept = [tokens.copy() for tokens in corpus.review_regions]
    batch = corpus.batch(rows)
    swapped = trainer.model.augment(batch, corpus, rows, np.random.default_rng(0))
    assert torch.equal(swapped.text_r, batch.text_r) and swapped.roi_r.shape[0] == 8
    assert not torch.equal(swapped.roi_r[:, 0], batch.roi_r[:, 0])
    assert all(np.array_equal(a, b) for a, b in zip(kept, corpus.review_regions, strict=True))
    assert np.array_equal(trainer.score(corpus), trainer.score(corpus))


def test_distances_of_every_relation(corpus, make_trainer):
    corpus.product_regions[0] = corpus.product_regions[0][:0]
    for model in ("proposed", "mcr"):
        trainer = make_trainer(model, corpus)
        rows, output, batch = next(trainer.outputs(corpus))
        distances = relation_distances(output.features)
        assert set(distances) == {
            f"{d}_{r}" for d in ("cs", "l2") for r in ("intra_modal", "inter_modal", "intra_review")
        }
        assert all(v.shape == (len(rows),) and (v >= 0).all() for v in distances.values())
        both = (corpus.product[rows] > 0) & (corpus.label[rows] >= 2)  # product 0 has no image
        expected = distances["l2_inter_modal"][both].mean().item()
        means = distance_metrics([(output, batch)], 2)
        assert means["l2_inter_modal_helpful"] == pytest.approx(expected)


def test_plateau_halves_after_more_than_its_patience():
    plateau = PlateauSchedule(lr=1.0, factor=0.5, patience=2)
    rates = []
    for value in (0.5, 0.5, 0.4, 0.5, 0.6, 0.6, 0.6, 0.6):
        plateau.step(value)
        rates.append(plateau.lr)
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25]


def test_the_first_of_equally_good_epochs_is_kept():
    best = BestWeights()
    model = torch.nn.Linear(1, 1)
    for epoch, value in enumerate((0.2, 0.7, 0.7), start=1):
        torch.nn.init.constant_(model.weight, epoch)
        best.offer(value, epoch, model)
    assert best.epoch == 2 and best.weights["weight"].item() == 2


def test_an_n_gram_of_conv_knrm_begins_at_its_word_and_ends_in_zeros(corpus, make_trainer):
    model = make_trainer("conv_knrm", corpus, {"ngrams": 2}).model
    words = torch.randn(1, 4, model.review_words.dim)
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    pairs = model._grams(words, mask)[1][0]
    convolution = model.ngrams[1]
    followed = torch.cat([words[0, :3], torch.zeros_like(words[0, :2])])
    for t in range(4):
        expected = convolution(followed[t : t + 2].T[None])[0, :, 0].relu()
        assert_close(pairs[t], expected)


@pytest.mark.parametrize("model", MODELS)
def test_resolved_settings_are_all_settings(model):
    resolved = resolved_config(Settings(model=model))
    assert Settings(**resolved) == Settings(model=model)
    names = {"name", *(field.name for field in dataclasses.fields(MODELS[model].settings))}
    assert set(resolved["model"]) == names - {"contrastive_form"}, (
        "left out at its default: no id changes by it"
    )
    assert "device" not in resolved  # it says where a trial runs, not what it is


class OwnModel(HelpfulnessModel):
    """A model outside the table: the review's length times a weight."""

    @checked
    class settings:
        scale: float = 1.0

    def __init__(self, options: Any, inputs: Inputs) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((1,), options.scale))

    def forward(self, batch: Batch) -> Output:
        return Output(self.weight * batch.mask_r.sum(1))


def test_a_model_of_ones_own_is_named_by_its_path(corpus, inputs, monkeypatch):
    module = types.ModuleType("own_models")
    module.OwnModel = OwnModel
    monkeypatch.setitem(sys.modules, "own_models", module)
    settings = Settings(model={"name": "own_models:OwnModel", "scale": 2.0}, device="cpu")
    assert resolved_config(settings)["model"] == {"name": "own_models:OwnModel", "scale": 2.0}
    trainer = Trainer(
        settings,
        PreparedParts(dict.fromkeys(("train", "dev", "test"), corpus), inputs, {}),
        (0, None),
    )
    assert trainer.score(corpus).tolist() == [2.0 * len(tokens) for tokens in corpus.review_tokens]
    assert np.isfinite(trainer.epoch(1)["loss"])
