"""Whether a loss of somebody else's gives what training needs: asked when the plan is made, on four rows."""

from contrasweep.components import Component
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.trainables.losses.build import compose
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.external import External
from contrasweep.trainables.losses.ids import masks
from contrasweep.trainables.losses.loss import Loss
from contrasweep.trainables.pytorch import Tensor, torch

LABELS = (0, 0, 1, 1)


def check(chosen: Component) -> None:
    """`SpecError` where a loss at a dotted path fails on a small batch, gives another shape than it must, or has no
    gradient. Our own are known to."""
    ours = isinstance(chosen.entry, Loss) and chosen.entry.family != "external"
    if ours or not isinstance(chosen.entry, Loss | External):
        return
    labels = torch.tensor(LABELS)
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(len(labels), 8, generator=generator).requires_grad_()
    try:
        loss = compose(chosen)
        with errors_named(f"{chosen.name} fails on {len(labels)} embeddings of 2 classes", "loss"):
            if isinstance(loss, ComposedLoss):
                _check_values(loss, embeddings, labels)
            value = loss(embeddings, labels)
        if not value.requires_grad:
            raise SpecError("a loss has a gradient, so it is of torch's operations", value=chosen.name)
    except SpecError as error:
        raise (error if error.place else error.at("loss")) from None


def _check_values(loss: ComposedLoss, embeddings: Tensor, labels: Tensor) -> None:
    """A function of scores gives a value an anchor, or terms, which say themselves what they are of."""
    scores = loss.similarity(embeddings, embeddings)
    values = loss.loss.function(scores, *masks(labels), **loss.params)
    if isinstance(values, Tensor) and tuple(values.shape) != (len(labels),):
        raise SpecError(
            "a loss of scores gives one value for each of its rows",
            place="loss",
            value=f"{list(values.shape)} for scores {list(scores.shape)}",
            hint=loss.loss.name,
        )
