"""The eight models by name. To add one: its settings in `options`, its class and a line in `networks`, and a line here;
a class of someone else's package is named by its dotted path (`package.module:Class`)."""

from dataclasses import dataclass
from typing import Any

from contrasweep.components import Table
from contrasweep.trainables.review_helpfulness import options


@dataclass(frozen=True)
class Model:
    """A row of the table: what can be set of a model, its name in a table, whether it looks at images, and whether its
    outputs have post-interaction features."""

    settings: type
    title: str
    multimodal: bool = False
    gives_features: bool = False


MODELS: Table[Any] = Table(
    "model",
    {
        "bimpm": Model(options.BiMPMOptions, "BiMPM"),
        "conv_knrm": Model(options.ConvKNRMOptions, "Conv-KNRM"),
        "eg_cnn": Model(options.EGCNNOptions, "EG-CNN"),
        "prh_net": Model(options.PRHNetOptions, "PRH-Net"),
        "dr_net": Model(options.DRNetOptions, "adapted D&R-Net", multimodal=True),
        "sse_cross": Model(options.SSECrossOptions, "SSE-Cross", multimodal=True),
        "mcr": Model(options.MCROptions, "MCR", multimodal=True, gives_features=True),
        "proposed": Model(options.ProposedOptions, "adaptive contrastive", multimodal=True, gives_features=True),
    },
    takes=lambda model, given: model.settings,
)
