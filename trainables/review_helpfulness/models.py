"""The eight models by name. To add one: a file with its `Options` and its class, and a line here."""

from typing import Any, NamedTuple

from trainables.review_helpfulness import bimpm, conv_knrm, dr_net, eg_cnn, mcr, prh_net, proposed, sse_cross
from trainables.review_helpfulness.batch import HelpfulnessModel


class Entry(NamedTuple):
    """A model's class, its checked options, whether it looks at images, and its name in a table."""

    model: type[HelpfulnessModel]
    options: Any
    multimodal: bool
    title: str


MODELS: dict[str, Entry] = {
    "bimpm": Entry(bimpm.BiMPM, bimpm.Options, False, "BiMPM"),
    "conv_knrm": Entry(conv_knrm.ConvKNRM, conv_knrm.Options, False, "Conv-KNRM"),
    "eg_cnn": Entry(eg_cnn.EGCNN, eg_cnn.Options, False, "EG-CNN"),
    "prh_net": Entry(prh_net.PRHNet, prh_net.Options, False, "PRH-Net"),
    "dr_net": Entry(dr_net.DRNet, dr_net.Options, True, "adapted D&R-Net"),
    "sse_cross": Entry(sse_cross.SSECross, sse_cross.Options, True, "SSE-Cross"),
    "mcr": Entry(mcr.MCR, mcr.Options, True, "MCR"),
    "proposed": Entry(proposed.Proposed, proposed.Options, True, "adaptive contrastive"),
}
