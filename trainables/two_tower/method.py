"""A trial of `trainables.two_tower` in training: captioned images, retrieval both ways, zero-shot classification."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from contrasweep.data import open_dataset
from contrasweep.data.reading import Part
from contrasweep.rows import ItemColumns
from contrasweep.trainables import augmentations, images, loop, seeding
from contrasweep.trainables.contrastive import transfer
from contrasweep.trainables.dual_encoder.method import DualEncoder, Sides
from contrasweep.trainables.evaluation.neighbours import SCORES_AT_ONCE
from contrasweep.trainables.evaluation.scores import classification
from contrasweep.trainables.pytorch import Bool, Float, Int, Matrix
from contrasweep.trainables.similarities import unit
from contrasweep.trainables.texts.encoders import reader_of
from contrasweep.trainables.two_tower.settings import Settings
from contrasweep.trial import Trial

RECALL_AT = (1, 5, 10)
"""How many nearest rows `recall_at_<k>` looks among."""


class Captions:
    """The texts of a part's images: captions of the dataset, or prompts with the names of their classes.

    `all_texts` has the texts of all images one after another, and `distinct_texts` each different text once.
    `texts_of_image` has for each image a list of its texts, as indices into `distinct_texts`.
    """

    def __init__(self, part: Part, settings: Settings, classes: Sequence[str]) -> None:
        if settings.captions == "dataset":
            texts_by_image = part.column("captions").to_pylist()
        else:
            texts_of_class = [
                [prompt.format(name) for prompt in settings.prompts] for name in classes
            ]
            texts_by_image = [texts_of_class[label] for label in part.labels.tolist()]
        self.all_texts = list(itertools.chain.from_iterable(texts_by_image))
        # Distinct texts are numbered in the order in which they first come.
        self.distinct_texts = list(dict.fromkeys(self.all_texts))
        number = {text: i for i, text in enumerate(self.distinct_texts)}
        self.texts_of_image = [[number[text] for text in texts] for texts in texts_by_image]

    @property
    def pairs(self) -> Int[Tensor, "p 2"]:
        """A row for each text of each image: the number of the image, and that of the text in `distinct_texts`."""
        return torch.tensor(
            [(i, text) for i, texts in enumerate(self.texts_of_image) for text in texts]
        )


Batch = tuple[Tensor, Tensor]
"""Views of images [b c h w] and words [b w]."""


class TwoTower(DualEncoder[Batch]):
    """A trial of `two_tower` in training: images, captions and both towers on the device."""

    settings: Settings

    def __init__(self, trial: Trial, settings: Settings) -> None:
        self.settings = settings = settings.resolve(trial.data)
        device = seeding.prepare_device(settings.device, settings.threads)
        parts = open_dataset(trial.data).parts(trial.fold)
        self.train, self.test = (
            images.open_images(part, device, settings.resident_gib, settings.view_size)
            for part in parts
        )
        self.normalise = images.Normalise(self.train)
        self.policy = augmentations.policy_of(settings.augmentation)
        self.captions, self.test_captions = (
            Captions(part, settings, trial.data.classes) for part in parts
        )
        # The vocabulary counts each caption as often as it stands; each distinct one is read once.
        texts = self.captions.all_texts
        self.reader = reader_of(
            settings.text_encoder, texts, settings.min_count, settings.max_words
        )
        self.words = self.reader(self.captions.distinct_texts).to(device)
        super().__init__(trial, settings, len(self.train), device)

    def network(self) -> nn.Module:
        """Build both towers, that of images in the faster memory layout."""
        network = self.settings.build_network(self.train.shape, self.reader.size)
        network.get_submodule("images").to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def batches(self, order: Int[Tensor, "batches b"], *key: int | None) -> Iterator[Batch]:
        """Yield the batches of an epoch: one for each row of `order` [batches b], which has the images of the batch.

        A batch is (views [b c h w], word indices of a caption of each image). Views and captions are drawn by `key`
        (seed, fold, epoch).
        """
        size = order.shape[1]
        # A view for each place of the epoch, and a number from 0 to 1 that picks one of the image's captions.
        views = images.Views(self.train, [self.policy], order.reshape(-1), *key)
        shares = torch.rand(order.shape, generator=seeding.generator(*key, "captions")).tolist()
        for i, rows in enumerate(order):
            (view,) = views(slice(i * size, (i + 1) * size))
            chosen = []
            for row, share in zip(rows.tolist(), shares[i], strict=True):
                captions = self.captions.texts_of_image[row]
                chosen.append(captions[int(share * len(captions))])
            yield self.normalise(view), self.words[torch.tensor(chosen, device=self.device)]

    def embed(self, batch: Batch) -> Sides:
        """Embed images and texts of a batch, with gradients."""
        first, second = self.model(*batch)
        # No two pairs belong together: each has a label of its own.
        return Sides(first, second, torch.arange(len(first), device=self.device))

    def embed_images(self, blocks: Iterable[Tensor]) -> Matrix:
        """Return unit embeddings [n d] of images without augmentation.

        The images are uint8 [n c h w], in `blocks` of any number of images.
        """
        rows = self.settings.evaluated_rows
        return self._unit("images", self.normalise.chunks(blocks, rows))

    def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Return unit embeddings of texts."""
        chunks = torch.split(self.reader(texts), self.settings.evaluated_rows)
        return self._unit("texts", (words.to(self.device) for words in chunks))

    def _unit(self, tower: str, chunks: Iterable[Tensor]) -> Matrix:
        """Return the unit embeddings that the tower "images" or "texts" gives of all chunks, in evaluation mode."""
        network = self.model.eval().get_submodule(tower)
        return unit(self.outputs(network, chunks, f"embeddings of {tower}"))

    def classifier(self, classes: Sequence[str]) -> Float[Tensor, "k d"]:
        """Return the zero-shot classifier: each class's mean embedding of its prompts (Radford et al. 2021, 3.1.4)."""
        prompts = self.settings.prompts
        embedded = self.embed_texts([prompt.format(name) for name in classes for prompt in prompts])
        return unit(embedded.reshape(len(classes), len(prompts), -1).mean(1))

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Return recall both ways, and zero-shot scores where the images have classes.

        `image_to_text_recall_at_k` is the share of images with a caption of their own among the k nearest captions.
        `text_to_image_recall_at_k` is the share of captions with an image of their own among the k nearest images.
        Captions are the distinct ones of the test part. `zero_shot` is the accuracy by prompts. Values of items, and
        scores on other datasets, come with the `final` evaluation alone. Nothing is written to `folder`.
        """
        # Retrieval both ways: k -> whether a correct row is among the k nearest to each image, and to each caption.
        image_rows = self.embed_images(self.test.blocks())
        text_rows = self.embed_texts(self.test_captions.distinct_texts)
        pairs = self.test_captions.pairs.to(self.device)
        # `pairs` has (image, caption); flipped, (caption, image).
        of_images = recalls(image_rows, text_rows, pairs)
        of_texts = recalls(text_rows, image_rows, pairs.flip(1))
        hits = {f"image_to_text_recall_at_{k}": found for k, found in of_images.items()}
        items = {name: found.byte().cpu().numpy() for name, found in hits.items()}
        hits |= {f"text_to_image_recall_at_{k}": found for k, found in of_texts.items()}
        metrics = {name: float(found.double().mean()) for name, found in hits.items()}
        # Zero-shot: the class whose prompts are nearest to an image.
        classes = self.trial.data.classes
        if classes:
            predicted = (image_rows @ self.classifier(classes).T).argmax(1)
            metrics |= classification(predicted, self.test.labels, len(classes))
            metrics["zero_shot"] = metrics["accuracy"]
            right = (predicted == self.test.labels).byte().cpu().numpy()
            items |= {"zero_shot": right, "accuracy": right}
        if not final:
            return loop.Evaluation(metrics)
        of_items: ItemColumns = {**items, **self.test.grouping}
        return loop.Evaluation(metrics | self._elsewhere(), of_items)

    def _elsewhere(self) -> dict[str, float]:
        """Return `zero_shot_on_NAME`, the zero-shot accuracy, for each other dataset that the settings name."""
        scores = {}
        for other in transfer.open_others(
            self.settings.zero_shot_on, self.trial.data, self.trial.fold
        ):
            embedded = self.embed_images(transfer.pixels(other.test, self.train.shape))
            classifier = self.classifier(other.test.split.manifest.classes)
            hits = (embedded @ classifier.T).argmax(1).cpu() == torch.as_tensor(other.test.labels)
            scores[f"zero_shot_on_{other.name}"] = float(hits.double().mean())
        return scores


def recalls(
    queries: Matrix, index: Float[Tensor, "m d"], pairs: Int[Tensor, "p 2"]
) -> dict[int, Bool[Tensor, " n"]]:
    """Return, for each k of `RECALL_AT`, whether a correct row is among the k nearest to each query by inner product.

    `pairs` lists which rows of `index` are correct: the number of the query, and that of the row.
    """
    # A pair (query, row) is one number, query * m + row, so that `isin` finds the correct ones.
    m = len(index)
    keys = pairs[:, 0] * m + pairs[:, 1]
    # Whether each of the nearest rows is correct [n k], computed for some queries at a time.
    correct = []
    for tile in torch.split(
        torch.arange(len(queries), device=queries.device), max(1, SCORES_AT_ONCE // m)
    ):
        nearest = (queries[tile] @ index.T).topk(min(max(RECALL_AT), m)).indices
        correct.append(torch.isin(tile[:, None] * m + nearest, keys))
    hits = torch.cat(correct)
    return {k: hits[:, :k].any(1) for k in RECALL_AT}
