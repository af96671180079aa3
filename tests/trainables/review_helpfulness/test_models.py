"""What holds for every model in `MODELS`; a new one is tested by being in the table."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from contrasweep.trainables import checkpoint
from contrasweep.trainables.review_helpfulness import MODELS

every_model = pytest.mark.parametrize("model", MODELS)
MULTIMODAL = {"dr_net", "sse_cross", "mcr", "proposed"}
"""The models that look at images too."""
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
SEQUENCES = {
    "text_p": "mask_p",
    "text_r": "mask_r",
    "record_p": "record_mask_p",
    "roi_p": "roi_mask_p",
    "roi_r": "roi_mask_r",
}


def scores(trainer, batch):
    trainer.model.eval()
    with torch.no_grad():
        return trainer.model(batch).score


def longer(batch, by, *, fill):
    """The batch with `by` more invalid positions in every sequence, all invalid ones holding `fill`."""
    changed = {}
    for name, mask_name in SEQUENCES.items():
        x = getattr(batch, name)
        mask = getattr(batch, mask_name)
        x = torch.cat([x, x.new_zeros(len(x), by, *x.shape[2:])], dim=1)
        mask = torch.cat([mask, mask.new_zeros(len(x), by)], dim=1)
        spread = mask.view(*mask.shape, *[1] * (x.dim() - 2))
        changed |= {name: torch.where(spread, x, torch.full_like(x, fill)), mask_name: mask}
    return replace(batch, **changed)


@pytest.mark.slow
@every_model
def test_a_score_does_not_depend_on_batch_mates(model, corpus, make_trainer):
    trainer = make_trainer(model, corpus)
    rows = np.arange(len(corpus))
    together = scores(trainer, corpus.batch(rows))
    assert together.std() > 1e-6
    alone = torch.cat([scores(trainer, corpus.batch(rows[i : i + 1])) for i in rows])
    backward = scores(trainer, corpus.batch(rows[::-1].copy())).flip(0)
    assert_close(alone, together, **TOLERANCE)
    assert_close(backward, together, **TOLERANCE)


@every_model
def test_padding_reaches_no_score(model, corpus, make_trainer):
    trainer = make_trainer(model, corpus)
    batch = corpus.batch(np.arange(8))
    expected = scores(trainer, batch)
    assert_close(scores(trainer, longer(batch, 5, fill=0)), expected, **TOLERANCE)
    assert_close(scores(trainer, longer(batch, 1, fill=7)), expected, **TOLERANCE)


@every_model
def test_valid_positions_reach_the_score(model, corpus, make_trainer):
    """The counterpart of the test above: otherwise a constant would pass it."""
    trainer = make_trainer(model, corpus)
    batch = corpus.batch(np.arange(8))
    expected = scores(trainer, batch)
    other = torch.where(batch.mask_r, 2 + (batch.text_r + 17) % 50, batch.text_r)
    assert not torch.allclose(scores(trainer, replace(batch, text_r=other)), expected, **TOLERANCE)
    images = scores(trainer, replace(batch, roi_r=-3 * batch.roi_r))
    assert torch.allclose(images, expected, **TOLERANCE) != (model in MULTIMODAL)


@every_model
@pytest.mark.parametrize("images", [True, False])
def test_gradients_reach_every_parameter(model, images, make_trainer, make_corpus):
    corpus = make_corpus(images=images)
    trainer = make_trainer(model, corpus)
    trainer.model.train()
    output = trainer.model(corpus.batch(np.arange(len(corpus))))
    (output.score.square().sum() + sum(output.losses.values())).backward()
    parameters = [*trainer.model.named_parameters(remove_duplicate=False)]
    assert len({weight for _, weight in parameters}) == len(parameters), "no two layers are one"
    without = [name for name, p in parameters if p.grad is None or not p.grad.abs().sum() > 0]
    if images:
        assert without == []
    else:  # a zero region moves no weight that multiplies it, and one region has no order of attention
        assert all(p.grad is None or p.grad.isfinite().all() for p in trainer.model.parameters())
        assert "score.weight" not in without


@pytest.mark.slow
@every_model
def test_it_learns_twelve_products_by_heart(model, make_trainer, make_corpus, quiet):
    corpus = make_corpus(products=12, reviews=4, seed=3)
    trainer = make_trainer(
        model, corpus, quiet(model), learning_rate=1e-2, sampler={"groups": 8, "num_negatives": 3}
    )
    before = trainer.evaluate_part(corpus).mean()["map"]
    for epoch in range(1, 41):
        trainer.train_epoch(epoch)
        if epoch % 5 == 0 and (score := trainer.evaluate_part(corpus).mean()["map"]) > 0.95:
            break
    assert score > 0.95 > before


@pytest.mark.slow
@every_model
def test_resumed_training_is_the_same_to_the_bit(model, corpus, make_trainer, tmp_path):
    whole = make_trainer(model, corpus)
    first = [whole.train_epoch(1)]
    whole.select(1, 0.5)
    checkpoint.save(tmp_path, whole.parts)
    first += [whole.train_epoch(2)]
    torch.rand(7)  # the process has been used since
    resumed = make_trainer(model, corpus)
    checkpoint.restore(tmp_path, resumed.parts)
    assert resumed.train_epoch(2) == first[1]
    assert_close(whole.model.state_dict(), resumed.model.state_dict(), rtol=0, atol=0)
    assert np.array_equal(whole.score(corpus), resumed.score(corpus))
    assert resumed.best.epoch == 1
    again = make_trainer(model, corpus)
    assert [again.train_epoch(1), again.train_epoch(2)] == first


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "bce"},
        {"loss": {"margin": "label_diff"}},
        {"sampler": {"interval": 0, "num_negatives": 1}},
    ],
    ids=str,
)
def test_every_loss_trains(settings, corpus, make_trainer):
    trainer = make_trainer("prh_net", corpus, **settings)
    before = trainer.score(corpus)
    metrics = trainer.train_epoch(1)
    assert np.isfinite(list(metrics.values())).all()
    assert f"{trainer.settings.loss.name}_loss" in metrics
    assert not np.array_equal(before, trainer.score(corpus))


@every_model
def test_a_modality_that_is_hidden_does_not_matter(model, corpus, make_trainer):
    """Reviews without images all look alike to their image side: one zero region."""
    blind = replace(
        corpus,
        product_regions=[r[:0] for r in corpus.product_regions],
        review_regions=[r[:0] for r in corpus.review_regions],
    )
    batch = blind.batch(np.arange(8))
    assert not batch.has_image_p.any() and batch.roi_mask_r.all() and not batch.roi_r.any()
    assert scores(make_trainer(model, corpus), batch).isfinite().all()


@pytest.mark.parametrize("threshold", [1, 2, 4])
def test_the_contrastive_loss_is_of_the_rows_at_the_threshold_too(threshold, corpus, make_trainer):
    trainer = make_trainer("proposed", corpus, {"contrastive": True}, helpful_threshold=threshold)
    rows = np.arange(len(corpus))
    helpful = int((corpus.label >= threshold).sum())
    assert 0 < helpful != int((corpus.label > threshold).sum())
    trainer.model.train()
    assert trainer.model(corpus.batch(rows)).log["contrastive_rows"] == helpful


@pytest.mark.parametrize(("part", "tells"), [("private", True), ("shared", False)])
def test_the_domain_losses_of_eg_cnn_teach_private_features_alone_the_category(
    part, tells, corpus, make_trainer, quiet
):
    """A step along the gradient of a part's convolutions raises its loss; of the shared one it is reversed."""
    model = make_trainer("eg_cnn", corpus, quiet("eg_cnn")).model.train()
    batch = corpus.batch(np.arange(len(corpus)))
    weights = list(getattr(model, part).parameters())
    loss = model(batch).losses[f"{part}_domain"]
    gradients = torch.autograd.grad(loss, weights)
    size = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    assert size > 0
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight += 0.05 * gradient / size
    assert (model(batch).losses[f"{part}_domain"] > loss) == tells
