"""Two towers on real digits with class-name captions, and on images with captions of their own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused
from to_the_bit import trained_and_resumed

from contrasweep.data import resolve, stage
from contrasweep.data.manifest import Folds
from contrasweep.errors import DataError, SpecError
from contrasweep.trainables.two_tower import Settings, memory, train
from contrasweep.trainables.two_tower.method import TwoTower, recalls
from contrasweep.trial import Trial

torch.set_num_threads(1)
PATH = "contrasweep.trainables.two_tower:train"
QUICK: dict[str, Any] = {
    "epochs": 3,
    "encoder": {"name": "cnn", "width": 8},
    "text_encoder": {"width": 16},
    "dim": 16,
}
QUICK |= {"batch_size": 32, "max_words": 8, "checkpoint_every": 1, "learning_rate": 3e-3}
COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 200, 30),
    "blue": (30, 30, 220),
    "white": (230, 230, 230),
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return resolve("digits", folds=None, storage=str(tmp_path_factory.mktemp("data")), write=True)


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    """Coloured squares, each with two captions in a file beside it."""
    folder = tmp_path_factory.mktemp("squares")
    random = np.random.RandomState(0)
    for split, count in (("train", 96), ("test", 16)):
        (folder / split).mkdir()
        for i in range(count):
            name = list(COLOURS)[i % 4]
            pixels = np.clip(
                np.array(COLOURS[name]) + random.randint(-25, 25, (8, 8, 3)), 0, 255
            ).astype(np.uint8)
            Image.fromarray(pixels).save(folder / split / f"{i:03d}.png")
            (folder / split / f"{i:03d}.txt").write_text(f"a {name} square\nsomething {name}\n")
    return stage("image-captions", str(folder / "staged"), source=folder)


def trial(data, fold=None, **config):
    return Trial("study", "arm", PATH, QUICK | config, data, fold, 0)


def test_recall_is_that_of_a_loop():
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(30, 4, generator=generator)
    found = torch.randn(12, 4, generator=generator)
    pairs = torch.stack([torch.arange(40) % 30, torch.randint(12, (40,), generator=generator)], 1)
    hits = recalls(queries, found, pairs)
    for i, query in enumerate(queries):
        near = sorted(range(12), key=lambda j: -float(found[j] @ query))
        own = {int(text) for image, text in pairs if image == i}
        assert [bool(hits[k][i]) for k in (1, 5, 10)] == [
            bool(own & set(near[:k])) for k in (1, 5, 10)
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "learned"),
    [
        ("clip", True),
        ("clip", False),
        ("siglip", True),
        ("siglip", False),
        ("loss_batches:first_to_second", False),
    ],
)
def test_it_learns_classes_by_their_names_and_resumes_bit_for_bit(digits, tmp_path, loss, learned):
    config = {"loss": loss, "learnable_temperature": learned}
    first, *_, last = trained_and_resumed(train, trial(digits, **config), tmp_path)
    assert last.metrics["zero_shot"] == last.metrics["accuracy"] > 0.6
    assert last.items.keys() == {
        "zero_shot",
        "accuracy",
        *(f"image_to_text_recall_at_{k}" for k in (1, 5, 10)),
    }
    assert all(values.mean() == last.metrics[name] for name, values in last.items.items())
    assert last.metrics["image_to_text_recall_at_1"] == last.metrics["zero_shot"], (
        "captions are the prompts here"
    )
    assert last.metrics["image_to_text_recall_at_10"] == 1.0, "there are ten distinct captions"
    assert ("loss_temperature" in first.metrics, "loss_bias" in first.metrics) == (
        learned,
        learned and loss == "siglip",
    )


@pytest.mark.slow
def test_captions_of_images_are_learned_and_other_images_are_classified_by_them(squares, tmp_path):
    method = TwoTower(trial(squares), Settings(**QUICK))
    assert len(method.captions.distinct_texts) == 8
    assert method.captions.texts_of_image[:2] == [
        [0, 1],
        [2, 3],
    ]
    order = torch.arange(64)[None]
    (_, words), (_, later) = (next(method.batches(order, 0, None, epoch)) for epoch in (1, 2))
    assert not torch.equal(words, later), "each epoch draws one of an image's captions anew"
    for name, colour in COLOURS.items():
        for i in range(4):
            (tmp_path / "folder/train" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "folder/test" / name).mkdir(parents=True, exist_ok=True)
            for split in ("train", "test"):
                pixels = np.full((8, 8, 3), colour, np.uint8) - np.uint8(i)
                Image.fromarray(pixels).save(tmp_path / "folder" / split / name / f"{i}.png")
    other = str(tmp_path / "staged")
    stage("image-folder", other, source=tmp_path / "folder")
    config = {
        "zero_shot_on": (other,),
        "prompts": ("a {} square",),
        "augmentation": "none",
        "batch_size": 16,
    }
    last = list(train(trial(squares, epochs=30, **config)))[-1].metrics
    assert last["image_to_text_recall_at_1"] > 0.9 and last["text_to_image_recall_at_1"] > 0.9
    assert last["zero_shot_on_staged"] > 0.9 and "zero_shot" not in last and "accuracy" not in last


def test_data_without_test_rows_are_refused(digits, squares):
    for data in (digits, squares):
        alone = replace(data, splits={"train": data.splits["train"]})
        with refused(DataError, "has no test split of its own; hold out folds, with folds=5"):
            Settings().resolve(alone)
        assert Settings(batch_size=8).resolve(alone.with_folds(Folds(2))).captions != "auto"


def test_a_batch_is_no_larger_than_the_training_part(squares):
    Settings(batch_size=96).check_batch(96)
    with refused(SpecError, "batch_size: a batch must not be larger", "got 97; it has 96 rows"):
        next(train(trial(squares, batch_size=97)))


def test_what_the_texts_are_is_in_the_resolved_settings(digits, squares):
    """So that a table says whether its captions are classes' names."""
    assert [Settings().resolve(data).captions for data in (digits, squares)] == [
        "classes",
        "dataset",
    ]


def test_memory_is_that_of_both_towers(digits):
    from contrasweep.cluster.memory import count

    def parameters(**config):
        workload = memory(QUICK | config, digits)
        return count(workload.build, workload.inputs, loss=workload.loss).parameters

    both = parameters()
    assert both < parameters(text_encoder={"width": 32})
    assert both < parameters(encoder={"width": 16})
    assert memory(QUICK, digits).resident_bytes == 1797 * 64
