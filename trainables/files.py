"""Files in settings: a trial's identity includes a file's content, so that its digest is stored beside its path."""

import functools
import hashlib
import re
from pathlib import Path
from typing import Any

from contrasweep.components import Component
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import errors_named, project_folders
from contrasweep.storage.names import local_path
from contrasweep.trainables.pytorch import nn, torch

DIGITS = 16
NESTED = ("state_dict", "model")
"""Keys under which training scripts keep the state dict."""


def split_digest(text: str) -> tuple[str, str]:
    """Return path (or name of a dataset) and digest of a `path#digest`; "" for a plain path, which may have a `#`."""
    path, _, digest = text.rpartition("#")
    return (path, digest) if re.fullmatch("[0-9a-f]{12,16}", digest) else (text, "")


def with_digest(path: str, place: str) -> str:
    """Return `path` as `path#digest`, with the first digits of the file's SHA-256.

    A path that has a digest stays as it is. `place` is the setting that an error names.
    """
    if split_digest(path)[1]:
        return path
    return f"{path}#{_digest_of(local_path(path, place))[:DIGITS]}"


def checked_file(text: str, place: str) -> Path:
    """Return the file of a `path#digest`, or of a plain path, whose content may be any.

    `place` is the setting that errors name.

    Raises:
        DataError: The file is not on this host, or its content is another than when the study was planned.
    """
    path, digest = split_digest(text)
    file = local_path(path, place)
    if not file.is_file():
        raise DataError(f"{place}: {path} is not on this host")
    # A path without a digest has nothing to be compared with.
    present = _digest_of(file)[:DIGITS] if digest else ""
    if present != digest:
        raise DataError(
            f"{place}: {path} has digest {present} here and had {digest} when the study was planned: give every host "
            f"the same file, or plan again"
        )
    return file


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
    for key in NESTED:
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
    """Return the file of weights, as it stands or within the project; `SpecError` where there is none."""
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
    """Return the 64 digits of a file's SHA-256; `mtime_ns` and `size` are parts of the cache's key only."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
