"""The linear probe: multinomial logistic regression on frozen features."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def linear_probe(
    features: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    queries: Float[Tensor, "n d"],
    classes: int,
    *,
    penalty: float = 1.0,
    iterations: int = 100,
) -> Int[Tensor, " n"]:
    """Labels of `queries` by logistic regression fitted to `features` in full batches with L-BFGS from zero.

    Features are standardised by the training features. It minimises the summed cross-entropy plus
    penalty / 2 * |weights|^2 (scikit-learn's C is 1 / penalty), the bias free; nothing in it is random.
    """
    mean, std = features.float().mean(0), features.float().std(0, correction=0)
    x, new = ((f.float() - mean) / (std + 1e-6) for f in (features, queries))
    weights = torch.zeros(classes, x.shape[1], device=x.device, requires_grad=True)
    bias = torch.zeros(classes, device=x.device, requires_grad=True)
    solver = torch.optim.LBFGS([weights, bias], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe",
                               tolerance_grad=1e-5, tolerance_change=1e-7)  # fmt: skip

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(F.linear(x, weights, bias), labels)
        loss = loss + penalty / (2 * len(x)) * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        solver.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return F.linear(new, weights, bias).argmax(1)
