"""The table of losses: what each is called, which similarities it takes, and what is the default."""

from typing import Any

from contrasweep.components import Table
from contrasweep.config import Config
from contrasweep.trainables.losses import cross_entropy, external, margin, tiled
from contrasweep.trainables.losses.loss import SIGNED, Loss, loss_settings
from contrasweep.trainables.losses.views import ViewsLoss, barlow_twins, vicreg


def _takes(entry: Any, given: Config) -> type:
    similarity = given.get("similarity", "cosine")
    if isinstance(entry, ViewsLoss):
        return entry.settings
    if isinstance(entry, Loss):
        return loss_settings(entry, similarity if isinstance(similarity, str) else "cosine")
    return external.settings(entry)


LOSSES: Table[Loss | ViewsLoss] = Table(
    "loss",
    {
        loss.name: loss
        for loss in (
            Loss("infonce", "cross_entropy", cross_entropy.infonce, positives="instances", closed=tiled.sincere_),
            Loss("supcon", "cross_entropy", cross_entropy.supcon, closed=tiled.supcon_, closed_is_denominator=True),
            Loss("sincere", "cross_entropy", cross_entropy.sincere, closed=tiled.sincere_),
            Loss(
                "ocl",
                "cross_entropy",
                cross_entropy.ocl,
                similarities=SIGNED,
                closed=tiled.ocl_,
                closed_is_denominator=True,
            ),
            Loss(
                "margin_contrastive",
                "margin",
                margin.margin_contrastive,
                reduction="mean",
                defaults={
                    "neg_arc_length": {"m_pos": 1.0, "m_neg": 0.5},
                    "neg_euclidean": {"m_pos": 0.0, "m_neg": -1.0},
                    "neg_euclidean_unit": {"m_pos": 0.0, "m_neg": -1.0},
                    "neg_sq_euclidean_unit": {"m_pos": 0.0, "m_neg": -1.0},
                },
            ),
            Loss("triplet", "margin", margin.triplet, reduction="mean"),
            Loss("lifted_structured", "margin", margin.lifted_structured, reduction="mean", all_pairs=True),
            Loss("batch_hard", "margin", margin.batch_hard, reduction="mean"),
            ViewsLoss("barlow_twins", barlow_twins),
            ViewsLoss("vicreg", vicreg),
        )
    },
    plural="losses",
    takes=_takes,
    find=external.find,
)
"""A loss is its function and its line here; one that is not here is named by its dotted path (see `external`)."""
