"""What a user can get wrong in a loss, found before it is computed."""

import inspect
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrasweep.errors import SpecError, choose_from


class NotFiniteError(ValueError):
    """Embeddings hold NaN or infinite values."""


def known(kind: str, plural: str, table: Mapping[str, Any], name: object) -> Any:
    """The entry of `table` called `name`; `SpecError` with the known names if there is none."""
    if not isinstance(name, str) or name not in table:
        raise SpecError(f"there is no such {kind}", place=kind, value=name, hint=choose_from(plural, list(table), name))
    return table[name]


def parameter(name: str, value: object, declared: inspect.Parameter) -> Any:
    """A parameter's value, checked against what its name promises, its default's type and a `Literal`
    annotation."""
    default, annotation = declared.default, declared.annotation
    if value is inspect.Parameter.empty:
        raise SpecError("this parameter is required", place=name)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise SpecError("must be true or false", place=name, value=value)
        return value
    if choices := get_args(annotation) if get_origin(annotation) is Literal else ():
        if value not in choices:
            raise SpecError(
                "there is no such choice",
                place=name,
                value=value,
                hint=choose_from(f"values of {name}", list(choices), value),
            )
        return value
    if isinstance(default, str) or (value is None and default is None):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SpecError("must be a finite number", place=name, value=value)
    if name in ("temperature", "base_temperature") and value <= 0:
        raise SpecError("must be above 0", place=name, value=value)
    if name == "epsilon" and value < 0:
        raise SpecError("must be 0 or more", place=name, value=value)
    return float(value)


def batch(embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], instance_ids: Int[Tensor, " n"] | None) -> None:
    """Shapes and values of a batch; `NotFiniteError` if embeddings hold NaN or infinite values."""
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise SpecError(
            "embeddings must be floating-point [n d]",
            place="embeddings",
            value=f"{embeddings.dtype} {list(embeddings.shape)}",
        )
    for name, ids in (("labels", labels), ("instance_ids", instance_ids)):
        if ids is not None and ids.shape != embeddings.shape[:1]:
            raise SpecError(
                f"must hold one value per embedding, which are {len(embeddings)}", place=name, value=list(ids.shape)
            )
    if not torch.isfinite(embeddings.detach()).all():
        bad = (~torch.isfinite(embeddings.detach())).any(1).nonzero().flatten()
        raise NotFiniteError(
            f"embeddings: must be finite, got NaN or infinite values in {len(bad)} of {len(embeddings)} rows, "
            f"the first at row {int(bad[0])}"
        )
