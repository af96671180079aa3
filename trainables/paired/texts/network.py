"""The network of paired texts."""

from contrasweep.trainables.paired.network import Joint
from contrasweep.trainables.paired.texts.settings import Settings


def text_model(settings: Settings, words: int, classes: int) -> Joint:
    """The network for `words` word indices, padding and the unknown word among them, initialised from torch's global
    generator."""
    encoder = settings.encoder.build(words)
    return Joint(encoder, settings, encoder.dim, classes, paired=True, lat_size=(settings.latent.size,))
