"""The losses' values at the optima, class weights, and the weighted sum."""

import warnings

import pytest
import torch
from loss_batches import seeded

from contrasweep.trainables.paired.network import Outputs
from contrasweep.trainables.paired.objective import Objective, class_weights
from contrasweep.trainables.paired.settings import PairedSettings


def outputs(labels, classes=3):
    generator = seeded(1)
    z, latent = (
        torch.nn.functional.normalize(torch.randn(len(labels), 8, generator=generator))
        for _ in range(2)
    )
    return Outputs(
        z,
        latent,
        torch.randn(len(labels), classes, generator=generator),
        torch.ones(len(labels)),
        z,
    )


def test_the_sum_is_alpha_times_contrast_plus_the_rest_times_wce():
    labels = torch.tensor([0, 0, 1, 1, 2])
    out = outputs(labels)
    objective = Objective(PairedSettings(beta=0.25), labels, 3, torch.device("cpu"))
    loss, terms = objective(out, labels, 0.75)
    expected = 0.75 * (terms["contrast_z"] + 0.25 * terms["contrast_l"]) + 0.25 * terms["wce"]
    assert float(loss) == pytest.approx(float(expected))
    assert float(terms["anchors"]) == pytest.approx(0.8)
    assert float(terms["wce"]) == pytest.approx(
        float(
            torch.nn.functional.cross_entropy(
                out.logits, labels, torch.tensor([5 / 6, 5 / 6, 5 / 3])
            )
        )
    )


def test_wce_reductions_differ_by_the_mean_weight_of_the_batch():
    train = torch.tensor([0] * 8 + [1] * 2)
    batch = torch.tensor([0, 1, 1])
    out = outputs(batch, classes=2)
    values = [
        Objective(PairedSettings(wce={"reduction": kind}), train, 2, torch.device("cpu")).wce(
            out.logits, batch
        )
        for kind in ("torch_mean", "batch_mean")
    ]
    weights = class_weights("balanced", train, 2)
    assert weights.tolist() == pytest.approx([10 / 16, 10 / 4])
    assert class_weights("root", train, 2).tolist() == pytest.approx(
        [(10 / 16) ** 0.5, (10 / 4) ** 0.5]
    )
    assert float(values[1]) == pytest.approx(float(values[0] * weights[batch].sum() / 3))


@pytest.mark.parametrize("kind", ["balanced", "root", "effective_number", "none"])
def test_rare_classes_never_weigh_less_and_absent_ones_do_not_break(kind):
    weights = class_weights(kind, torch.tensor([0] * 90 + [1] * 9 + [3]), 4)
    assert weights.isfinite().all()
    assert weights[0] <= weights[1] <= weights[3]
    if kind != "none":
        assert weights[2] == 0 and weights[0] < weights[3]


def test_more_classes_than_dimensions_is_warned_of():
    with pytest.warns(UserWarning, match=r"projection\.dim 2 cannot hold 3"):
        Objective(
            PairedSettings(projection={"dim": 2}), torch.tensor([0, 1, 2]), 3, torch.device("cpu")
        )


@pytest.mark.parametrize(
    ("declared", "never"),
    [
        (PairedSettings(alpha=1.0, alpha_schedule="const", epochs=3), True),
        (PairedSettings(alpha=1.0, epochs=2), False),
    ],
)
def test_a_classifier_that_is_never_trained_is_warned_of(declared, never):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Objective(declared, torch.tensor([0, 1, 2]), 3, torch.device("cpu"))
    said = [
        str(w.message)[:28] for w in seen if w.category is UserWarning
    ]  # the garbage collector may warn as well
    assert said == ["alpha is 1 in every epoch: t"] * never
