"""The batch every model takes, the output every model gives, and what a model is built from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from contrasweep.data.column_files import Array, Ints
from contrasweep.trainables.pytorch import Bool, Float, Int

Vectors = Float[Tensor, "b t d"]
"""Sequences of vectors, padded to the longest."""
Mask = Bool[Tensor, "b t"]
"""Which places of the sequences have content."""
OtherVectors = Float[Tensor, "b s d"]
OtherMask = Bool[Tensor, "b s"]
"""Those of a second batch of sequences, which the first ones are compared with."""


class Sequences(NamedTuple):
    """A padded batch of sequences of vectors and the mask of its valid positions."""

    x: Vectors
    mask: Mask


@dataclass(frozen=True)
class Batch:
    """b pairs of a product (`_p`) and a review (`_r`), padded to the longest of the batch.

    Masks are true where there is content. Every sequence has at least one valid position. A text without known words is
    one `<OOV>`. An item without images has one region of zeros, with `has_image` false. `record_p` is the product's
    title, brand, category and description in this order, `text_p` its title and description. `label` is 0 to 4.
    `product`, `category` (of the product) and `group` are numbers; `group` says which pairs were sampled together, and
    is -1 in evaluation.
    """

    text_p: Int[Tensor, "b t"]
    mask_p: Mask
    record_p: Int[Tensor, "b u"]
    record_mask_p: Bool[Tensor, "b u"]
    text_r: Int[Tensor, "b s"]
    mask_r: OtherMask
    roi_p: Float[Tensor, "b m f"]
    roi_mask_p: Bool[Tensor, "b m"]
    roi_r: Float[Tensor, "b n f"]
    roi_mask_r: Bool[Tensor, "b n"]
    has_image_p: Bool[Tensor, " b"]
    has_image_r: Bool[Tensor, " b"]
    label: Int[Tensor, " b"]
    product: Int[Tensor, " b"]
    group: Int[Tensor, " b"]
    category: Int[Tensor, " b"]

    def to(self, device: torch.device) -> "Batch":
        """Return the same batch on `device`."""
        return Batch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    def with_review(
        self, other: "Batch", *, text: Bool[Tensor, " b"], images: Bool[Tensor, " b"]
    ) -> "Batch":
        """Return a copy in which some rows have the review text or the review images of the same row of `other`.

        `text` says which rows take the text, `images` which take the images. This batch stays as it is.
        """
        swapped: dict[str, Tensor] = {}
        rows_of = {"text_r": text, "mask_r": text, "roi_r": images, "roi_mask_r": images}
        for name, rows in rows_of.items():
            present = getattr(self, name)
            replacement = getattr(other, name)
            # The two batches may be padded to different lengths.
            length = max(present.shape[1], replacement.shape[1])
            present = _padded(present, length)
            # `rows` [b] as [b 1 ...], so that one truth value counts for all of a row.
            of_row = rows.view(-1, *[1] * (present.dim() - 1))
            swapped[name] = torch.where(of_row, _padded(replacement, length), present)
        swapped["has_image_r"] = torch.where(images, other.has_image_r, self.has_image_r)
        return replace(self, **swapped)


def _padded(x: Tensor, length: int) -> Tensor:
    """Return `x` [b t ...] padded with zeros behind, so that t is `length`."""
    return torch.cat([x, x.new_zeros(len(x), length - x.shape[1], *x.shape[2:])], dim=1)


@dataclass(frozen=True)
class Inputs:
    """What a model is built from, beside its options.

    `product_words` and `review_words` are the initial word vectors of both vocabularies. `review_characters` has the
    numbers of the characters of each review word; they lie below `characters`. `roi_dim` is the size of a region's
    features and `categories` the number of product categories. A label of `helpful_threshold` or more counts as
    helpful.
    """

    product_words: Float[Tensor, "v e"]
    review_words: Float[Tensor, "w e"]
    review_characters: Int[Tensor, "w c"]
    characters: int
    roi_dim: int
    categories: int = 1
    helpful_threshold: int = 2


@dataclass
class Output:
    """The output of a model: a score for each pair (higher is more helpful), losses by name, and numbers to log.

    `losses` are what the model adds to the ranking loss, already weighted; they are there in training only. `features`
    are the four sequences of post-interaction features (`text_p`, `text_r`, `roi_p`, `roi_r`). Tables 7 and 8 of Nguyen
    et al. 2022 measure their distances. A model without such features has none here.
    """

    score: Float[Tensor, " b"]
    losses: dict[str, Float[Tensor, ""]] = field(default_factory=dict)
    log: dict[str, float] = field(default_factory=dict)
    features: Mapping[str, Sequences] = field(default_factory=dict)


@dataclass(frozen=True)
class Corpus:
    """The reviews of one part of a dataset in memory, from which batches are made.

    `product_tokens`, `record_tokens`, `product_regions` and `category` have an entry for each product, the other
    sequences one for each review. `product` has the index of the review's product in those four fields, and
    `product_ids` the product's id in the dataset. The order of reviews decides ties. Tokens are int64 [t] and never
    empty. Regions are [m f], with m = 0 for an item without images; f is `roi_dim`. `lengths` are the numbers of known
    words of the reviews, also where texts are hidden.
    """

    product_tokens: Sequence[Ints]
    record_tokens: Sequence[Ints]
    product_regions: Sequence[Array]
    category: Ints
    review_tokens: Sequence[Ints]
    review_regions: Sequence[Array]
    product: Ints
    label: Ints
    product_ids: Sequence[str]
    review_ids: Sequence[str]
    lengths: Ints
    roi_dim: int = 2048

    def __len__(self) -> int:
        return len(self.label)

    def batch(self, rows: Ints, groups: Ints | None = None) -> Batch:
        """Return the batch of these review numbers (`rows`) with their products, in this order.

        `groups` has for each review the number of the group that it was sampled in; None: no groups, as in an
        evaluation.
        """
        # The product of each review. Names of products end with `_p`, those of reviews with `_r`.
        owners = self.product[rows]
        text_p, mask_p = _pad_tokens([self.product_tokens[i] for i in owners])
        record_p, record_mask_p = _pad_tokens([self.record_tokens[i] for i in owners])
        text_r, mask_r = _pad_tokens([self.review_tokens[i] for i in rows])
        roi_p, roi_mask_p, has_image_p = self._pad_regions(
            [self.product_regions[i] for i in owners]
        )
        roi_r, roi_mask_r, has_image_r = self._pad_regions([self.review_regions[i] for i in rows])
        # -1: no groups, as in an evaluation.
        group = np.full(len(rows), -1) if groups is None else groups
        return Batch(
            text_p=text_p,
            mask_p=mask_p,
            record_p=record_p,
            record_mask_p=record_mask_p,
            text_r=text_r,
            mask_r=mask_r,
            roi_p=roi_p,
            roi_mask_p=roi_mask_p,
            roi_r=roi_r,
            roi_mask_r=roi_mask_r,
            has_image_p=has_image_p,
            has_image_r=has_image_r,
            label=torch.from_numpy(self.label[rows]),
            product=torch.from_numpy(owners),
            group=torch.from_numpy(group),
            category=torch.from_numpy(self.category[owners]),
        )

    def _pad_regions(self, items: Sequence[Array]) -> tuple[Tensor, Tensor, Tensor]:
        """Return regions padded to the longest item [b m f], their mask [b m], and which items have an image [b]."""
        # An item without images has one region of zeros, which its mask calls valid.
        longest = max(1, *(len(item) for item in items))
        x = torch.zeros(len(items), longest, self.roi_dim)
        lengths = torch.tensor([max(1, len(item)) for item in items])
        for row, item in zip(x, items, strict=True):
            if len(item):
                row[: len(item)] = torch.from_numpy(np.asarray(item, dtype=np.float32))
        has_image = torch.tensor([len(item) > 0 for item in items])
        return x, torch.arange(longest)[None, :] < lengths[:, None], has_image


def _pad_tokens(items: Sequence[Ints]) -> tuple[Tensor, Tensor]:
    """Return token lists padded with 0 to the longest, [b t], and the mask of their tokens [b t]."""
    lengths = np.array([len(item) for item in items])
    mask = np.arange(lengths.max())[None, :] < lengths[:, None]
    tokens = np.zeros(mask.shape, dtype=np.int64)
    tokens[mask] = np.concatenate(items)
    return torch.from_numpy(tokens), torch.from_numpy(mask)


class HelpfulnessModel(nn.Module, ABC):
    """Base of the eight models: `forward(batch)` scores each pair from that pair alone, whatever the batch.

    A model is built as `Model(options, inputs)`; `settings` is the `@checked` class of its options.
    """

    settings: ClassVar[Any]
    score: Callable[[Tensor], Tensor]
    """Of most of our models, what gives the score of a pair from its features [b z], as [b 1]."""
    gives_features: ClassVar[bool] = False
    """Whether its outputs have post-interaction features."""

    def augment(self, batch: Batch, corpus: Corpus, rows: Ints, rng: np.random.Generator) -> Batch:
        """Return the batch to train on in place of `batch`, which is `rows` of `corpus`; by default the same.

        A model that augments draws from `rng`.
        """
        return batch

    def scored(self, *features: Float[Tensor, "b _"]) -> Output:
        """Return an `Output` with a score for each pair: `score` of the `features` joined along their last axis."""
        return Output(self.score(torch.cat(features, dim=1))[:, 0])

    @abstractmethod
    def forward(self, batch: Batch) -> Output:
        """Return the output for a batch, with a score [b] for each pair of product and review."""
