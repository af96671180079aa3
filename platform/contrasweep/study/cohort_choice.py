"""The field `cohort` of a study and of an arm: whether trials are fused, trained several as one network."""

from typing import Annotated, Any, Literal

import pydantic

SIZES = (2, 4, 8, 16)
"""Trials of one cohort."""


def _check(value: Any) -> Any:
    if value is False:  # YAML 1.1 reads a bare `off` so
        return "off"
    if value in ("auto", "off") or (value in SIZES and not isinstance(value, bool)):
        return value
    raise ValueError(f"it is auto, off, or how many trials train as one: {', '.join(map(str, SIZES))}")


CohortChoice = Annotated[Literal["auto", "off", 2, 4, 8, 16], pydantic.BeforeValidator(_check)]
"""`auto`: fuse where a probe of the engines showed that it pays. `off`: every trial runs alone. K: fuse K at a time."""
DEFAULT: CohortChoice = "off"
