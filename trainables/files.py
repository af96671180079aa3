"""Files of weights in settings: the digest beside a path makes the file's content a part of the trial's identity."""

import functools
import hashlib
from pathlib import Path
from typing import Any

from contrasweep.components import Component
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import errors_named, project_folders
from contrasweep.storage.names import local_path
from contrasweep.trainables.pytorch import nn, torch

DIGEST_DIGITS = 12
"""Digits of a dataset's digest that stand in its name in settings, `name#digest`."""
STATE_DICT_KEYS = ("state_dict", "model")
"""Keys under which training scripts keep the state dict."""


def with_digest_of_weights(component: Component) -> Component:
    """Return the component with the SHA-256 of its `weights` as its parameter `sha256`, for the trial's identity.

    One without a file of weights stays as it is. `SpecError` where the file is missing or has another digest than the
    study declares.
    """
    file = component.parameters.get("weights")
    if not file:
        return component
    digest = _digest_of(_weights_file(file))
    declared_digest = component.parameters.get("sha256")
    if declared_digest and declared_digest != digest:
        raise SpecError(
            "the weights have another digest",
            place="weights",
            value=file,
            hint=f"{digest}, not {declared_digest}",
        )
    # Built anew from its parameters; `to_plain` returns them with the component's name, which is none of them.
    plain = component.to_plain() | {"sha256": digest}
    del plain["name"]
    return Component(component.name, component.entry, type(component.settings)(**plain))


def require_digest(dataset: Manifest, name: str, digest: str, setting: str) -> None:
    """Raise `DataError` where a dataset's digest does not begin with `digest`.

    That is the digest with which the study was planned. `name` is that of the dataset in the setting `setting`; both
    are for the message. With `digest` "" any dataset passes: before a study is planned there is none to compare with.
    """
    if not dataset.digest.startswith(digest):
        raise DataError(
            f"{setting}: dataset {name!r} has digest {dataset.digest[:DIGEST_DIGITS]} here and had {digest} when the "
            "study was planned: stage the same data again"
        )


def load_weights(module: "nn.Module", file: str, sha256: str) -> None:
    """Fill `module` from a file with a state dict; entries that the module lacks, such as a classifier, are ignored.

    Args:
        module: The network to fill.
        file: The file's path, absolute or within the project's folder.
        sha256: The digest that the file must have; "" for any.

    Raises:
        DataError: The file has another digest.
        SpecError: There is no such file, torch cannot read it, or it lacks a tensor or has it in another shape.
    """
    path = _weights_file(file)
    digest = _digest_of(path) if sha256 else ""
    if digest != sha256:
        raise DataError(
            f"the weights {path} have SHA-256 {digest[:12]}, the study's have {sha256[:12]}"
        )
    with errors_named("the file holds no weights that torch can read", "weights"):
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    # Checkpoints of programs hold the state dict under a key, such as `state_dict` or `model`.
    for key in STATE_DICT_KEYS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    # What is no dictionary of tensors lacks them all.
    entries = state.items() if isinstance(state, dict) else ()
    tensors = {name: value for name, value in entries if isinstance(value, torch.Tensor)}
    expected = module.state_dict()
    wrong = [
        name
        for name, value in expected.items()
        if name not in tensors or tensors[name].shape != value.shape
    ]
    if wrong:
        raise SpecError(
            f"the file lacks {len(wrong)} of the {len(expected)} tensors of this network, or has them in other shapes",
            place="weights",
            value=file,
            hint=f"the first is {wrong[0]} {list(expected[wrong[0]].shape)}; "
            f"the file has {', '.join(map(str, list(tensors)[:3])) or 'no tensors'}, ...",
        )
    module.load_state_dict({name: tensors[name] for name in expected})


def _weights_file(file: str) -> Path:
    """Return the path of the file of weights `file`; `SpecError` where there is none.

    A relative path is looked for in the current folder, then in the folders of the project.
    """
    for path in (local_path(file, "weights"), *(folder / file for folder in project_folders())):
        if path.is_file():
            return path
    raise SpecError(
        "there is no such file of weights",
        place="weights",
        value=file,
        hint=f"looked in {Path.cwd()}",
    )


def _digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, which is read again only where its time or size has changed."""
    stat = file.stat()
    return _sha256(file, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(64)
def _sha256(file: Path, mtime_ns: int, size: int) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits, from a cache that has the arguments as its key.

    A file whose modification time (`mtime_ns`) or `size` in bytes differs is so read again.
    """
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
