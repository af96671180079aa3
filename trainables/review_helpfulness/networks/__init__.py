"""The networks of the eight models."""

from contrasweep.trainables.review_helpfulness.batch import HelpfulnessModel, Inputs
from contrasweep.trainables.review_helpfulness.networks.bimpm import BiMPM
from contrasweep.trainables.review_helpfulness.networks.conv_knrm import ConvKNRM
from contrasweep.trainables.review_helpfulness.networks.dr_net import DRNet
from contrasweep.trainables.review_helpfulness.networks.eg_cnn import EGCNN
from contrasweep.trainables.review_helpfulness.networks.mcr import MCR
from contrasweep.trainables.review_helpfulness.networks.prh_net import PRHNet
from contrasweep.trainables.review_helpfulness.networks.proposed import Proposed
from contrasweep.trainables.review_helpfulness.networks.sse_cross import SSECross
from contrasweep.trainables.review_helpfulness.settings import Settings

NETWORKS: dict[str, type[HelpfulnessModel]] = {
    "bimpm": BiMPM,
    "conv_knrm": ConvKNRM,
    "eg_cnn": EGCNN,
    "prh_net": PRHNet,
    "dr_net": DRNet,
    "sse_cross": SSECross,
    "mcr": MCR,
    "proposed": Proposed,
}
"""Name in `MODELS` -> class."""


def build_model(settings: Settings, inputs: Inputs) -> HelpfulnessModel:
    """Build the model of `settings` with its initial weights, drawn from torch's random state."""
    # A class at a dotted path has its entry in the settings, and is not in the table.
    build = NETWORKS.get(settings.model.name, settings.model.entry)
    model: HelpfulnessModel = build(settings.model.settings, inputs)
    return model
