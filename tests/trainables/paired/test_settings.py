"""Settings of the family: resolved from the manifest's content alone, and old flat keys that say the new ones."""

import pytest
import torch

from contrasweep.schema import field_help, resolved_config
from contrasweep.study import dotted
from contrasweep.trainables.paired import colour_baseline
from contrasweep.trainables.paired.settings import Classifier, CrossEntropy, Latent
from contrasweep.trainables.paired_images import settings as images
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
        ({"image_size": 64}, {"encoder.stem": "small"}),
        ({"image_size": 128}, {"image_size": 128, "encoder.stem": "imagenet", "latent.size": 8}),
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


@pytest.mark.parametrize(
    "cls", [*CLASSES, Latent, CrossEntropy, Classifier, colour_baseline.Settings]
)
def test_every_setting_has_a_word_of_help(cls):
    assert [name for name, text in field_help(cls).items() if not text] == []
