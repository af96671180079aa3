"""SigLIP: each pair is judged for itself, by a sigmoid. Values per anchor, as in `cross_entropy`."""

from contrasweep.trainables.fields import Positive
from contrasweep.trainables.losses.batch import Mask, PerAnchor, Scores
from contrasweep.trainables.pytorch import F, torch


def siglip(
    scores: Scores,
    positives: Mask,
    negatives: Mask,
    *,
    temperature: Positive = 0.1,
    bias: float = -10.0,
    learned: bool = True,
) -> PerAnchor:
    """SigLIP: sum_j -log sigmoid(z_ij (s_ij / temperature + bias)), z = 1 for positives, else -1 (Zhai et al. 2023).

    s are the scores. The mean over anchors is the paper's loss (algorithm 1). `temperature` (1 / t there) and `bias`
    are the values at which training starts; without `learned` they do not change. An anchor without positives has value
    0.
    """
    logits = scores / temperature + bias
    # -log sigmoid(x) = softplus(-x). An anchor with itself is in neither mask, and counts nowhere.
    values = torch.where(positives, F.softplus(-logits), F.softplus(logits))
    summed = values.masked_fill(~(positives | negatives), 0).sum(1)
    return torch.where(positives.any(1), summed, torch.zeros_like(summed))
