"""Targets: what the embeddings of a training step are compared with.

targets: batch                                    # the default: the rows of the batch with each other
targets: {name: moco, size: 4096, momentum: .999} # a momentum encoder's keys, and a queue of those of past steps
targets: {name: xbm, size: 8192}                  # the batch, and the embeddings of past steps
targets: {name: nnclr, size: 4096}                # the nearest embedding of past steps
targets: {name: byol, momentum: .996}             # a momentum encoder's projections, predicted; no negatives
targets: {name: dino, prototypes: 1024}           # a momentum encoder's classes
targets: {name: swav, prototypes: 256}            # balanced codes of the other views
targets: "mypackage.targets:Mine"                 # a class of your own (see `Targets`)
"""

from contrasweep.components import Component, Table
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.trainables.contrastive.targets.protocol import Batch, Compared, Targets
from contrasweep.trainables.contrastive.targets.queues import (
    CrossBatchMemory,
    EmbeddingQueue,
    Moco,
    Nnclr,
)
from contrasweep.trainables.contrastive.targets.teachers import Byol, Dino, Swav
from contrasweep.trainables.losses import AnyLoss, ComposedLoss, kind_of
from contrasweep.trainables.pytorch import Tensor, nn, torch

__all__ = [
    "TARGETS",
    "Batch",
    "Byol",
    "Compared",
    "CrossBatchMemory",
    "Dino",
    "EmbeddingQueue",
    "Moco",
    "Nnclr",
    "Swav",
    "Targets",
    "check_own_targets",
    "check_targets",
]

TARGETS: Table[type[Targets]] = Table(
    "targets",
    {
        "batch": Batch,
        "moco": Moco,
        "xbm": CrossBatchMemory,
        "nnclr": Nnclr,
        "byol": Byol,
        "dino": Dino,
        "swav": Swav,
    },
    plural="targets",
)
"""name -> (network, number of steps, dimension of the embeddings, its own parameters) -> targets."""


def looks_at_loss(targets: Component) -> bool:
    """Whether these targets use the trial's loss; `byol`, `dino`, `swav` and others have a loss of their own."""
    return getattr(targets.entry, "needs", "any") != "nothing"


def check_targets(targets: Component, loss: AnyLoss, *, n_views: int, processes: int) -> None:
    """Raise `SpecError` where these targets do not go with the loss, the number of views or of processes."""
    entry = targets.entry
    name = targets.name
    # What the class says of itself (see `Targets`).
    needs = getattr(entry, "needs", "any")
    # "pairs": each anchor's value comes from its own scores. "instances": positives are views of one image, too.
    if needs in ("pairs", "instances"):
        rule = f"targets {name!r} need a loss whose value for an anchor comes from its own scores"
        hint = "take one of infonce, supcon, sincere, ocl, siglip, margin_contrastive, triplet, batch_hard"
        fits = isinstance(loss, ComposedLoss) and not loss.definition.all_pairs
        if needs == "instances":
            rule += ", and whose positives are views of one image"
            hint = "take infonce or siglip"
            fits = fits and loss.definition.positives == "instances"  # type: ignore[union-attr]
        if not fits:
            value = loss.name if hasattr(loss, "name") else loss.definition.name
            raise SpecError(rule, place="loss", value=value, hint=hint)
    if needs == "nothing" and loss.has_weights:
        raise SpecError(f"{name} does not look at the loss, which has weights", place="loss")
    if n_views != 2 and not getattr(entry, "many_views", False):
        many = ", ".join(key for key, kind in TARGETS.items() if getattr(kind, "many_views", False))
        raise SpecError(
            f"targets {name!r} compare two views",
            place="n_views",
            value=n_views,
            hint=f"for more take {many}",
        )
    if processes > 1 and not getattr(entry, "joined", False):
        raise SpecError(
            f"targets {name!r} do not say that they join the rows of several processes",
            place="targets",
            value=name,
            hint="gather them (`together`), and set the class's attribute joined = True",
        )


def check_own_targets(targets: Component, loss: AnyLoss, n_views: int) -> None:
    """Raise `SpecError` where the user's own targets, named by a dotted path, cannot take a training step.

    They take one with four random images. The step gets `n_views` views of each image and `loss`, which is for
    embeddings of 5 dimensions and 2 classes. Targets of the table `TARGETS` are not tried.
    """
    if targets.name in TARGETS:
        return
    # The targets are built and take a step with random images [3 2 2]. The state of torch's generator is put back, so
    # that the trial draws what it would without this check.
    with (
        torch.random.fork_rng(devices=[]),
        errors_named(f"{targets.name} cannot take a step", "targets"),
    ):
        network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
        built = targets.build(network, 10, 5)
        lacking = [
            name for name in ("trained", "parts", "step", "after_step") if not hasattr(built, name)
        ]
        if lacking:
            hint = "see contrasweep.trainables.contrastive.targets.Targets"
            raise SpecError(
                f"targets have {', '.join(lacking)}", place="targets", value=targets.name, hint=hint
            )
        if hasattr(built, "n_views"):
            built.n_views = n_views
        rows = torch.arange(4).repeat(n_views)
        compared = built.step(torch.randn(4 * n_views, 3, 2, 2), rows % 2, rows, loss)
        value = compared[0]
        if not isinstance(value, Tensor) or value.shape != () or not value.requires_grad:
            raise SpecError(
                "a step of targets gives (loss, embeddings)", place="targets", value=kind_of(value)
            )
        built.after_step(0)
