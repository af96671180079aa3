"""Losses of K members: one value each, with hyperparameters of their own, and learned temperatures.

The loss functions are those of trials alone. `torch.vmap` gives them a leading axis, so that temperatures, margins and
weights are tensors [K]; what it cannot do (triplets, whose number depends on the batch; tiles of large batches), or
may not be able to do (functions of somebody else's), is computed member by member.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from contrasweep.config import Config
from contrasweep.trainables.contrastive.temperature import LOWEST, LearnableTemperature
from contrasweep.trainables.fusing.folding.rules import PerMember, Slots, Unfoldable
from contrasweep.trainables.losses import AnyLoss, ComposedLoss, ComposedViewsLoss, tiled
from contrasweep.trainables.losses.views import paired_rows
from contrasweep.trainables.pytorch import Float, Int

Ids = Int[Tensor, "k n"]
MEMBER_BY_MEMBER = ("triplet",)
"""Losses whose work depends on the batch's labels."""


def loss_structure(loss: AnyLoss) -> tuple[str, ...]:
    """Return all of a loss that must be equal for members of one cohort: everything but its hyperparameters."""
    if loss.has_weights:
        raise Unfoldable("the loss has weights of its own")
    if isinstance(loss, ComposedLoss):
        compared = (loss.similarity.name, loss.reduction)
    elif isinstance(loss, ComposedViewsLoss):
        compared = ("", "")
    else:
        raise Unfoldable(f"the loss {loss.name} compares embeddings in its own way")
    own = _hyperparameters(loss.params)
    kept = (f"{name}={value!r}" for name, value in sorted(loss.params.items()) if name not in own)
    return (loss.loss.name, *compared, *sorted(own), *kept)


def _hyperparameters(params: Config) -> dict[str, float]:
    """Return the parameters that may differ between members: fractions, which choose no branch."""
    return {name: value for name, value in params.items() if isinstance(value, float)}


class Judged(NamedTuple):
    """Each member's loss, the compared embeddings (those for reports first), and the terms by name."""

    losses: PerMember
    compared: Sequence[Float[Tensor, "k n _"]]
    terms: Float[Tensor, "k t"]


@runtime_checkable
class StepLoss(Protocol):
    """The protocol of a loss in a folded step."""

    @property
    def structure(self) -> tuple[str, ...]:
        """All that is computed, without hyperparameters."""

    @property
    def hyperparameters(self) -> Mapping[str, Tensor]:
        """Return the loss's tensors [K ...], with one entry for each member."""

    def pairing(self, labels: Ids, instance_ids: Ids) -> tuple[Int[Tensor, "k _"], ...]:
        """Return what it needs to know of a batch."""

    def can_compile(self, rows: int) -> bool:
        """Return whether its values of batches of so many rows can be part of a compiled step."""

    def judge(
        self, outputs: Any, hyperparameters: Mapping[str, Tensor], pairing: tuple[Tensor, ...], scale: PerMember | None
    ) -> Judged:
        """Return each member's loss, the embeddings that it compares, and its terms."""


class FoldedLoss:
    """K losses of one structure. `put` gives a slot its member's hyperparameters."""

    def __init__(self, loss: AnyLoss, slots: Slots, *, learnable_temperature: bool = False) -> None:
        self.structure = loss_structure(loss)
        assert isinstance(loss, ComposedLoss | ComposedViewsLoss)
        self.slots, self.members = slots, [loss] * slots.count
        similarity = "" if isinstance(loss, ComposedViewsLoss) else loss.similarity.name
        ours = ":" not in loss.loss.name + similarity  # no dotted path
        self.batched = ours and loss.loss.name not in MEMBER_BY_MEMBER
        self.learnable = learnable_temperature
        device = slots.active.device
        self.hyperparameters: dict[str, PerMember] = {
            name: torch.full((slots.count,), value, dtype=torch.float64, device=device)
            for name, value in _hyperparameters(loss.params).items()
        }

    def put(self, slot: int, loss: AnyLoss) -> None:
        """Give a slot the hyperparameters of `loss`, which is of the same structure."""
        if loss_structure(loss) != self.structure:
            raise Unfoldable(f"the loss {loss_structure(loss)} is not of the cohort's structure {self.structure}")
        assert isinstance(loss, ComposedLoss | ComposedViewsLoss)
        self.members[slot] = loss
        for name, value in _hyperparameters(loss.params).items():
            self.hyperparameters[name][slot] = value

    def pairing(self, labels: Ids, instance_ids: Ids) -> tuple[Int[Tensor, "k _"], ...]:
        """Return the ids that make positive pairs, or the rows of both views."""
        loss = self.members[0]
        if isinstance(loss, ComposedLoss):
            return (labels if loss.loss.positives == "labels" else instance_ids,)
        pairs = [paired_rows(ids) for ids in instance_ids]
        if len({len(first) for first, _ in pairs}) > 1:
            raise Unfoldable("the members' batches have different numbers of pairs")
        first, second = (torch.stack(rows) for rows in zip(*pairs, strict=True))
        return first, second

    def can_compile(self, rows: int) -> bool:
        """Return whether the values of batches of so many rows can be part of a compiled step."""
        return self.batched and not self._in_tiles(rows)

    def judge(
        self, outputs: Any, hyperparameters: Mapping[str, Tensor], pairing: tuple[Tensor, ...], scale: PerMember | None
    ) -> Judged:
        """Return the losses of these embeddings; the loss is the only term."""
        losses = self.values(outputs, hyperparameters, pairing, scale)
        return Judged(losses, (outputs,), torch.stack([losses], 1))

    def values(
        self,
        embeddings: Float[Tensor, "k n d"],
        hyperparameters: Mapping[str, PerMember],
        pairing: tuple[Int[Tensor, "k _"], ...],
        scale: PerMember | None = None,
    ) -> PerMember:
        """Return each member's loss of its embeddings; `scale` multiplies its scores (see `temperature`)."""
        with torch.autocast(embeddings.device.type, enabled=False):
            z = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            if not self.batched or self._in_tiles(z.shape[1]):
                scales = [None] * len(z) if scale is None else scale.unbind()
                of_each = zip(self.members, z, zip(*pairing, strict=True), scales, strict=True)
                return torch.stack([self._of_one(*member) for member in of_each])
            given = {name: value.to(z.dtype) for name, value in hyperparameters.items()}

            def of_one(z: Tensor, own: dict[str, Tensor], pairing: tuple[Tensor, ...], scale: Tensor | None) -> Any:
                loss = self.members[0]
                return self._of_one(replace(loss, params={**loss.params, **own}), z, pairing, scale)

            axes = (0, 0, 0, None if scale is None else 0)
            values: PerMember = torch.vmap(of_one, in_dims=axes)(z, given, pairing, scale)
            return values

    def _in_tiles(self, rows: int) -> bool:
        loss = self.members[0]
        device = self.slots.active.device.type
        large = rows > tiled.DENSE_ROWS.get(device, tiled.DENSE_ROWS["cuda"])
        return isinstance(loss, ComposedLoss) and large and loss.can_tile and not self.learnable

    def _of_one(
        self, loss: ComposedLoss | ComposedViewsLoss, z: Tensor, pairing: tuple[Tensor, ...], scale: Tensor | None
    ) -> Tensor:
        if isinstance(loss, ComposedViewsLoss):
            first, second = pairing
            return loss.loss.function(z[first], z[second], **loss.params)
        if scale is not None:
            loss = replace(loss, scale=scale)
        (ids,) = pairing
        return loss.in_tiles(z, ids) if self._in_tiles(len(z)) else loss.dense(z, ids)


class FoldedTemperature:
    """t = t0 exp(-s) for each member: `LearnableTemperature` with a leading axis."""

    def __init__(self, slots: Slots) -> None:
        device = slots.active.device
        self.log_scale = nn.Parameter(torch.zeros(slots.count, device=device))
        self.initial: Float[Tensor, " k"] = torch.ones(slots.count, dtype=torch.float64, device=device)

    @torch.no_grad()
    def put(self, slot: int, plain: LearnableTemperature) -> None:
        """Let a slot go on from a plain temperature."""
        self.initial[slot] = plain.initial
        self.log_scale[slot] = plain.log_scale.detach()

    def take(self, slot: int) -> dict[str, Tensor]:
        """Return the state dict of a slot's plain temperature."""
        return {"log_scale": self.log_scale.detach()[slot].clone()}

    def clipped(self, log_scale: Float[Tensor, " k"], initial: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        """Return log-scales within their bounds."""
        return torch.minimum(log_scale, (initial / LOWEST).log().clamp(min=0).to(log_scale.dtype))
