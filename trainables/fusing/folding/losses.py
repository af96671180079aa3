"""Losses of K members: one value each, with parameters of their own.

The loss functions are those of trials alone. `torch.vmap` gives them a leading axis, so that temperatures, margins and
weights are tensors [K]; what it cannot do (triplets, whose number depends on the batch; tiles of large batches), or
may not be able to do (functions of somebody else's), is computed member by member.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contrasweep.config import Config
from contrasweep.trainables.contrastive.temperature import LOWEST, LearnableTemperature
from contrasweep.trainables.fusing.folding.rules import Slots, Unfoldable
from contrasweep.trainables.losses import AnyLoss, ComposedLoss, ComposedViewsLoss, tiled
from contrasweep.trainables.losses.views import paired_rows

Ids = Int[Tensor, "k n"]
PerMember = Float[Tensor, " k"]
MEMBER_BY_MEMBER = ("triplet",)
"""Losses whose work depends on the batch's labels."""


def loss_form(loss: AnyLoss) -> tuple[str, ...]:
    """All of a loss that must be equal for members of one cohort: what it computes, without its numbers."""
    if isinstance(loss, ComposedLoss):
        compared = (loss.similarity.name, loss.reduction)
    elif isinstance(loss, ComposedViewsLoss):
        compared = ("", "")
    else:
        raise Unfoldable(f"the loss {loss.name} compares embeddings in its own way")
    numbers = _numbers(loss.params)
    kept = (f"{name}={value!r}" for name, value in sorted(loss.params.items()) if name not in numbers)
    return (loss.loss.name, *compared, *sorted(numbers), *kept)


class Judged(NamedTuple):
    """Each member's loss, the embeddings that it compares (those of reports first), and the terms that it names."""

    losses: PerMember
    compared: Sequence[Float[Tensor, "k n _"]]
    terms: Float[Tensor, "k t"]


@runtime_checkable
class StepLoss(Protocol):
    """What a folded step asks of its loss."""

    @property
    def form(self) -> tuple[str, ...]:
        """All that is computed, without numbers."""

    @property
    def numbers(self) -> Mapping[str, Tensor]:
        """Its tensors [K ...], one entry a member."""

    def places(self, labels: Ids, instance_ids: Ids) -> tuple[Int[Tensor, "k _"], ...]:
        """What it needs to know of a batch."""

    def can_compile(self, rows: int) -> bool:
        """Whether its values of batches of so many rows can be part of a compiled step."""

    def judge(
        self, outputs: Any, numbers: Mapping[str, Tensor], places: tuple[Tensor, ...], scale: PerMember | None
    ) -> Judged:
        """Of what the network gave, from `numbers` and `places` and of nothing else."""


class FoldedLoss:
    """K losses of one form. `put` gives a slot its member's numbers."""

    def __init__(self, loss: AnyLoss, slots: Slots, *, learnable_temperature: bool = False) -> None:
        self.form = loss_form(loss)
        assert isinstance(loss, ComposedLoss | ComposedViewsLoss)
        self.slots, self.members = slots, [loss] * slots.count
        ours = isinstance(loss, ComposedViewsLoss) or loss.loss.family != "external"
        self.batched = ours and loss.loss.name not in MEMBER_BY_MEMBER
        self.learnable = learnable_temperature
        device = slots.active.device
        self.numbers: dict[str, PerMember] = {
            name: torch.full((slots.count,), value, dtype=torch.float64, device=device)
            for name, value in _numbers(loss.params).items()
        }

    def put(self, slot: int, loss: AnyLoss) -> None:
        """Let a slot have the parameters of `loss`, which is of the same form."""
        if loss_form(loss) != self.form:
            raise Unfoldable(f"the loss {loss_form(loss)} is of another form than the cohort's {self.form}")
        assert isinstance(loss, ComposedLoss | ComposedViewsLoss)
        self.members[slot] = loss
        for name, value in _numbers(loss.params).items():
            self.numbers[name][slot] = value

    def places(self, labels: Ids, instance_ids: Ids) -> tuple[Int[Tensor, "k _"], ...]:
        """What the loss needs to know of a batch: ids that make positive pairs, or the rows of both views."""
        loss = self.members[0]
        if isinstance(loss, ComposedLoss):
            return (labels if loss.loss.positives == "labels" else instance_ids,)
        pairs = [paired_rows(ids) for ids in instance_ids]
        if len({len(first) for first, _ in pairs}) > 1:
            raise Unfoldable("the members' batches have different numbers of pairs")
        first, second = (torch.stack(rows) for rows in zip(*pairs, strict=True))
        return first, second

    def can_compile(self, rows: int) -> bool:
        """Whether the values of batches of so many rows can be part of a compiled step."""
        return self.batched and not self._in_tiles(rows)

    def __call__(
        self, embeddings: Float[Tensor, "k n d"], labels: Ids, instance_ids: Ids, scale: PerMember | None = None
    ) -> PerMember:
        """Each member's loss of its embeddings; `scale` multiplies its scores (see `temperature`)."""
        return self.values(embeddings, self.numbers, self.places(labels, instance_ids), scale)

    def judge(
        self, outputs: Any, numbers: Mapping[str, Tensor], places: tuple[Tensor, ...], scale: PerMember | None
    ) -> Judged:
        """Embeddings are all that there is, and the loss is its one term."""
        losses = self.values(outputs, numbers, places, scale)
        return Judged(losses, (outputs,), torch.stack([losses], 1))

    def values(
        self,
        embeddings: Float[Tensor, "k n d"],
        numbers: Mapping[str, PerMember],
        places: tuple[Int[Tensor, "k _"], ...],
        scale: PerMember | None = None,
    ) -> PerMember:
        """The same from `numbers` and `places`, of nothing else."""
        with torch.autocast(embeddings.device.type, enabled=False):
            z = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            if not self.batched or self._in_tiles(z.shape[1]):
                return torch.stack(
                    [
                        self._of_one(
                            loss, z[k], tuple(place[k] for place in places), None if scale is None else scale[k]
                        )
                        for k, loss in enumerate(self.members)
                    ]
                )
            given = {name: value.to(z.dtype) for name, value in numbers.items()}

            def of_one(z: Tensor, numbers: dict[str, Tensor], places: tuple[Tensor, ...], scale: Tensor | None) -> Any:
                loss = self.members[0]
                return self._of_one(replace(loss, params={**loss.params, **numbers}), z, places, scale)

            values: PerMember = torch.vmap(of_one, in_dims=(0, 0, 0, None if scale is None else 0))(
                z, given, places, scale
            )
            return values

    def _in_tiles(self, rows: int) -> bool:
        loss = self.members[0]
        device = self.slots.active.device.type
        large = rows > tiled.DENSE_ROWS.get(device, tiled.DENSE_ROWS["cuda"])
        return isinstance(loss, ComposedLoss) and large and loss.can_tile and not self.learnable

    def _of_one(
        self, loss: ComposedLoss | ComposedViewsLoss, z: Tensor, places: tuple[Tensor, ...], scale: Tensor | None
    ) -> Tensor:
        if isinstance(loss, ComposedViewsLoss):
            first, second = places
            return loss.loss.function(z[first], z[second], **loss.params)
        if scale is not None:
            loss = replace(loss, scale=scale)
        (ids,) = places
        return loss.in_tiles(z, ids) if self._in_tiles(len(z)) else loss.dense(z, ids)


def _numbers(params: Config) -> dict[str, float]:
    """The parameters that may differ between members: those that are fractions, and nothing that chooses a branch."""
    return {name: value for name, value in params.items() if isinstance(value, float)}


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
        """The state dict of a slot's plain temperature."""
        return {"log_scale": self.log_scale.detach()[slot].clone()}

    def value(self, slot: int) -> float:
        """A slot's temperature as it is now."""
        return float(self.initial[slot]) * math.exp(-float(self.log_scale.detach()[slot]))

    def clipped(self, log_scale: Float[Tensor, " k"], initial: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        """Log-scales within their bounds."""
        return torch.minimum(log_scale, (initial / LOWEST).log().clamp(min=0).to(log_scale.dtype))
