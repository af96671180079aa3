"""The losses' values at the optima, the bound, class weights, and the weighted sum."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from contrasweep.errors import SpecError
from contrasweep.trainables import losses
from contrasweep.trainables.paired.network import Outputs
from contrasweep.trainables.paired.objective import Objective, class_weights
from contrasweep.trainables.paired.settings import PairedSettings

LABELS = torch.tensor([0] * 5 + [1] * 3 + [2] * 2 + [3] * 2)


def lower_bound(labels: Tensor, temperature: float, *, orthonormal: bool = True, classes: int = 0) -> float:
    """Return the least value that the contrastive loss of unit vectors with these labels can take.

    It is averaged over all anchors; one without a positive counts 0.

    OCL (Theorem 3.2; the appendix's (|B|-1)/e is wrong): log(n - 1 + (B - n) e^(-1/tau)) for an anchor whose class
    has n members, reached by orthonormal class vectors. SCL (`orthonormal` false, Graf et al. 2021): the exponent is
    -K/((K-1) tau) for K = `classes`, reached by a regular simplex, and a bound for balanced classes only.
    """
    exponent = -1 / temperature if orthonormal else -classes / ((classes - 1) * temperature)
    size = len(labels)
    counts = torch.bincount(labels)[labels].tolist()
    return sum(math.log(n - 1 + (size - n) * math.exp(exponent)) for n in counts if n > 1) / size


def simplex(classes: int) -> Tensor:
    """`classes` unit vectors with cosine -1/(K-1) between any two."""
    centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return torch.nn.functional.normalize(centred, dim=1)


def contrast(loss: str, points: Tensor, temperature: float) -> float:
    return float(losses.build(loss, "dot", reduction="all_anchors", temperature=temperature)(points, LABELS))


@pytest.mark.parametrize(
    ("loss", "points", "temperature", "value"),
    [
        ("ocl", "orthonormal", 1.0, 1.716495),
        ("ocl", "orthonormal", 0.1, 0.751145),
        ("supcon", "simplex", 1.0, 1.534793),
        ("supcon", "simplex", 0.1, 0.750918),
        ("ocl", "simplex", 1.0, 1.921906),
        ("ocl", "simplex", 0.1, 0.757480),
    ],
)
def test_values_at_the_two_optima(loss: str, points: str, temperature: float, value: float) -> None:
    where = torch.eye(4, dtype=torch.float64) if points == "orthonormal" else simplex(4)
    assert contrast(loss, where[LABELS], temperature) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.5, 1.0])
def test_the_bounds_are_reached_by_orthonormal_and_simplex_centres(temperature: float) -> None:
    orthonormal = contrast("ocl", torch.eye(4, dtype=torch.float64)[LABELS], temperature)
    assert lower_bound(LABELS, temperature) == pytest.approx(orthonormal, rel=1e-12)
    on_simplex = contrast("supcon", simplex(4)[LABELS], temperature)
    assert lower_bound(LABELS, temperature, orthonormal=False, classes=4) == pytest.approx(on_simplex, rel=1e-12)


@given(seed=st.integers(0, 10_000), spread=st.floats(0, 2), temperature=st.sampled_from([0.1, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_no_configuration_falls_below_ocls_bound_and_none_of_scl_is_above_ocl(
    seed: int, spread: float, temperature: float
) -> None:
    noise = torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    points = torch.nn.functional.normalize(torch.eye(6, dtype=torch.float64)[LABELS] + spread * noise, dim=1)
    ocl = contrast("ocl", points, temperature)
    assert ocl >= lower_bound(LABELS, temperature) - 1e-12
    assert ocl >= contrast("supcon", points, temperature) - 1e-12


def test_the_appendixs_bound_would_be_violated() -> None:
    """(|B| - 1)/e in place of (|B| - l)/e is above what orthonormal vectors reach."""
    appendix = sum(math.log(n - 1 + 11 / math.e) for n in (5,) * 5 + (3,) * 3 + (2,) * 4) / 12
    assert contrast("ocl", torch.eye(4, dtype=torch.float64)[LABELS], 1.0) < appendix - 0.05


def outputs(labels: Tensor, classes: int = 3) -> Outputs:
    generator = torch.Generator().manual_seed(1)
    z, latent = (torch.nn.functional.normalize(torch.randn(len(labels), 8, generator=generator)) for _ in range(2))
    return Outputs(z, latent, torch.randn(len(labels), classes, generator=generator), torch.ones(len(labels)), z)


def test_the_sum_is_alpha_times_contrast_plus_the_rest_times_wce() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2])
    out, declared = outputs(labels), PairedSettings(beta=0.25)
    objective = Objective(declared, labels, 3, torch.device("cpu"))
    loss, terms = objective(out, labels, 0.75)
    expected = 0.75 * (terms["contrast_z"] + 0.25 * terms["contrast_l"]) + 0.25 * terms["wce"]
    assert float(loss) == pytest.approx(float(expected))
    assert float(terms["anchors"]) == pytest.approx(0.8)
    assert float(terms["wce"]) == pytest.approx(
        float(torch.nn.functional.cross_entropy(out.logits, labels, torch.tensor([5 / 6, 5 / 6, 5 / 3])))
    )


def test_wce_reductions_differ_by_the_mean_weight_of_the_batch() -> None:
    train, batch = torch.tensor([0] * 8 + [1] * 2), torch.tensor([0, 1, 1])
    out = outputs(batch, classes=2)
    values = [
        Objective(PairedSettings(wce={"reduction": kind}), train, 2, torch.device("cpu")).wce(out.logits, batch)
        for kind in ("torch_mean", "batch_mean")
    ]
    weights = class_weights("balanced", train, 2)
    assert weights.tolist() == pytest.approx([10 / 16, 10 / 4])
    assert class_weights("root", train, 2).tolist() == pytest.approx([(10 / 16) ** 0.5, (10 / 4) ** 0.5])
    assert float(values[1]) == pytest.approx(float(values[0] * weights[batch].sum() / 3))


@pytest.mark.parametrize("kind", ["balanced", "root", "effective_number", "none"])
def test_rare_classes_never_weigh_less_and_absent_ones_do_not_break(kind: str) -> None:
    weights = class_weights(kind, torch.tensor([0] * 90 + [1] * 9 + [3]), 4)
    assert weights.isfinite().all()
    assert weights[0] <= weights[1] <= weights[3]
    if kind != "none":
        assert weights[2] == 0 and weights[0] < weights[3]


@pytest.mark.parametrize("batch", [[0, 1], [0, 0], [0, 1, 2], [2]])
@pytest.mark.parametrize("loss", ["supcon", "ocl"])
def test_tiny_batches_have_finite_losses_and_gradients(batch: list[int], loss: str) -> None:
    labels = torch.tensor(batch)
    z = torch.randn(len(batch), 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    unit = torch.nn.functional.normalize(z, dim=1)
    out = Outputs(unit, unit, torch.zeros(len(batch), 3), torch.ones(len(batch)), unit)
    value, terms = Objective(PairedSettings(loss=loss), torch.tensor([0, 1, 2]), 3, torch.device("cpu"))(
        out, labels, 1.0
    )
    (gradient,) = torch.autograd.grad(value, z)
    assert value.isfinite() and gradient.isfinite().all()
    if len(set(batch)) == len(batch):
        assert terms["contrast_z"].item() == 0 and not gradient.any()


def test_more_classes_than_dimensions_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"projection\.dim 2 cannot hold 3"):
        Objective(PairedSettings(projection={"dim": 2}), torch.tensor([0, 1, 2]), 3, torch.device("cpu"))


@pytest.mark.parametrize(
    ("declared", "never"),
    [
        (PairedSettings(alpha=1.0, alpha_schedule="const", epochs=3), True),
        (PairedSettings(alpha=1.0, epochs=1), True),
        (PairedSettings(alpha=1.0, epochs=2), False),
        (PairedSettings(alpha=0.9, alpha_schedule="const", epochs=3), False),
    ],
)
def test_a_classifier_that_is_never_trained_is_warned_of(declared: PairedSettings, never: bool) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Objective(declared, torch.tensor([0, 1, 2]), 3, torch.device("cpu"))
    said = [str(w.message)[:28] for w in seen if w.category is UserWarning]  # the garbage collector may warn as well
    assert said == ["alpha is 1 in every epoch: t"] * never


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"loss": "supconn"}, "loss"),
        ({"loss": "infonce"}, "loss.*rows of a class.*'infonce'.*supcon"),
        ({"alpha_schedule": "parabola"}, "alpha_schedule"),
        ({"sampler": "x"}, "sampler"),
        ({"latent": {"blocks": "1-3"}}, r"latent\.blocks"),
        ({"loss": {"temperature": 0}}, r"loss\.temperature: .*greater than 0"),
        ({"temperature": 0.1}, r"temperature: .*did you mean 'loss\.temperature\'"),
        ({"optimizer": {"name": "adamw", "momentum": 0.9}}, r"optimizer\.momentum"),
        ({"alpha": 1.5}, "alpha"),
        ({"betta": 1}, "betta"),
    ],
)
def test_wrong_settings_name_their_place(config: dict[str, object], place: str) -> None:
    with pytest.raises(SpecError, match=place):
        PairedSettings(**config)
