"""Samplers: which rows make an epoch, and in which order. A sampler is a function and its line in `SAMPLINGS`.

All have one signature; `batch` and `per_class` are for those that make batches.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from contrasweep.errors import SpecError
from contrasweep.trainables.pytorch import Int, Integers, Tensor, torch

Labels = Integers


def shuffled(labels: Labels, generator: "torch.Generator", batch: int, per_class: int) -> Integers:
    """Return all n rows in random order, each once, for n `labels`; `batch` and `per_class` are not used."""
    return torch.randperm(len(labels), generator=generator)


def class_balanced(
    labels: Labels, generator: "torch.Generator", batch: int, per_class: int
) -> Integers:
    """Draw as many rows as there are, with replacement, with the same probability for all classes.

    `batch` and `per_class` are not used.
    """
    # A row's weight is 1 / (rows of its class), so that the weights of each class add up to 1.
    weights = 1.0 / torch.bincount(labels).double()[labels]
    return torch.multinomial(weights, len(labels), replacement=True, generator=generator)


def m_per_class(
    labels: Labels, generator: "torch.Generator", batch: int, per_class: int
) -> Int[Tensor, " m"]:
    """Draw batches of `batch` / `per_class` classes without replacement, each class with `per_class` rows.

    The rows of a class come in a random order, and in a new one when all have come. A class with fewer than `per_class`
    rows gives some of them twice. An epoch has n // `batch` batches, but at least one (pytorch-metric-learning's
    MPerClassSampler). `SpecError` where a batch would need more classes than there are.
    """
    classes = [(labels == label).nonzero().flatten() for label in torch.unique(labels)]
    if batch // per_class > len(classes):
        raise SpecError(
            f"a batch of {batch} images has {batch // per_class} classes",
            place="per_class",
            value=per_class,
            hint=f"the training part has {len(classes)}: raise per_class or lower batch_size",
        )
    # For each class the rows that are still to come in its present order; none at first.
    queues = [rows[:0] for rows in classes]
    order = []
    for _ in range(max(1, len(labels) // batch)):
        chosen = torch.randperm(len(classes), generator=generator)[: batch // per_class]
        for k in chosen.tolist():
            # A queue that is too short gets all rows of its class again, in a new order.
            while len(queues[k]) < per_class:
                new_order = torch.randperm(len(classes[k]), generator=generator)
                queues[k] = torch.cat([queues[k], classes[k][new_order]])
            order.append(queues[k][:per_class])
            queues[k] = queues[k][per_class:]
    return torch.cat(order)


SAMPLINGS: Mapping[str, Callable[[Tensor, "torch.Generator", int, int], Tensor]] = MappingProxyType(
    {"shuffled": shuffled, "class_balanced": class_balanced, "m_per_class": m_per_class}
)
"""name -> (labels, generator, images of a batch, rows of a class) -> the rows of one epoch, on the host."""
