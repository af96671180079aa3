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


DATASETS: dict[str, Importer] = {}
"""Name -> importer. A new dataset is a file in this folder with an `Importer`, and a line in `_PATHS`."""
for _name, _path in _PATHS.items():
    _module, _, _attribute = _path.partition(":")
    DATASETS[_name] = getattr(importlib.import_module(f"{__name__}.{_module}"), _attribute)
