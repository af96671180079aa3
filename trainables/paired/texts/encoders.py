"""The encoders of sentences. One table; adding one is a class, a function that builds it, and a line.

An entry takes the number of word indices and gives a network from words [n w] to the outputs of its stages
[n C_i w_i], first to last; `dim` is the last one's features.
"""

from typing import Annotated

import pydantic

from contrasweep.components import Table
from contrasweep.trainables.pytorch import nn

Width = Annotated[int, pydantic.Field(ge=1, description="Features of a word and of each stage.")]
Dropout = Annotated[float, pydantic.Field(ge=0, le=1, description="Share of the features that a stage drops.")]


def convolution_encoder(words: int, *, width: Width = 96, dropout: Dropout = 0.2) -> "nn.Module":
    """Embeddings, then three residual convolutions; see `ConvolutionEncoder`."""
    from contrasweep.trainables.paired.texts.convolutions import ConvolutionEncoder

    return ConvolutionEncoder(words, width, dropout)


ENCODERS = Table("encoder", {"cnn": convolution_encoder})
