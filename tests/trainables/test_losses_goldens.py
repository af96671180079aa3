"""Every reference value, in float64 and float32, with its gradient."""

import json

import pytest
import torch

from contrasweep.trainables import losses
from contrasweep.trainables.losses import LOSSES, Loss


@pytest.fixture(scope="module")
def reference(shared):
    return json.loads((shared / "goldens/losses.json").read_text())


def batch(case, dtype):
    ids = case["instance_ids"]
    embeddings = torch.tensor(case["embeddings"], dtype=dtype, requires_grad=True)
    return embeddings, torch.tensor(case["labels"]), None if ids is None else torch.tensor(ids)


def complaint(golden, case, dtype):
    """What is wrong with our value and gradient; empty if nothing."""
    loss = losses.build(
        golden["loss"], golden["similarity"], reduction=golden["reduction"], **golden["params"]
    )
    embeddings, labels, ids = batch(case, dtype)
    value = loss(embeddings, labels, ids)
    (grad,) = torch.autograd.grad(value, embeddings)
    exact = dtype == torch.float64
    rtol = golden["rtol"] if exact or golden.get("edge") else golden["rtol_float32"]
    atol = golden["atol"] if exact or golden.get("edge") else 1e-5
    expected = golden["value"]
    if not abs(value.item() - expected) <= atol + rtol * abs(expected):
        return f"{golden['id']}: value {value.item()!r}, expected {expected!r}"
    if not torch.isfinite(grad).all():
        return f"{golden['id']}: gradient is not finite"
    if golden.get("edge"):
        return ""
    if golden["grad"] is not None:
        wanted = torch.tensor(golden["grad"], dtype=torch.float64)
        # The file's tolerance in float64 is finer than the error of a sum of its terms: scaled by the gradient.
        slack = max(atol, 1e-5 if not exact else 1e-12) + rtol * wanted.abs().max()
        if not ((grad.double() - wanted).abs() <= slack).all():
            return f"{golden['id']}: gradient is off by {(grad.double() - wanted).abs().max().item():.3g}"
    norm = grad.double().norm().item()
    if (
        golden["grad_norm"] is not None
        and not abs(norm - golden["grad_norm"]) <= atol + rtol * golden["grad_norm"]
    ):
        return f"{golden['id']}: gradient norm {norm!r}, expected {golden['grad_norm']!r}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(
    "name", [name for name, loss in LOSSES.items() if isinstance(loss, Loss) and not loss.learned]
)
def test_values_and_gradients_are_the_reference(reference, name, dtype):
    """SigLIP, which learns numbers, is none of the reference's losses; `test_losses_weights` has it by loops."""
    if not (goldens := [g for g in reference["goldens"] if g["loss"] == name]):
        pytest.skip(
            f"the reference was written before {name}, whose values a test of its own compares with loops"
        )
    wrong = [c for g in goldens if (c := complaint(g, reference["cases"][g["case"]], dtype))]
    assert not wrong, f"{len(wrong)} of {len(goldens)}:\n" + "\n".join(wrong[:10])


def test_every_reference_value_has_a_loss(reference):
    known = {g["loss"] for g in reference["goldens"]}
    assert len(known) >= 8 and known <= set(LOSSES)
