"""Reference values: float64 brute force, checked against independent code. 1e-9 in float64, 1e-5 in float32."""

import json

import numpy as np
import pytest
import torch

from contrasweep.trainables.review_helpfulness import (
    adaptive_contrastive_loss,
    circle_contrastive_loss,
    pairwise_ranking_loss,
)
from contrasweep.trainables.review_helpfulness.batch import Sequences
from contrasweep.trainables.review_helpfulness.metrics import per_product, token_distances
from contrasweep.trainables.review_helpfulness.networks.bimpm import (
    attentive_mean,
    pairwise_perspective_max,
    perspective_cosine,
)
from contrasweep.trainables.review_helpfulness.networks.conv_knrm import (
    kernel_centres,
    kernel_pooling,
)
from contrasweep.trainables.review_helpfulness.networks.layers import (
    ProductAwareAttention,
    masked_mean,
)
from contrasweep.trainables.review_helpfulness.networks.proposed import Interaction
from contrasweep.trainables.review_helpfulness.sampler import pair_candidates

FORMS = {"plain": {"adaptive": False}, "adaptive": {}, "adaptive_clamped": {"clamp_weights": True}}
REDUCTIONS = ("sum", "mean_anchor", "balanced")
CASES = (
    "random",
    "positive_orthant_no_negative_cosines",
    "single_row_no_negatives",
    "other_targets_o_pos_1.6_o_neg_0.3",
    "same_product_masked",
    "at_optimum_pos_sim_1_neg_sim_0",
    "zero_vector_sim_is_0_value_only_no_nan",
)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


@pytest.fixture(scope="module")
def goldens(shared):
    return json.loads((shared / "goldens/mrhp.json").read_text())


def close(result, expected, tolerance=1e-9):
    np.testing.assert_allclose(
        np.asarray(result, dtype=float),
        np.asarray(expected, dtype=float),
        rtol=tolerance,
        atol=tolerance,
    )


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


def test_every_contrastive_case_is_tested(goldens):
    assert [case["name"] for case in goldens["contrastive"]] == list(CASES)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(len(CASES)), ids=CASES)
def test_contrastive_values_and_gradients(goldens, number, form, dtype):
    case = goldens["contrastive"][number]
    tolerance = TOLERANCE[dtype]
    expected = case["results"][form]
    ids = case.get("product_ids_excluded_as_negatives")

    def loss(reduction, **more):
        x = {k: torch.tensor(v, dtype=dtype, requires_grad=True) for k, v in case["inputs"].items()}
        value = adaptive_contrastive_loss(
            **x,
            o_pos=case["o_pos"],
            o_neg=case["o_neg"],
            reduction=reduction,
            product_ids=ids,
            mask_same_product=ids is not None,
            **FORMS[form],
            **more,
        )
        value.backward()
        return value.item(), {k: v.grad for k, v in x.items()}

    for reduction in REDUCTIONS:
        value, gradients = loss(reduction)
        close(value, expected[f"loss_{reduction}"], tolerance)
        assert all(g is not None and g.isfinite().all() for g in gradients.values())
        if f"grad_loss_{reduction}" in expected:
            for name, gradient in expected[f"grad_loss_{reduction}"].items():
                close(gradients[name], gradient, tolerance)
    if "grad_loss_sum_detached_weights" in expected:
        _, gradients = loss("sum", detach_weights=True)
        for name, gradient in expected["grad_loss_sum_detached_weights"].items():
            close(gradients[name], gradient, tolerance)


@pytest.mark.parametrize("number", range(4), ids=CASES[:4])
def test_the_authors_contrastive_term_has_their_values_and_gradients(goldens, number):
    """The values have v_p's rows as anchors against h_r; the authors' code and ours h_r's, so the two change places."""
    case = goldens["contrastive"][number]
    expected = case["results"]["circle_official"]
    x = {k: exact(v).requires_grad_() for k, v in case["inputs"].items()}
    value = circle_contrastive_loss(x["h_p"], x["v_p"], x["h_r"], x["v_r"])
    value.backward()
    close(value.item(), expected["loss"])
    for name, gradient in expected["grad"].items():
        close(x[name].grad, gradient)
    assert circle_contrastive_loss(*(features[:0] for features in x.values())).item() == 0


@pytest.mark.parametrize("name", ["pairs", "pairs_kink_value_only"])
def test_ranking_of_pairs(goldens, name):
    case = goldens["ranking"][name]
    x = [exact(case[side]).requires_grad_() for side in ("pos", "neg")]
    total = pairwise_ranking_loss(*x, beta=case["beta"], reduction="sum")
    close(total.item(), case["loss_sum"])
    if "loss_mean" in case:
        close(
            pairwise_ranking_loss(*x, beta=case["beta"], reduction="mean").item(), case["loss_mean"]
        )
        total.backward()
        close(x[0].grad, case["grad_pos_sum"])
        close(x[1].grad, case["grad_neg_sum"])


@pytest.mark.parametrize("margin", ["fixed_margin_1", "label_difference_margin"])
def test_ranking_of_groups(goldens, margin):
    case = goldens["ranking"]["grouped_num_neg_3"]
    scores = exact(case["scores"]).requires_grad_()
    groups = scores.view(3, 4)
    labels = torch.tensor(case["labels"]).view(3, 4)
    beta = 1.0 if margin == "fixed_margin_1" else (labels[:, :1] - labels[:, 1:]).double()
    loss = pairwise_ranking_loss(groups[:, 0], groups[:, 1:], beta=beta, reduction="mean")
    loss.backward()
    close(loss.item(), case[margin]["loss"])
    close(scores.grad, case[margin]["grad"])


def test_pair_sampling(goldens):
    for case in goldens["pair_sampling"]:
        result = [
            {"pos": p, "neg_candidates": n.tolist()}
            for p, n in pair_candidates(case["labels"], case["interval"])
        ]
        assert result == case["out"], case


def test_metrics_of_each_product(goldens):
    for group in goldens["metrics"]["groups"]:
        rows = len(group["labels"])
        result = per_product(
            labels=group["labels"],
            scores=group["scores"],
            products=["p"] * rows,
            threshold=group["threshold"],
        ).mean()
        for metric, value in result.items():
            close(value, group[metric])


@pytest.mark.parametrize("threshold", [0, 1])
def test_metrics_of_interleaved_products(goldens, threshold):
    case = goldens["metrics"]
    products, labels, scores = zip(*case["flat_interleaved_rows_product_label_score"], strict=True)
    for form in (list(products), np.array(products)):
        result = per_product(
            labels=labels, scores=scores, products=form, threshold=threshold
        ).mean()
        wrong = case["mean_if_products_without_relevant_were_skipped"][f"threshold_{threshold}"]
        for metric, value in case["mean"][f"threshold_{threshold}"].items():
            close(result[metric], value)
            assert abs(result[metric] - wrong[metric]) > 0.01
    # Products come in the order in which they first appear.
    data = np.array(products), np.array(labels), np.array(scores)
    in_order = []
    for product in dict.fromkeys(products):
        names, truth, score = (values[data[0] == product] for values in data)
        in_order.append(per_product(labels=truth, scores=score, products=names, threshold=0).mean())
    whole = per_product(labels=labels, scores=scores, products=products, threshold=0).values
    assert [
        dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True)
    ] == in_order


def test_token_distances(goldens):
    case = goldens["token_distances"]
    x, y = (exact([case[name]]) for name in ("X", "Y"))
    masks = (torch.tensor([case[name]], dtype=torch.bool) for name in ("mask_X", "mask_Y"))
    cosine, euclidean = token_distances(x, next(masks), y, next(masks))
    close(cosine, [case["cosine_distance_mean_over_valid_token_pairs"]])
    close(euclidean, [case["l2_mean_over_valid_token_pairs"]])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_interaction_module(goldens, dtype):
    case = goldens["interaction_module"]
    module = Interaction(4, depth=len(case["layers"])).to(dtype)
    with torch.no_grad():
        for layer, weights in zip(module.layers, case["layers"], strict=True):
            for name, linear in (
                ("W_q", layer.query),
                ("W_k", layer.key),
                ("W_v", layer.value),
                ("W", layer.out),
            ):
                linear.weight.copy_(torch.tensor(weights[name], dtype=dtype).T)
            layer.out.bias.copy_(torch.tensor(weights["b"], dtype=dtype))
    x, context = (torch.tensor([case[name]], dtype=dtype) for name in ("X_gamma", "X_eta"))
    mask = torch.tensor([case["key_mask"]], dtype=torch.bool)
    for depth, expected in enumerate(case["Q_after_each_layer"], start=1):
        result = x
        for layer in module.layers[:depth]:
            result = layer(result, context, mask)
        close(result[0].detach(), expected, TOLERANCE[dtype])
    close(module(x, context, mask)[0].detach(), case["Q_after_each_layer"][-1], TOLERANCE[dtype])


def test_product_aware_attention(goldens):
    case = goldens["baselines"]["product_aware_attention"]
    module = ProductAwareAttention(4).double()
    with torch.no_grad():
        module.project.weight.copy_(exact(case["W"]).T)
        module.project.bias.copy_(exact(case["b"]))
    product, review = (
        Sequences(
            exact([case[name]]),
            torch.tensor([case[f"{name}_mask"]], dtype=torch.bool),
        )
        for name in ("product", "review")
    )
    result = module(product, review)
    valid = review.mask[0]
    close(result[0][valid].detach(), exact(case["out"])[valid])
    close(masked_mean(result, review.mask)[0].detach(), case["mean_over_valid"])
    assert not np.allclose(
        masked_mean(result, review.mask)[0].detach(), case["mean_over_padded_length"]
    )


def test_kernel_pooling(goldens):
    case = goldens["baselines"]["kernel_pooling_dai2018"]
    similarity = exact([case["similarity"]])
    query, document = (
        torch.tensor([case[name]], dtype=torch.bool) for name in ("query_mask", "doc_mask")
    )
    close(kernel_pooling(similarity, query, document, case["mus"], case["sigmas"])[0], case["phi"])
    close(kernel_centres(11), case["mus"])


def test_kernel_pooling_of_mcrs_code(goldens):
    case = goldens["baselines"]["kernel_pooling_mcr_repo"]
    similarity = exact([case["similarity"]])
    masks = [torch.ones(1, n, dtype=torch.bool) for n in similarity.shape[1:]]
    sigmas = [case["sigma"]] * len(case["mus"])
    result = kernel_pooling(similarity, *masks, mus=case["mus"], sigmas=sigmas, pooling="mcr")
    close(result[0], case["phi"])
    close(sorted(kernel_centres(8)), case["mus"])


def test_bimpm_matching(goldens):
    case = goldens["baselines"]["bimpm_cosine"]
    v1, v2, w = (exact(case[name]) for name in ("v1", "v2", "w"))
    pairwise = exact(case["pairwise"])
    close(perspective_cosine(v1[:, None], v2[None], w), pairwise)
    close(perspective_cosine(v1, v2[-1], w), case["full_vs_v2_last"])
    every = torch.ones(1, len(v2), dtype=torch.bool)
    close(pairwise_perspective_max(v1[None], v2[None], every, w)[0], pairwise.amax(1))
    only_first = torch.tensor([[True] + [False] * (len(v2) - 1)])
    close(pairwise_perspective_max(v1[None], v2[None], only_first, w)[0], pairwise[:, 0])
    close(attentive_mean(v1[None], v2[None], every)[0], case["attentive_mean_vectors"])
