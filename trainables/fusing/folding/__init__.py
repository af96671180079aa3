"""K networks of one architecture trained as one, each with numbers of its own (Wang et al. 2021, HFTA).

folded = fold(model, slots=8)
folded.put(0, state_dict)
losses = loss(folded(images), labels, rows)      # [8]
"""

from contrasweep.trainables.fusing.folding import convolutions, layers  # noqa: F401  # their rules
from contrasweep.trainables.fusing.folding.losses import FoldedLoss, FoldedTemperature, Judged, loss_structure
from contrasweep.trainables.fusing.folding.network import Folded, fold
from contrasweep.trainables.fusing.folding.optimisers import FoldedOptimizer, fold_optimizer
from contrasweep.trainables.fusing.folding.rules import ENGINES, Engine, Slots, Unfoldable, folding_rule
from contrasweep.trainables.fusing.folding.step import FoldedAverage, Outcome, Step

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
    "loss_structure",
]
