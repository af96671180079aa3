"""Laws that every loss keeps with every similarity; errors; losses from elsewhere."""

import importlib
import importlib.util
import inspect
import itertools
import math
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loss_batches import EDGES, batch, largest_tensor, seeded, value_and_gradient
from refusals import refused
from torch.testing import assert_close

from contrasweep.errors import SpecError
from contrasweep.trainables.losses import LOSSES as ALL_LOSSES
from contrasweep.trainables.losses import Loss, ViewsLoss, build, check_loss
from contrasweep.trainables.losses.batch import NotFiniteError
from contrasweep.trainables.losses.loss import REDUCTIONS
from contrasweep.trainables.similarities import SIMILARITIES

LOSSES = {name: loss for name, loss in ALL_LOSSES.items() if isinstance(loss, Loss)}
"""Those of scores."""
PAIRS = [(loss.name, similarity) for loss in LOSSES.values() for similarity in loss.similarities]
VIEWS = [(loss.name, None) for loss in ALL_LOSSES.values() if isinstance(loss, ViewsLoss)]
"""Losses of two views, which have no similarity."""
EVERY = [*PAIRS, *VIEWS]


@pytest.mark.parametrize(("loss", "similarity"), PAIRS)
@settings(max_examples=5)
@given(
    n=st.integers(1, 12),
    classes=st.integers(1, 5),
    seed=st.integers(0, 999),
    reduction=st.sampled_from(list(REDUCTIONS)),
)
def test_the_order_of_the_batch_is_nothing(loss, similarity, n, classes, seed, reduction):
    z, labels = batch(n, 4, classes, seed)
    order = torch.randperm(n, generator=seeded(seed))
    built = build(loss, similarity, reduction=reduction)
    value, gradient = value_and_gradient(built, z, labels)
    permuted, its_gradient = value_and_gradient(built, z[order], labels[order])
    assert_close(permuted, value, rtol=1e-9, atol=1e-9)
    assert_close(its_gradient, gradient[order], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("loss", "similarity"), EVERY)
def test_gradients_are_derivatives(loss, similarity):
    z, labels = batch(7, 3, 3, seed=11)
    z.requires_grad_()
    for params in (
        {},
        {"soft": True},
        {"smooth": False},
        {"squared": True},
        {"epsilon": 0.3},
        {"mining": "hard"},
        {"mining": "semi_hard"},
    ):
        if set(params) <= set(ALL_LOSSES[loss].fields):
            built = build(loss, similarity, **params)
            assert torch.autograd.gradcheck(lambda x, built=built: built(x, labels, labels), (z,))


@pytest.mark.slow
@pytest.mark.parametrize("edge", EDGES)
def test_values_and_gradients_are_finite_at_edges(edge):
    embeddings, names = EDGES[edge]
    labels = torch.tensor(names, dtype=torch.long)
    for (loss, similarity), dtype in itertools.product(EVERY, (torch.float32, torch.float64)):
        for params in ({}, {"temperature": 1e-3}, {"temperature": 10.0}, {"soft": True}):
            if set(params) <= set(ALL_LOSSES[loss].fields):
                built = build(loss, similarity, **params)
                value, gradient = value_and_gradient(built, embeddings.to(dtype), labels)
                assert torch.isfinite(value) and torch.isfinite(gradient).all(), (loss, similarity)


@pytest.mark.parametrize(("loss", "similarity"), EVERY)
def test_without_positives_a_loss_is_zero(loss, similarity):
    if loss == "margin_contrastive":  # its negative pairs are pairs all the same
        return
    z, _ = batch(6, 3, 1, seed=5)
    for reduction in REDUCTIONS if similarity else [None]:
        built = build(loss, similarity, reduction=reduction)
        value, gradient = value_and_gradient(built, z, torch.arange(6))
        assert value == 0 and (gradient == 0).all()


@pytest.mark.parametrize(
    ("loss", "similarity"), [pair for pair in PAIRS if LOSSES[pair[0]].tile_function]
)
@pytest.mark.parametrize("temperature", [0.001, 0.01, 0.1, 1.0, 10.0])
def test_float32_and_autocast_agree_with_float64(loss, similarity, temperature):
    z, labels = batch(
        24, 8, 4, seed=2, dtype=torch.bfloat16
    )  # values that every type holds exactly
    built = build(loss, similarity, temperature=temperature)
    expected, wanted = value_and_gradient(built, z.double(), labels)
    single = value_and_gradient(built, z.float(), labels)
    with torch.autocast("cpu", torch.bfloat16):
        cast = value_and_gradient(built, z.float(), labels)
    half, half_gradient = value_and_gradient(built, z, labels)
    for value, gradient in (single, cast):
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(expected.item(), rel=2e-5, abs=2e-6 / temperature)
        scale = wanted.abs().max().item()
        assert_close(gradient.double(), wanted, rtol=2e-3, atol=2e-4 * scale)
    assert half.item() == single[0].item() and half_gradient.dtype == torch.bfloat16


@settings(max_examples=25)
@given(
    pairs=st.integers(1, 6),
    seed=st.integers(0, 999),
    similarity=st.sampled_from(list(SIMILARITIES)),
    temperature=st.sampled_from([0.05, 0.5]),
    epsilon=st.sampled_from([0.0, 0.4]),
)
def test_with_one_positive_each_supcon_sincere_and_infonce_agree(
    pairs, seed, similarity, temperature, epsilon
):
    z, _ = batch(2 * pairs, 4, 1, seed)
    labels = torch.arange(pairs).repeat(2)
    built = [
        build(loss, similarity, temperature=temperature, epsilon=epsilon)(z, labels, labels)
        for loss in ("supcon", "sincere", "infonce")
    ]
    assert_close(built[0], built[1], rtol=1e-10, atol=1e-10)
    assert_close(built[0], built[2], rtol=1e-10, atol=1e-10)


@settings(max_examples=20)
@given(seed=st.integers(0, 999), epsilon=st.floats(0, 3))
def test_epsilon_lowers_a_loss_to_minus_epsilon_at_most(seed, epsilon):
    z, labels = batch(9, 4, 3, seed)
    assume(bool((torch.bincount(labels) > 1).any()))
    for loss in ("supcon", "sincere"):
        plain, lowered = (build(loss, "cosine", epsilon=e)(z, labels) for e in (0.0, epsilon))
        assert -epsilon - 1e-12 <= lowered <= plain + 1e-12


# The orthonormal loss and its bound.


def ocl_bound(labels, temperature):
    """LOCAL, Theorem 3.2: sum over anchors of log(l - 1 + (|B| - l) e^{-1/t} ), each l the size of its class, plus the
    1/t that this way of writing takes out of the positive term. The appendix's (|B| - 1)/e is wrong."""
    counts = torch.bincount(labels)[labels].tolist()
    size = len(labels)
    logs = [math.log(c - 1 + (size - c) * math.exp(-1 / temperature)) for c in counts if c > 1]
    return sum(logs) / len(logs)


@settings(max_examples=80)
@given(
    n=st.integers(2, 14),
    classes=st.integers(1, 5),
    seed=st.integers(0, 9999),
    noise=st.sampled_from([0.0, 1e-3, 0.05, 1.0]),
    temperature=st.sampled_from([0.1, 0.5, 1.0, 3.0]),
)
def test_ocl_is_never_below_its_bound(n, classes, seed, noise, temperature):
    z, labels = batch(n, 6, classes, seed)
    assume(bool((torch.bincount(labels) > 1).any()))
    z = torch.eye(6, dtype=z.dtype)[labels] + noise * z
    for similarity, at in (("cosine", z), ("dot", z / z.norm(dim=1, keepdim=True))):
        value = build("ocl", similarity, temperature=temperature)(at, labels).item()
        assert value >= ocl_bound(labels, temperature) - 1e-9
        if noise == 0:
            assert value == pytest.approx(ocl_bound(labels, temperature), abs=1e-9)


def trained_class_cosines(loss, counts, steps=600):
    """Cosines between the mean embeddings of classes, after training free embeddings [n d] on `loss` alone."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    z = torch.randn(len(labels), 8, generator=seeded(0), dtype=torch.float64).requires_grad_()
    built = build(loss, "cosine", temperature=1.0)
    speed = torch.zeros_like(z)
    for step in range(steps):
        (gradient,) = torch.autograd.grad(built(z, labels), z)
        speed = 0.9 * speed + gradient
        z = (
            z - (1 - step / steps) * speed
        ).detach()  # |s| has a kink at 0: the steps have to shrink
        z = (z / z.norm(dim=1, keepdim=True)).requires_grad_()
    means = torch.stack([z.detach()[labels == c].mean(0) for c in range(len(counts))])
    means = means / means.norm(dim=1, keepdim=True)
    return means @ means.T


def test_imbalance_draws_scl_minorities_together_and_not_ocl_ones():
    """LOCAL's central claim, on 6/2/2: free embeddings trained with SCL leave the simplex (cosine -1/2), the two
    small classes closer to each other than to the large one; with OCL all classes stay orthogonal."""
    scl = trained_class_cosines("supcon", (6, 2, 2))
    ocl = trained_class_cosines("ocl", (6, 2, 2))
    assert scl[1, 2] > -0.3 and scl[0, 1] < -0.55 and scl[0, 2] < -0.55
    assert_close(ocl, torch.eye(3, dtype=ocl.dtype), rtol=0, atol=0.02)
    balanced = trained_class_cosines("supcon", (3, 3, 3))
    assert_close(
        balanced[~torch.eye(3, dtype=torch.bool)],
        torch.full((6,), -0.5, dtype=ocl.dtype),
        rtol=0,
        atol=0.02,
    )


# Triplets against loops.


@settings(max_examples=25)
@given(
    n=st.integers(1, 10),
    classes=st.integers(1, 4),
    seed=st.integers(0, 999),
    soft=st.booleans(),
    mining=st.sampled_from(["all", "hard", "semi_hard"]),
    reduction=st.sampled_from(["mean", "mean_nonzero"]),
)
def test_triplets_are_those_of_loops(n, classes, seed, soft, mining, reduction):
    z, labels = batch(n, 3, classes, seed)
    s = SIMILARITIES["neg_euclidean"](z, z)
    terms = []
    for a, p, q in itertools.product(range(n), repeat=3):
        if p == a or labels[p] != labels[a] or labels[q] == labels[a]:
            continue
        gap = (s[a, q] - s[a, p]).item()
        if mining == "all" or (gap > 0 if mining == "hard" else -0.3 < gap <= 0):
            terms.append(math.log1p(math.exp(gap + 0.3)) if soft else max(0.0, gap + 0.3))
    counted = [t for t in terms if t > 0] if reduction == "mean_nonzero" else terms
    value = build(
        "triplet", "neg_euclidean", reduction=reduction, margin=0.3, soft=soft, mining=mining
    )(z, labels)
    assert value.item() == pytest.approx(sum(counted) / max(1, len(counted)), abs=1e-12)


@pytest.mark.parametrize("loss", ["triplet", "lifted_structured"])
def test_no_tensor_is_cubic_in_the_batch(loss):
    n = 256
    z, labels = batch(n, 8, 4, seed=0)
    assert n * n <= largest_tensor(build(loss, "cosine"), z, labels) <= 2**21  # 3 million triplets


# What a user can get wrong.


@pytest.mark.parametrize(
    ("arguments", "params", "says"),
    [
        (("supcon", "cosine"), {"temperature": math.nan}, ["temperature", "finite"]),
        (("math:no_such_loss",), {}, ["no_such_loss"]),
        (("pytorch_metric_learning.losses:CircleLos",), {}, ["CircleLoss"]),
    ],
)
def test_unknown_names_and_wrong_values_are_named(arguments, params, says):
    with refused(ValueError, *says):
        build(*arguments, **params)


@pytest.mark.usefixtures("unchecked_shapes")
def test_wrong_batches_are_named():
    z, labels = batch(6, 3, 2, seed=0)
    loss = build("supcon", "cosine")
    with refused(ValueError, match=r"labels.*one value per embedding.*6.*5"):
        loss(z, labels[:5])
    with refused(ValueError, match="embeddings must be floating-point"):
        loss(labels[:, None], labels)
    with refused(ValueError, match="instance_ids"):
        build("infonce", "cosine")(z, labels)
    with refused(SpecError, "classes: arcface has a vector for each class; give classes and dim"):
        build("arcface")(z, labels)
    z[2, 1] = math.nan
    with refused(NotFiniteError, match=r"NaN.*1 of 6 rows.*row 2"):
        loss(z, labels)


# Losses from elsewhere.


def metric_learning_losses():
    """Names of all losses of the package, those that take no others' embeddings and those without weights too."""
    package = importlib.util.find_spec("pytorch_metric_learning")
    losses = importlib.import_module("pytorch_metric_learning.losses") if package else None
    base = losses.BaseMetricLossFunction if losses else None
    return sorted(
        n for n, kind in vars(losses).items() if isinstance(kind, type) and issubclass(kind, base)
    )


def takes(kind, name):
    return any(
        name in inspect.signature(base.__init__).parameters
        for base in kind.__mro__
        if base is not object
    )


REFUSED = {
    "BaseMetricLossFunction": "NotImplementedError",
    "GenericPairLoss": "mat_based_loss: this field is required",
    "ManifoldLoss": "l: this field is required",
    "P2SGradLoss": "descriptors_dim: this field is required",
    "RankedListLoss": "margin: this field is required",
    "VICRegLoss": "labels are ref_labels are not supported",
}
"""Losses that need a parameter, or do not take labels, and what the line says."""


@pytest.mark.parametrize("name", metric_learning_losses())
def test_a_loss_of_pytorch_metric_learning_by_its_path_alone_is_its_own_default(name):
    path, (z, _) = f"pytorch_metric_learning.losses:{name}", batch(24, 8, 4, seed=4)
    labels = torch.arange(4).repeat_interleave(6)  # SmoothAPLoss wants classes of one size
    kind = getattr(importlib.import_module("pytorch_metric_learning.losses"), name)
    sizes = {"num_classes": 4, "embedding_size": 8}
    taken = {key: value for key, value in sizes.items() if takes(kind, key)}
    if name in REFUSED:
        with refused(SpecError, match=REFUSED[name]):
            check_loss(ALL_LOSSES.choose(path))
        return
    check_loss(ALL_LOSSES.choose(path))

    def computed(loss):
        loss = loss.double() if isinstance(loss, torch.nn.Module) else loss
        leaf = z.clone().requires_grad_()
        value = loss(leaf, labels)
        return value.detach(), torch.autograd.grad(value, leaf)[0]

    torch.manual_seed(0)
    built = build(path, dim=8, classes=4)
    ours = computed(built.weights.double() if built.weights is not None else built)
    torch.manual_seed(0)
    assert_close(ours, computed(kind(**taken)), rtol=1e-12, atol=1e-12)
    assert ours[1].abs().max() > 0, "it trains"


def test_the_page_shows_a_loss_in_a_loop_of_ones_own():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    z, labels = batch(8, 4, 3, 0)
    embeddings = z.clone().requires_grad_()
    exec(page.partition('title="loss"\n')[2].partition("```")[0], locals())
    expected = value_and_gradient(build("sincere", "neg_arc_length", temperature=0.1), z, labels)[1]
    assert embeddings.grad.equal(expected) and expected.abs().sum() > 0
