"""Weights to begin with: a file of a state dict, part of a trial by the digest of its bytes."""

import hashlib
from pathlib import Path
from typing import Any

from contrasweep.components import Component
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import project_folders
from contrasweep.storage.names import local_path
from contrasweep.trainables.pytorch import nn, torch

NESTED = ("state_dict", "model")
"""Keys under which training scripts keep the state dict."""


def with_digest(component: Component) -> Component:
    """The component with the digest of its `weights`, if it has any: what a trial's identity holds."""
    file = component.parameters.get("weights")
    if not file:
        return component
    path, kept = locate(file), component.parameters.get("sha256")
    digest = digest_of(path)
    if kept and kept != digest:
        raise SpecError(
            "the weights have another digest", place="weights", value=str(file), hint=f"{digest}, not {kept}"
        )
    plain = component.to_plain() | {"sha256": digest}
    return Component(
        component.name, component.entry, type(component.settings)(**{k: plain[k] for k in plain if k != "name"})
    )


def locate(file: str) -> Path:
    """The file, as it stands or in the project's folder; `SpecError` where there is none."""
    for path in (local_path(file, "weights"), *(folder / file for folder in project_folders())):
        if path.is_file():
            return path
    raise SpecError("there is no such file of weights", place="weights", value=file, hint=f"looked in {Path.cwd()}")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def load(module: "nn.Module", file: str, sha256: str) -> None:
    """Fill `module` from a file of this digest. What the file has beyond it (a classifier, say) is left; `SpecError`
    where it lacks a parameter, or has it in another shape."""
    path = locate(file)
    if sha256 and (digest := digest_of(path)) != sha256:
        raise DataError(f"the weights {path} have SHA-256 {digest[:12]}, the study's have {sha256[:12]}")
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its unpickler raises
        hint = " ".join(str(error).split())[:200]
        raise SpecError(
            "the file holds no weights that torch can read", place="weights", value=file, hint=hint
        ) from None
    for key in NESTED:
        state = state[key] if isinstance(state, dict) and isinstance(state.get(key), dict) else state
    own = module.state_dict()
    wrong = [name for name, value in own.items() if name not in state or state[name].shape != value.shape]
    if wrong:
        raise SpecError(
            f"the file lacks {len(wrong)} of the {len(own)} tensors of this network, or has them in other shapes",
            place="weights",
            value=file,
            hint=f"the first is {wrong[0]} {list(own[wrong[0]].shape)}; the file has {', '.join(list(state)[:3])}, ...",
        )
    module.load_state_dict({name: state[name] for name in own})
