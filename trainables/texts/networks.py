"""Networks from rows of word indices: the built-in convolutional encoder, and a Hugging Face model."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.trainables.pytorch import Matrix
from contrasweep.trainables.texts.words import PADDING, Words, transformers


class ConvolutionEncoder(nn.Module):
    """Words [n w] to the outputs of four stages [n width w]: embeddings, then three residual convolutions.

    Places of padding are 0 in all of them. The last stage is scaled, so that its mean over all places is the mean over
    the words of a text.

    Args:
        words: The number of word indices.
        width: The number of features of a word, and of each stage.
        dropout: The share of features that a stage drops.
    """

    def __init__(self, words: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dim = width
        self.embedding = nn.Embedding(words, width, padding_idx=PADDING)
        # This fills the row of padding too, which is set back to 0.
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Words) -> list[Tensor]:
        """Map word indices [n w], 0 for padding, to the outputs of four stages, [n width w] each."""
        # 1 where there is a word, 0 for padding, [n 1 w].
        is_word = (words != PADDING).float()[:, None]
        x = self.embedding(words).transpose(1, 2)
        maps = [x]
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            # Norms are over features, which `transpose` brings last and back.
            normal = norm(x.transpose(1, 2)).transpose(1, 2) * is_word
            x = (x + F.relu(convolution(self.dropout(normal)))) * is_word
            maps.append(x)
        # Scaled by places / words, so that the mean over places is that over words.
        maps[-1] = maps[-1] * (words.shape[1] / is_word.sum(2, keepdim=True).clamp(min=1))
        return maps


class MeanOfWords(nn.Module):
    """The mean over words of the last stage of a `ConvolutionEncoder`; `dim` is its width."""

    def __init__(self, stages: ConvolutionEncoder) -> None:
        super().__init__()
        self.stages = stages
        self.dim = stages.dim

    def forward(self, words: Words) -> Matrix:
        """Map word indices [n w], 0 for padding, to features [n dim]."""
        features: Tensor = self.stages(words)[-1].mean(2)
        return features


class HuggingFaceModel(nn.Module):
    """A Hugging Face model from token indices to one vector per text: the mean over its tokens, or the first token's.

    It is built from the folder's config; `load` fills in the weights. `dim` is the model's hidden size.
    """

    def __init__(self, folder: Path, pooling: str) -> None:
        super().__init__()
        package = transformers()
        with errors_named(f"{folder} holds no model that transformers can build", "encoder"):
            config = package.AutoConfig.from_pretrained(folder, local_files_only=True)
            self.body = package.AutoModel.from_config(config)
        self.folder = folder
        self.pooling = pooling
        self.dim = int(config.hidden_size)
        self.padding = int(config.pad_token_id or 0)

    def load(self) -> None:
        """Take over the weights in the folder, in place of the random ones with which the model is built."""
        loaded = transformers().AutoModel.from_pretrained(self.folder, local_files_only=True)
        self.body.load_state_dict(loaded.state_dict())

    def forward(self, words: Words) -> Matrix:
        """Map token indices [n w] with padding to features [n dim]."""
        is_word = words != self.padding
        states: Tensor = self.body(input_ids=words, attention_mask=is_word.long()).last_hidden_state
        if self.pooling == "first":
            return states[:, 0]
        weights = is_word[..., None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


class HuggingFaceReader:
    """The tokenizer in a folder, applied to texts; it reads the first `max_words` tokens."""

    def __init__(self, folder: Path, max_words: int) -> None:
        with errors_named(f"{folder} holds no tokenizer that transformers can build", "encoder"):
            self.tokenizer = transformers().AutoTokenizer.from_pretrained(
                folder, local_files_only=True
            )
            config = transformers().AutoConfig.from_pretrained(folder, local_files_only=True)
        # The model masks what its own config calls padding.
        padding = config.pad_token_id or 0
        if self.tokenizer.pad_token_id != padding:
            raise SpecError(
                "tokenizer and model have the same token for padding",
                place="encoder",
                value=self.tokenizer.pad_token_id,
                hint=f"the model of {folder} has {padding}",
            )
        self.max_words = max_words
        self.size = len(self.tokenizer)

    def __call__(self, texts: Sequence[str]) -> Words:
        """Return the token indices of each text, [n max_words], filled up with the tokenizer's padding."""
        options = {"padding": "max_length", "truncation": True, "max_length": self.max_words}
        rows = self.tokenizer(list(texts), **options)["input_ids"]
        return torch.tensor(rows, dtype=torch.int64)
