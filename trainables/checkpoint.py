"""Checkpoints of a trainable: one file in a folder, replaced as a whole, loaded without running any code of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from contrasweep.errors import SpecError, StorageError
from contrasweep.imports import in_one_line
from contrasweep.trainables.pytorch import nn, torch

FILE = "state.pt"
StateDict = dict[str, Any]
"""Tensors and plain values by name, as torch's modules and optimizers have it."""


@runtime_checkable
class Stateful(Protocol):
    """Anything with a state to save: a model, an optimiser, a gradient scaler."""

    def state_dict(self) -> StateDict:
        """Return the state: tensors and plain values."""

    def load_state_dict(self, state_dict: StateDict, /) -> Any:
        """Take over the state that `state_dict` gave."""


class Attributes:
    """A base class of objects whose state is all of their attributes: tensors and plain values."""

    def state_dict(self) -> StateDict:
        """Return the attributes by name."""
        return dict(vars(self))

    def load_state_dict(self, state: StateDict, /) -> None:
        """Set the attributes that `state_dict` gave."""
        vars(self).update(state)


Parts = Mapping[str, Stateful]
"""What a checkpoint saves and restores, by name."""


def save(folder: Path, parts: Parts, **facts: Any) -> Path:
    """Write the state of `parts`, torch's random state and plain `facts` (numbers, text, lists) to `folder`.

    Returns `folder`. A reader finds the old state or the new, never half of one.
    """
    state = {
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "rng": random_state(),
        "facts": facts,
    }
    # A new file is written beside the old one, and then takes its name, which happens at once or not at all.
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{FILE}-{os.getpid()}"
    try:
        torch.save(state, temporary)
        temporary.replace(folder / FILE)
    finally:
        temporary.unlink(missing_ok=True)
    return folder


def part(folder: Path, name: str) -> StateDict:
    """Return the state of the part `name` as `save` wrote it to `folder`; torch's random state is left alone.

    `StorageError` where the folder holds no checkpoint.
    """
    state: StateDict = _read(folder)["parts"][name]
    return state


def load_encoder(folder: Path, encoder: "nn.Module") -> None:
    """Fill `encoder` with the encoder's weights from a checkpoint of `contrastive` or `finetune`.

    Averaged weights are taken where the checkpoint has any.

    Args:
        folder: The folder that `save` wrote.
        encoder: A network of the same architecture, for images of the same shape.

    Raises:
        SpecError: The checkpoint holds no encoder, or one with other tensors; the message names the first.
    """
    state = _encoder_in(folder)
    # A tensor that one side lacks has the shape "none" there, which differs from any other.
    expected = encoder.state_dict()
    names = list(dict.fromkeys([*expected, *state]))
    wrong = [name for name in names if _shape_in(expected, name) != _shape_in(state, name)]
    if wrong:
        first = wrong[0]
        saved = _shape_in(state, first)
        raise SpecError(
            f"the encoder in the checkpoint has {len(wrong)} of {len(names)} tensors in other shapes",
            place="encoder",
            value=f"{first} {_shape_in(expected, first)}",
            hint=f"there it is {saved}: take the same encoder, and images of as many channels and pixels",
        )
    encoder.load_state_dict(state)


def _encoder_in(folder: Path) -> StateDict:
    """Return the encoder's weights in a checkpoint, by the names of the encoder's tensors; `SpecError` without any."""
    try:
        parts: dict[str, StateDict] = _read(folder)["parts"]
        network = parts.get("average") or parts["model"]
        # The network of contrastive or finetune is a sequence of encoder and head: the encoder's names begin with "0.".
        return {
            name.removeprefix("0."): value
            for name, value in network.items()
            if name.startswith("0.")
        }
    except StorageError as error:
        raise SpecError(
            "the trial to start from kept no weights", place="start", hint=str(error)
        ) from None
    # The checkpoint is one of another method, a damaged one, or one that would run code.
    except Exception as error:
        hint = f"it is no checkpoint of contrastive or finetune ({in_one_line(error)})"
        raise SpecError(
            "the checkpoint to start from holds no encoder", place="start", hint=hint
        ) from None


def _shape_in(state: StateDict, name: str) -> list[int] | str:
    """Return the shape of a tensor in `state`; "none" where `state` lacks it."""
    return list(state[name].shape) if name in state else "none"


def restore(folder: Path, parts: Parts) -> StateDict:
    """Bring `parts` and torch's random state back to what `save` wrote to `folder`, and return its `facts`.

    `StorageError` where the folder holds no checkpoint, or one of other parts.
    """
    state = _read(folder)
    if set(state["parts"]) != set(parts):
        raise StorageError(
            f"the checkpoint in {folder} holds {sorted(state['parts'])}, this trial needs {sorted(parts)}"
        )
    for name, part in parts.items():
        part.load_state_dict(state["parts"][name])
    set_random_state(state["rng"])
    facts: StateDict = state["facts"]
    return facts


def _read(folder: Path) -> Any:
    """Return the dictionary that `save` wrote to `folder`; `StorageError` where there is none."""
    try:
        return torch.load(folder / FILE, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise StorageError(f"{folder} holds no checkpoint ({FILE} is missing)") from None


def random_state() -> StateDict:
    """Return the state of torch's random numbers on the host, and on all GPUs that the process sees."""
    return {
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: StateDict) -> None:
    """Bring torch's random numbers back to a state that `random_state` gave."""
    torch.set_rng_state(state["cpu"])
    # On a host with other GPUs, their generators stay as the epoch's seed sets them.
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
