"""Multimodal review helpfulness: the adaptive contrastive model of Nguyen et al. 2022 and its seven baselines.

    contrasweep.trainables.review_helpfulness:train

Every model takes the same batches, is trained by the same loop and judged by the same metrics.
"""

from contrasweep.trainables.review_helpfulness.losses import (
    adaptive_contrastive_loss,
    circle_contrastive_loss,
    pairwise_ranking_loss,
)
from contrasweep.trainables.review_helpfulness.models import MODELS
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trainables.review_helpfulness.training import load_model, train

__all__ = [
    "MODELS",
    "Settings",
    "adaptive_contrastive_loss",
    "circle_contrastive_loss",
    "load_model",
    "pairwise_ranking_loss",
    "train",
]
