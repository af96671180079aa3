"""L = alpha_t [C(z) + beta C(l)] + (1 - alpha_t) WCE of K members, with each one's numbers."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrasweep.trainables.fusing.folding import FoldedLoss, Judged, Slots
from contrasweep.trainables.fusing.folding.losses import PerMember
from contrasweep.trainables.paired.network import Outputs
from contrasweep.trainables.paired.objective import Objective
from contrasweep.trainables.precision import widened

NUMBERS = ("alpha", "beta")


class FoldedObjective:
    """What `objective.Objective` computes, for K members: their losses and terms are tensors [K]. Satisfies
    `folding.losses.StepLoss`."""

    def __init__(self, of_trial: Objective, slots: Slots) -> None:
        self.contrast = FoldedLoss(of_trial.contrast, slots)
        self.with_latent, self.reduction = of_trial.recipe.beta > 0, of_trial.recipe.wce.reduction
        self.form = (*self.contrast.form, str(self.with_latent), self.reduction)
        device = slots.active.device
        self.numbers: dict[str, Tensor] = {f"contrast.{name}": value for name, value in self.contrast.numbers.items()}
        for name in NUMBERS:
            self.numbers[name] = torch.zeros(slots.count, dtype=torch.float64, device=device)
        self.numbers["class_weights"] = torch.ones(slots.count, len(of_trial.weights), device=device)

    @property
    def names(self) -> list[str]:
        """Of the terms, in their order: those of `Objective`, and the loss."""
        return ["contrast_z", *(["contrast_l"] if self.with_latent else []), "wce", "anchors", "loss"]

    def put(self, slot: int, objective: Objective) -> None:
        """Let a slot have the numbers of its member's objective; alpha is `begin`'s."""
        self.contrast.put(slot, objective.contrast)
        self.numbers["beta"][slot] = objective.recipe.beta
        self.numbers["class_weights"][slot] = objective.weights

    def begin(self, slot: int, alpha: float) -> None:
        """An epoch of a slot begins, with this weight of its contrastive part."""
        self.numbers["alpha"][slot] = alpha

    def places(self, labels: Int[Tensor, "k n"], instance_ids: Int[Tensor, "k n"]) -> tuple[Int[Tensor, "k n"], ...]:
        """The labels."""
        return (labels,)

    def can_compile(self, rows: int) -> bool:
        """Whether the contrastive part of batches of so many rows can be part of a compiled step."""
        return self.contrast.can_compile(rows)

    def judge(
        self,
        outputs: Outputs,
        numbers: Mapping[str, Tensor],
        places: tuple[Tensor, ...],
        scale: PerMember | None = None,
    ) -> Judged:
        """The losses with all their terms; z is compared, and l where there is one."""
        (labels,), own = places, {name: numbers[f"contrast.{name}"] for name in self.contrast.numbers}
        compared = [outputs.z] if outputs.latent is None else [outputs.z, outputs.latent]
        contrasts = [self.contrast.values(rows, own, places) for rows in compared]
        alpha, beta = (numbers[name].to(contrasts[0].dtype) for name in NUMBERS)
        contrast = contrasts[0] if len(contrasts) == 1 else contrasts[0] + beta * contrasts[1]
        wce = self.wce(widened(outputs.logits), labels, numbers["class_weights"])
        losses = alpha * contrast + (1 - alpha) * wce
        anchors = ((labels[:, :, None] == labels[:, None, :]).sum(2) > 1).float().mean(1).to(losses.dtype)
        return Judged(losses, compared, torch.stack([*contrasts, wce, anchors, losses], 1))

    def wce(
        self, logits: Float[Tensor, "k n c"], labels: Int[Tensor, "k n"], weights: Float[Tensor, "k c"]
    ) -> PerMember:
        """Each member's cross-entropy weighted by class: over the summed weights of its batch, or over its size."""
        of_rows = weights.to(logits.dtype).gather(1, labels)
        values = -logits.log_softmax(2).gather(2, labels[:, :, None])[:, :, 0] * of_rows
        return values.sum(1) / of_rows.sum(1) if self.reduction == "torch_mean" else values.mean(1)
