"""Checked types that the settings of several trainables use."""

from typing import Annotated, Literal

import pydantic

Positive = Annotated[float, pydantic.Field(gt=0)]
NotNegative = Annotated[float, pydantic.Field(ge=0)]
AboveZero = Annotated[float, pydantic.Field(gt=0, le=1)]
"""A share that is not 0."""
Share = Annotated[float, pydantic.Field(ge=0, le=1)]
BelowOne = Annotated[float, pydantic.Field(ge=0, lt=1)]
Dropout = BelowOne
Count = Annotated[int, pydantic.Field(ge=1)]
Several = Annotated[int, pydantic.Field(ge=2)]
"""At least 2."""
MaybeCount = Annotated[int, pydantic.Field(ge=0)]
"""A number, or 0 for none, all or a default: each setting says which."""
Seed = Annotated[int, pydantic.Field(ge=0, lt=2**32)]
Device = Annotated[str, pydantic.Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
Centre = Literal["dataset", "item", "both"]
"""The colour that is subtracted: the training part's mean, each item's own, or the one and then the other."""
