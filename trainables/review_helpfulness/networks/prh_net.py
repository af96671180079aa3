"""PRH-Net (Fan et al. 2019): product-aware review representations from text and product metadata."""

from torch import nn

from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    HelpfulnessModel,
    Inputs,
    Output,
    Sequences,
)
from contrasweep.trainables.review_helpfulness.models import PRHNetOptions
from contrasweep.trainables.review_helpfulness.networks.layers import (
    ProductAwareAttention,
    Recurrent,
    WordEmbedding,
    masked_mean,
)


class PRHNet(HelpfulnessModel):
    """PRH-Net (Fan et al. 2019): review states attend to the product's record (title, brand, category, description)."""

    def __init__(self, options: PRHNetOptions, inputs: Inputs) -> None:
        super().__init__()
        self.product_words = WordEmbedding(inputs.product_words, options.dropout)
        self.review_words = WordEmbedding(inputs.review_words, options.dropout)
        self.product_lstm = Recurrent(self.product_words.dim, options.dim // 2, bidirectional=True)
        self.review_lstm = Recurrent(self.review_words.dim, options.dim // 2, bidirectional=True)
        self.attention = ProductAwareAttention(self.review_lstm.dim)
        self.score = nn.Linear(self.review_lstm.dim, 1)

    def forward(self, batch: Batch) -> Output:
        """Return scores [b] from the mean of the product-aware states of the review."""
        # The product's whole record is read, not its text alone.
        product = self.product_lstm(self.product_words(batch.record_p), batch.record_mask_p)
        review = self.review_lstm(self.review_words(batch.text_r), batch.mask_r)
        aware = self.attention(
            Sequences(product, batch.record_mask_p), Sequences(review, batch.mask_r)
        )
        return self.scored(masked_mean(aware, batch.mask_r))
