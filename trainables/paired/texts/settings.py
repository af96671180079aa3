"""Settings of paired texts."""

from typing import Annotated

import pydantic

from contrasweep.schema import checked
from trainables.paired.settings import Count, Recipe, Share


@checked
class Settings(Recipe):
    """Settings of paired texts: those of `Recipe`; `width` features a word and a stage, at most `max_words` a
    sentence, words seen less than `min_count` times in the training part unknown; `lat_size` places of l;
    `word_dropout`, the share of words that a training view hides on each side, independently; `dropout` in stages."""

    batch_size: Annotated[int, pydantic.Field(ge=2)] = 32
    learning_rate: Annotated[float, pydantic.Field(gt=0)] = 1e-3
    epochs: Count = 15
    alpha_schedule: str = "inverse"
    width: Count = 96
    max_words: Count = 32
    min_count: Count = 2
    lat_size: Count = 16
    word_dropout: Share = 0.1
    dropout: Share = 0.2
