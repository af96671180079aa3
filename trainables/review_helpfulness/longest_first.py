"""How well reviews are ranked by their length alone: the floor that a trained ranker has to leave.

    list(train(trial))

One report, with the metrics and per-product values of a ranker's last one. So the floor stands in the same table and
is compared by the same paired test. Nothing is random: the seed changes nothing.
"""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.trainables.fields import Count
from contrasweep.trainables.review_helpfulness.corpora import load
from contrasweep.trainables.review_helpfulness.metrics import per_product
from contrasweep.trainables.review_helpfulness.settings import Settings as RankerSettings
from contrasweep.trainables.review_helpfulness.settings import Threshold, threshold_of
from contrasweep.trial import Report, Trial


@checked
class Settings:
    """Settings of the ranking by length. Each means the same as the ranker's setting of the same name."""

    relevance_threshold: Threshold | None = None
    min_word_count: Count = 5
    max_tokens: Count = 128

    def resolve(self, data: Manifest) -> "Settings":
        """Return these settings with the relevance threshold of `data`; `DataError` where it has no reviews."""
        if data.kind != "reviews":
            raise DataError(
                f"reviews are ranked by their length; {data.name} is of kind {data.kind!r}"
            )
        return replace(self, relevance_threshold=threshold_of(data, self.relevance_threshold))


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Rank the test reviews by their length and report once; there is nothing to resume from.

    The length of a review is the number of words that a ranker reads of it. The items are the metrics of each product.
    """
    settings = Settings(**trial.config).resolve(trial.data)
    ranker = RankerSettings(max_tokens=settings.max_tokens, min_word_count=settings.min_word_count)
    test = load(trial, ranker).corpora["test"]
    threshold = threshold_of(trial.data, settings.relevance_threshold)
    ranked = per_product(
        labels=test.label, products=test.product, threshold=threshold, scores=test.lengths
    )
    yield Report(1, ranked.mean(), items=dict(ranked.values))


train.settings = Settings  # type: ignore[attr-defined]
# A run says which arms score below this one on a fold.
train.floor = True  # type: ignore[attr-defined]
