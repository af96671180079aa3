"""EG-CNN (Chen et al. 2018): gated word and character embeddings, shared and per-domain convolutions.

No code of it is public, so two things are reconstructed. Characters join the word before the gate. The domain losses
are a gradient-reversed classifier on the shared features and a plain one on the private ones. EG-CNN reads the review
only.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasweep.trainables.pytorch import Float, Int
from contrasweep.trainables.review_helpfulness.batch import Batch, HelpfulnessModel, Inputs, Output
from contrasweep.trainables.review_helpfulness.models import EGCNNOptions
from contrasweep.trainables.review_helpfulness.networks.layers import WordEmbedding, masked_max


def reverse_gradient(x: Tensor) -> Tensor:
    """Return `x` unchanged; in the backward pass its gradient changes sign."""
    return 2 * x.detach() - x


class CharacterEncoder(nn.Module):
    """A word's characters: embedding, convolution of 3, maximum over its positions.

    `table` has the numbers of the c characters of each of the v words; 0 fills short words.
    """

    table: Tensor

    def __init__(self, table: Int[Tensor, "v c"], characters: int, dim: int, filters: int) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)
        self.embedding = nn.Embedding(characters, dim, padding_idx=0)
        self.convolution = nn.Conv1d(dim, filters, kernel_size=3, padding=1)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t f"]:
        """Map word indices [b t] to vectors of their characters [b t f]; each distinct word is encoded once."""
        # `place` [b t] is the row of each token among the distinct words.
        words, place = torch.unique(tokens, return_inverse=True)
        characters = self.table[words]
        mask = characters != 0
        convolved = self.convolution(self.embedding(characters).mT).mT
        return masked_max(convolved, mask)[place]


class EGCNN(HelpfulnessModel):
    """Shared and private features of the review's words, each category with private convolutions of its own."""

    def __init__(self, options: EGCNNOptions, inputs: Inputs) -> None:
        super().__init__()
        self.options = options
        self.categories = inputs.categories
        self.words = WordEmbedding(inputs.review_words, options.dropout)
        self.characters = CharacterEncoder(
            inputs.review_characters, inputs.characters, options.char_dim, options.char_filters
        )
        # A position has the features of its word and of the word's characters; padding keeps as many positions.
        dim = self.words.dim + options.char_filters
        padding = options.kernel // 2
        self.dropout = nn.Dropout(options.dropout)
        self.gate = nn.Linear(dim, 1)
        self.shared = nn.Conv1d(dim, options.filters, options.kernel, padding=padding)
        self.private = nn.ModuleList(
            nn.Conv1d(dim, options.filters, options.kernel, padding=padding)
            for _ in range(self.categories)
        )
        self.score = nn.Linear(2 * options.filters, 1)
        # With one category there is nothing to tell apart.
        if self.categories > 1:
            self.shared_domain = nn.Linear(options.filters, self.categories)
            self.private_domain = nn.Linear(options.filters, self.categories)

    def forward(self, batch: Batch) -> Output:
        """Return scores [b]; in training with several categories also the two domain losses."""
        # Word and character features, gated, with channels first for the convolutions.
        letters = self.dropout(self.characters(batch.text_r))
        x = torch.cat([self.words(batch.text_r), letters], dim=-1)
        x = (x * torch.sigmoid(self.gate(x)) * batch.mask_r[..., None]).mT
        shared = masked_max(functional.relu(self.shared(x)).mT, batch.mask_r)
        # Each category's rows go through convolutions of their own.
        private = shared.new_zeros(shared.shape)
        for category in torch.unique(batch.category).tolist():
            rows = batch.category == category
            convolved = functional.relu(self.private[category](x[rows])).mT
            private = private.index_put((rows,), masked_max(convolved, batch.mask_r[rows]))
        output = self.scored(shared, private)
        # Shared features should not tell the category (the gradient is reversed), private ones should.
        if self.training and self.categories > 1:
            output.losses["shared_domain"] = self.options.domain_weight * functional.cross_entropy(
                self.shared_domain(reverse_gradient(shared)), batch.category
            )
            output.losses["private_domain"] = (
                self.options.private_weight
                * functional.cross_entropy(self.private_domain(private), batch.category)
            )
        return output
