"""The loss of the LOCAL family: L = alpha_t [C(z) + beta C(l)] + (1 - alpha_t) WCE (LOCAL, equation 6)."""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from contrasweep.trainables.losses.negatives import with_tally
from contrasweep.trainables.losses.tiled import Counts
from contrasweep.trainables.paired.network import Outputs
from contrasweep.trainables.paired.settings import PairedSettings
from contrasweep.trainables.precision import widened
from contrasweep.trainables.pytorch import Float, Integers

EFFECTIVE_BETA = 0.9999
"""beta of the effective number of samples (Cui et al. 2019)."""


class Objective:
    """Computes the loss of a batch and its parts; the class weights come from the labels of the training part."""

    def __init__(
        self,
        settings: PairedSettings,
        train_labels: Integers,
        classes: int,
        device: torch.device,
    ) -> None:
        dim = settings.projection.parameters.get("dim", classes)
        if classes > dim:
            warnings.warn(
                f"projection.dim {dim} cannot hold {classes} orthogonal classes: some may coincide; use {classes} "
                "or more",
                stacklevel=2,
            )
        # WCE, the classifier's part of the loss, has the weight 1 - alpha.
        if all(settings.alpha_in(epoch) == 1 for epoch in range(settings.epochs)):
            warnings.warn(
                "alpha is 1 in every epoch: the classifier is never trained and its scores are chance; lower "
                "alpha or take a schedule that falls, over more than one epoch",
                stacklevel=2,
            )
        self.settings = settings
        self.contrast = settings.build_loss()
        self.weights = class_weights(settings.wce.class_weights, train_labels, classes).to(device)

    def __call__(
        self,
        out: Outputs,
        labels: Integers,
        alpha: float,
        negatives: dict[str, Counts] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch and its parts: `contrast_z`, `contrast_l` (where there is an l), `wce`, `anchors`.

        `alpha` is alpha_t, this epoch's weight of the contrastive part. `anchors` is the share of rows with a positive;
        it is no part of the sum. All is computed in float32, or in float64 if the outputs are, whatever the autocast.
        Where scores have a sign, the call writes counts into `negatives`: how many negatives had a score below 0, and
        how many there were. Those of z are written as `negative_cosines`, those of l as `negative_cosines_l`.
        """
        # Equation 6: alpha [C(z) + beta C(l)] + (1 - alpha) WCE.
        negatives = {} if negatives is None else negatives
        terms = {"contrast_z": self._contrast(out.z, labels, "negative_cosines", negatives)}
        contrast = terms["contrast_z"]
        if out.latent is not None:
            terms["contrast_l"] = self._contrast(
                out.latent, labels, "negative_cosines_l", negatives
            )
            contrast = contrast + self.settings.beta * terms["contrast_l"]
        terms["wce"] = self.wce(widened(out.logits), labels)
        loss = alpha * contrast + (1 - alpha) * terms["wce"]
        terms["anchors"] = (torch.bincount(labels)[labels] > 1).float().mean()
        return loss, terms

    def _contrast(
        self, rows: Tensor, labels: Tensor, name: str, negatives: dict[str, Counts]
    ) -> Tensor:
        """Return C, the contrastive loss, of `rows` [n d] with these labels.

        Where its scores have a sign, its counts of negatives are put into `negatives` under `name`.
        """
        loss, tally = with_tally(self.contrast)
        value: Tensor = loss(widened(rows), labels)
        if tally.counts is not None:
            negatives[name] = tally.counts
        return value

    def wce(self, logits: Float[Tensor, "n k"], labels: Integers) -> Tensor:
        """Return the cross-entropy of the classes' `logits`, in which each row is weighted by its class.

        The sum over rows is divided by the sum of the rows' weights, or by the number of rows, as the settings of WCE
        say.
        """
        weights = self.weights.to(logits.dtype)
        if self.settings.wce.reduction == "torch_mean":
            return F.cross_entropy(logits, labels, weights)
        return F.cross_entropy(logits, labels, weights, reduction="sum") / len(labels)


def class_weights(kind: str, labels: Integers, classes: int) -> Float[Tensor, " k"]:
    """Return the weight w_k of each of K = `classes` classes by its count n_k among the N `labels`.

    A class without labels has weight 0, unless `kind` is `none`. `kind` is one of

    - `balanced`: N / (K n_k);
    - `root`: the square root of N / (K n_k), as in square-root sampling (Mahajan et al. 2018);
    - `effective_number`: (1 - b) / (1 - b^n_k) with b = .9999, scaled to mean 1 over the classes that have labels;
    - `none`: 1.
    """
    counts = torch.bincount(labels.cpu(), minlength=classes).double()
    if kind == "none":
        return torch.ones(classes)
    # A class without rows has an infinite weight here, which the last line replaces.
    if kind in ("balanced", "root"):
        weights = counts.sum() / (classes * counts)
        weights = weights.sqrt() if kind == "root" else weights
    else:
        weights = (1 - EFFECTIVE_BETA) / (1 - EFFECTIVE_BETA**counts)
        weights = weights / weights[counts > 0].mean()
    return torch.where(counts > 0, weights, torch.zeros(())).float()
