"""Settings of paired texts, and the table of their encoders."""

from contrasweep.components import Component, Table
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.trainables.fields import Count, Positive, Several, Share
from contrasweep.trainables.paired.settings import Latent, PairedSettings
from contrasweep.trainables.texts.encoders import convolution_encoder

ENCODERS = Table("encoder", {"cnn": convolution_encoder})
"""name -> (number of word indices, parameters) -> a network from words [n w] to the outputs of its stages [n C_i w_i],
first to last; `dim` is the last one's features."""


@checked
class TextLatent(Latent):
    """How l, the latent difference of a pair, is made of its sides' encoder stages."""

    size: Count = 16
    """D_L, the places of l."""


@checked
class WordDropout:
    """Views of sentences: words are hidden at random."""

    word_dropout: Share = 0.1
    """The share of words that a training view hides on each side, independently."""


@checked
class Settings(PairedSettings):
    """Settings of paired texts."""

    latent: TextLatent = TextLatent()
    """How l is made."""
    batch_size: Several = 32
    """Pairs a batch."""
    learning_rate: Positive = 1e-3
    """The highest learning rate; it falls by a cosine to a thousandth."""
    epochs: Count = 15
    """How often the training part is seen."""
    encoder: Component = ENCODERS.setting("cnn")
    """The encoder, with its parameters."""
    max_words: Count = 32
    """Words of a sentence that are read, at most."""
    min_count: Count = 2
    """Words seen less often in the training part are unknown."""
    augmentation: WordDropout = WordDropout()
    """The views."""

    def resolve(self, data: Manifest) -> "Settings":
        """Return the same settings: they do not depend on `data`.

        `DataError` where `data` holds no text pairs or has no labels. `SpecError` where a batch is larger than the
        training part, or l has fewer dimensions than there are classes.
        """
        if data.kind != "text-pair":
            raise DataError(
                f"paired_texts trains on text pairs; {data.name} is of kind {data.kind!r}"
            )
        self.check_data(data)
        self.check_latent((self.latent.size,), len(data.classes))
        return self
