"""What the trials of a cohort have in common, whatever their method: the form of loss and optimizer."""

from contrasweep.components import Component
from contrasweep.trainables.fusing.folding import Slots, Unfoldable, fold_optimizer, loss_form
from contrasweep.trainables.fusing.protocol import CannotFuse
from contrasweep.trainables.losses import AnyLoss


def form_of_loss(loss: AnyLoss) -> list[str]:
    """All of a loss but its numbers; `CannotFuse` where it cannot be folded."""
    try:
        return list(loss_form(loss))
    except Unfoldable as error:
        raise CannotFuse(error.reason) from None


def form_of_optimizer(chosen: Component) -> dict[str, object]:
    """All of an optimizer but its numbers; `CannotFuse` where it cannot be folded."""
    try:
        fold_optimizer(chosen.entry, [], Slots(1), [])
    except Unfoldable as error:
        raise CannotFuse(error.reason) from None
    numbers = (int, float, tuple, list)
    fixed = {name: value for name, value in chosen.parameters.items() if not isinstance(value, numbers)}
    return {"name": chosen.name, **fixed}
