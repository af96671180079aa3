"""The datasets of reviews.

A study or `contrasweep data stage` names one by its dotted path, as a user's own:
`contrasweep.trainables.review_helpfulness.datasets:CLOTHING_REVIEWS`.
"""

from contrasweep.trainables.review_helpfulness.datasets.clothing_reviews import CLOTHING_REVIEWS
from contrasweep.trainables.review_helpfulness.datasets.mcr_reviews import MCR_REVIEWS
from contrasweep.trainables.review_helpfulness.datasets.synthetic_reviews import SYNTHETIC_REVIEWS
from contrasweep.trainables.review_helpfulness.datasets.word_vectors import WORD_VECTORS

__all__ = ["CLOTHING_REVIEWS", "MCR_REVIEWS", "SYNTHETIC_REVIEWS", "WORD_VECTORS"]
