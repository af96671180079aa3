"""The eight models by name. To add one: a file with its settings and its class, and a line here; a class of someone
else's package is named by its dotted path (`package.module:Class`)."""

from contrasweep.components import Table
from trainables.review_helpfulness.batch import HelpfulnessModel
from trainables.review_helpfulness.bimpm import BiMPM
from trainables.review_helpfulness.conv_knrm import ConvKNRM
from trainables.review_helpfulness.dr_net import DRNet
from trainables.review_helpfulness.eg_cnn import EGCNN
from trainables.review_helpfulness.mcr import MCR
from trainables.review_helpfulness.prh_net import PRHNet
from trainables.review_helpfulness.proposed import Proposed
from trainables.review_helpfulness.sse_cross import SSECross

MODELS: Table[type[HelpfulnessModel]] = Table(
    "model",
    {
        "bimpm": BiMPM,
        "conv_knrm": ConvKNRM,
        "eg_cnn": EGCNN,
        "prh_net": PRHNet,
        "dr_net": DRNet,
        "sse_cross": SSECross,
        "mcr": MCR,
        "proposed": Proposed,
    },
    takes=lambda model, given: model.settings,
)
