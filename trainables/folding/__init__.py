"""K networks of one architecture trained as one, each with numbers of its own (Wang et al. 2021, HFTA).

folded = fold(model, slots=8)
folded.put(0, state_dict)
losses = loss(folded(images), labels, rows)      # [8]
"""

from trainables.folding import convolutions, linear, norms, shapes  # noqa: F401  # their rules
from trainables.folding.averages import FoldedAverage
from trainables.folding.engines import ENGINES, Engine
from trainables.folding.errors import Unfoldable
from trainables.folding.losses import FoldedLoss, Judged, loss_form
from trainables.folding.network import Folded, fold
from trainables.folding.optimisers import FoldedOptimizer, fold_optimizer
from trainables.folding.rules import folding_rule
from trainables.folding.slots import Slots
from trainables.folding.step import Outcome, Step
from trainables.folding.temperature import FoldedTemperature

__all__ = [
    "ENGINES",
    "Engine",
    "Folded",
    "FoldedAverage",
    "FoldedLoss",
    "FoldedOptimizer",
    "FoldedTemperature",
    "Judged",
    "Outcome",
    "Slots",
    "Step",
    "Unfoldable",
    "fold",
    "fold_optimizer",
    "folding_rule",
    "loss_form",
]
