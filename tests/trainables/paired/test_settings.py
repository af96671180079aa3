"""Settings of the family: resolved from the manifest's content alone, and old flat keys that say the new ones."""

from dataclasses import replace

import pytest
import torch
from refusals import refused

from contrasweep.errors import DataError, SpecError
from contrasweep.schema import field_help, resolved_config
from contrasweep.study import dotted
from contrasweep.trainables.paired import colour_baseline
from contrasweep.trainables.paired.settings import Classifier, CrossEntropy, Latent
from contrasweep.trainables.paired_images import settings as images
from contrasweep.trainables.paired_images import train
from contrasweep.trainables.paired_images.encoders import stage_side
from contrasweep.trainables.paired_texts import settings as texts

CLASSES = (images.Settings, texts.Settings)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {},
            {
                "image_size": 8,
                "encoder.stem": "small",
                "latent.size": 2,
                "augmentation.name": "pairs",
            },
        ),
        ({"image_size": 128}, {"image_size": 128, "encoder.stem": "imagenet", "latent.size": 8}),
        (
            {"latent": {"size": 5}, "encoder": {"stem": "imagenet"}},
            {"encoder.stem": "imagenet", "latent.size": 5},
        ),
        (
            {"input": "pre_single", "beta": 0.0},
            {"augmentation.name": "photos", "augmentation.flip": 0.5},
        ),
        *(
            (
                {"input": "post", "augmentation": {"name": name, "jitter": 0.0}},
                {"augmentation.name": "pairs", "augmentation.jitter": 0.0},
            )
            for name in ("pairs", "auto")
        ),
    ],
)
def test_every_automatic_value_becomes_concrete(pairs, given, expected):
    settings = images.Settings(**given).resolve(pairs)
    config = resolved_config(settings)
    flat = dotted.flatten(config)
    assert {key: flat[key] for key in expected} == expected
    assert "auto" not in flat.values() and flat["image_size"] and flat["latent.size"]
    assert settings.resolve(pairs) == settings == images.Settings(**config)


@pytest.mark.slow
def test_the_name_of_a_dataset_decides_nothing(pairs, make_trial):
    for given in ({}, {"input": "pre_single", "beta": 0.0}):
        resolved = [
            images.Settings(**given).resolve(replace(pairs, name=name))
            for name in ("mnist", "cifar10", "")
        ]
        assert resolved[0] == resolved[1] == resolved[2]
    trial = make_trial(epochs=1)
    (report,) = train(trial)
    (nameless,) = train(replace(trial, data=replace(trial.data, name="")))
    assert nameless.metrics == report.metrics


@pytest.mark.parametrize("side", [33, 64])
@pytest.mark.parametrize("stem", ["small", "imagenet"])
@pytest.mark.parametrize("encoder", ["resnet10", "resnet50"])
def test_the_sides_of_stages_are_those_of_the_network(side, stem, encoder):
    network = (
        images.Settings(encoder={"name": encoder, "stem": stem}).encoder.build((3, 64, 64)).eval()
    )
    with torch.no_grad():
        maps = network(torch.zeros(1, 3, side, side))
    assert [m.shape[2:] for m in maps] == [
        (stage_side(side, stem, stage),) * 2 for stage in (1, 2, 3, 4)
    ]


def test_where_a_trial_runs_is_no_part_of_its_resolved_settings():
    for cls in CLASSES:
        assert resolved_config(cls(device="auto")) == resolved_config(cls())
        assert "device" not in resolved_config(cls())


@pytest.mark.parametrize(
    "cls", [*CLASSES, Latent, CrossEntropy, Classifier, colour_baseline.Settings]
)
def test_every_setting_has_a_word_of_help(cls):
    assert [name for name, text in field_help(cls).items() if not text] == []


def test_data_of_another_kind_is_refused_before_anything_is_spent(pairs):
    texts_of = replace(pairs, kind="text-pair")
    for settings in (
        images.Settings(),
        images.Settings(input="single", beta=0.0),
        colour_baseline.Settings(),
    ):
        with refused(DataError, "is of kind 'text-pair'"):
            settings.resolve(texts_of)
    with refused(DataError, "is of kind 'image-pair'"):
        texts.Settings().resolve(pairs)
    with refused(SpecError, "batch_size: a batch must not be larger than the training part"):
        texts.Settings(batch_size=10**6).resolve(texts_of)
    with refused(SpecError, "latent.size: l needs a dimension for each of the"):
        texts.Settings(latent={"size": 1}).resolve(texts_of)


def test_views_that_do_not_suit_the_input_are_refused():
    with refused(SpecError, match=r"augmentation: .*does not suit input 'pair', got 'photos'"):
        images.Settings(augmentation="photos")
    with refused(SpecError, match=r"augmentation: .*does not suit input 'single', got 'pairs'"):
        images.Settings(input="single", beta=0.0, augmentation="pairs")
