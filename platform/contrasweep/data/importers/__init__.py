"""The datasets that can be staged, one file per published format, and the table that names them."""

import importlib

from contrasweep.data.content import Importer

_PATHS = {
    "digits": "digits:DIGITS",
    "digits-lt": "digits:DIGITS_LT",
    "mnist": "mnist:MNIST",
    "fashion-mnist": "mnist:FASHION_MNIST",
    "cifar10": "cifar:CIFAR10",
    "cifar100": "cifar:CIFAR100",
    "cifar10-lt": "cifar:CIFAR10_LT",
    "cifar100-lt": "cifar:CIFAR100_LT",
    "imagenet-lt": "long_tail_lists:IMAGENET_LT",
    "inaturalist-lt": "long_tail_lists:INATURALIST_LT",
    "image-folder": "image_folder:IMAGE_FOLDER",
    "images": "image_folder:IMAGES",
    "image-captions": "image_captions:IMAGE_CAPTIONS",
    "webdataset": "web_dataset:WEB_DATASET",
    "hugging-face": "hugging_face:HUGGING_FACE",
    "image-pairs": "image_pairs:IMAGE_PAIRS",
    "hra": "image_pairs:HRA",
    "ombria": "ombria:OMBRIA",
    "synthetic-pairs": "synthetic_pairs:SYNTHETIC_PAIRS",
    "xbd": "xbd:XBD",
    "sick": "sick:SICK",
}


def _importer(path: str) -> Importer:
    """Return the importer at `module:IMPORTER` of this package."""
    module, _, name = path.partition(":")
    importer = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    assert isinstance(importer, Importer), path
    return importer


DATASETS: dict[str, Importer] = {name: _importer(path) for name, path in _PATHS.items()}
"""Name -> importer. A new dataset is a file in this folder with an `Importer`, and a line in `_PATHS`."""
