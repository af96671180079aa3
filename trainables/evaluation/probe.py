"""The linear probe: multinomial logistic regression on frozen features."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from contrasweep.trainables.pytorch import Float, Int, Integers, Matrix


def linear_probe(
    features: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    queries: Matrix,
    classes: int,
    *,
    penalty: float = 1.0,
    iterations: int = 100,
) -> Integers:
    """Return the labels of `queries` by logistic regression fitted to `features`, full batches and L-BFGS from zero.

    All features are standardised by the mean and deviation of `features`. The fit minimises the summed cross-entropy
    plus penalty / 2 * |weights|^2 (scikit-learn's C is 1 / penalty), without a penalty of the bias. Nothing in it is
    random. SciPy's L-BFGS takes its steps in float64 on the host; value and gradient come from the features' device.
    """
    from scipy.optimize import minimize  # half a second, for which a plan need not wait

    mean = features.float().mean(0)
    std = features.float().std(0, correction=0)
    # Standardised, with a last column of ones, whose weight is the bias.
    train_x, test_x = (
        F.pad((rows.float() - mean) / (std + 1e-6), (0, 1), value=1.0)
        for rows in (features, queries)
    )
    one_hot = F.one_hot(labels, classes).float()

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean loss of weights [classes x (d + 1)], flat, and its gradient; biases are not penalised."""
        weights = torch.as_tensor(flat.reshape(classes, -1)).to(train_x)
        log_p = torch.log_softmax(train_x @ weights.T, 1)
        gradient = (log_p.exp() - one_hot).T @ train_x
        penalised = weights.clone()
        penalised[:, -1] = 0
        value = -(log_p * one_hot).sum() + penalty / 2 * penalised.square().sum()
        flat_gradient = (gradient + penalty * penalised).double().flatten().cpu().numpy()
        # Divided by m, so that the tolerance of the gradient (`gtol`) does not depend on m.
        return float(value) / len(train_x), flat_gradient / len(train_x)

    start = np.zeros(classes * train_x.shape[1])
    fit = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations, "gtol": 1e-5}
    )
    return (test_x @ torch.as_tensor(fit.x.reshape(classes, -1)).to(test_x).T).argmax(1)
