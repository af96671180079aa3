"""Losses of dual encoders: functions of the cosines of the rows of one side with the rows of the other.

Scores [n m], m >= n: the positive of row i is column i. Columns from n on are more negatives (hard ones), of all rows.
Temperature and bias are numbers, or tensors where they are learned.
"""

from collections.abc import Callable
from typing import Annotated

import pydantic

from contrasweep.components import Table
from contrasweep.trainables.fields import Positive
from contrasweep.trainables.losses import sigmoid
from contrasweep.trainables.pytorch import F, Float, Tensor, torch

Scores = Float[Tensor, "n m"]
Scalar = Float[Tensor, ""]
FiniteNumber = Annotated[float, pydantic.Field(allow_inf_nan=False)]


def clip(scores: Scores, *, temperature: Positive = 0.07) -> Scalar:
    """InfoNCE both ways: the mean of the cross-entropies over rows and over columns (Radford et al. 2021, fig. 3).

    More columns than rows are negatives of the rows alone.
    """
    logits = scores / temperature
    return (_cross_entropy(logits) + _cross_entropy(logits[:, : len(logits)].T)) / 2


def multiple_negatives(scores: Scores, *, temperature: Positive = 0.05) -> Scalar:
    """InfoNCE over rows: mean_i -log e^{s_ii/t} / sum_j e^{s_ij/t} (SimCSE: Gao et al. 2021, equations 1, 4 and 5).

    s are the scores, t is `temperature`. It is the multiple-negatives ranking of Henderson et al. 2017 and
    sentence-transformers (scale 1/t).
    """
    return _cross_entropy(scores / temperature)


def siglip(scores: Scores, *, temperature: Positive = 0.1, bias: FiniteNumber = -10.0) -> Scalar:
    """SigLIP: -1/n sum_ij log sigmoid(z_ij (s_ij/t + b)), z_ii = 1, else -1 (Zhai et al. 2023, section 3.2).

    s are the scores, t is `temperature`, b is `bias`.
    """
    diagonal = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    return sigmoid.siglip(scores, diagonal, ~diagonal, temperature=temperature, bias=bias).mean()


LOSSES: Table[Callable[..., Tensor]] = Table(
    "loss of two sides",
    {loss.__name__: loss for loss in (clip, multiple_negatives, siglip)},
    plural="losses of two sides",
)
"""name -> (scores [n m], parameters) -> scalar."""


def _cross_entropy(logits: Scores) -> Scalar:
    """Return the mean cross-entropy over rows, where column i is right for row i."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
