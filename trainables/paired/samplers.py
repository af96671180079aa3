"""Which rows form a batch. All samplers give the same number of batches an epoch, so they can be compared."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Int

from contrasweep.trainables.pytorch import Tensor, torch

Batches = Int[Tensor, "batches b"]


def uniform(labels: Int[Tensor, " n"], size: int, generator: "torch.Generator") -> Batches:
    """Every row at most once an epoch; the rest of an incomplete batch is left out (BatchNorm dislikes it)."""
    count = len(labels) // size
    return torch.randperm(len(labels), generator=generator)[: count * size].reshape(count, size)


def class_balanced(labels: Int[Tensor, " n"], size: int, generator: "torch.Generator") -> Batches:
    """Every class equally likely at every place; within a class, all rows before any comes again."""
    count = len(labels) // size
    present = torch.unique(labels)
    drawn = present[torch.randint(len(present), (count * size,), generator=generator)]
    rows = torch.empty(count * size, dtype=torch.int64)
    for label in present:
        wanted = drawn == label
        rows[wanted] = _cycled((labels == label).nonzero()[:, 0], int(wanted.sum()), generator)
    return rows.reshape(count, size)


def at_least_two(labels: Int[Tensor, " n"], size: int, generator: "torch.Generator") -> Batches:
    """No anchor without a positive: rows travel in couples of their class, at the classes' own frequencies.

    Where a class is odd in number its last row takes a second one of the class along, itself if it is the only
    one (its two views then differ by augmentation alone). An odd batch is one row larger than its couples: that
    row takes the class of one of them.
    """
    count = len(labels) // size
    couples = torch.cat([_couples((labels == label).nonzero()[:, 0], generator) for label in torch.unique(labels)])
    couples = couples[_cycled(torch.arange(len(couples)), count * (size // 2), generator)]
    rows = couples.reshape(count, -1)
    if size % 2:
        rows = torch.cat([rows, _third(labels, rows, generator)], dim=1)
    return rows


SAMPLERS: dict[str, Callable[[Tensor, int, Any], Tensor]] = {
    "uniform": uniform,
    "class_balanced": class_balanced,
    "at_least_2_per_class": at_least_two,
}


def _cycled(rows: Tensor, count: int, generator: "torch.Generator") -> Tensor:
    """`count` of `rows` in random order, all before any comes again."""
    rounds = -(-count // len(rows))
    return torch.cat([rows[torch.randperm(len(rows), generator=generator)] for _ in range(max(1, rounds))])[:count]


def _couples(rows: Tensor, generator: "torch.Generator") -> Tensor:
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    if len(rows) % 2:
        shuffled = torch.cat([shuffled, shuffled[:1]])
    return shuffled.reshape(-1, 2)


def _third(labels: Tensor, rows: Tensor, generator: "torch.Generator") -> Tensor:
    """One more row for each batch, of the class of its first couple."""
    picked = []
    for first in rows[:, 0]:
        same = (labels == labels[first]).nonzero()[:, 0]
        picked.append(same[torch.randint(len(same), (1,), generator=generator)])
    return torch.stack(picked)
