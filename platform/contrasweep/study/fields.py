"""The types of a study's fields."""

from typing import Annotated, Any

import pydantic

from contrasweep.errors import SpecError
from contrasweep.secrets import redacted

Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Values = Annotated[list[Any], pydantic.Field(min_length=1)]
DATA_AXIS = "data"
"""An axis of this name varies the dataset; every other axis varies a config key."""
Seeds = Annotated[list[Annotated[int, pydantic.Field(ge=0, le=2**63 - 1)]], pydantic.Field(min_length=1)]
Budget = Annotated[float, pydantic.Field(gt=0)]


def _with_datasets_named(axes: dict[str, list[Any]]) -> dict[str, list[Any]]:
    for i, name in enumerate(axes.get(DATA_AXIS, ())):
        if not isinstance(name, str):
            hint = "null names none" if name is None else "for example digits-lt"
            raise SpecError("the name of a dataset is text", place=f"{DATA_AXIS}.{i}", value=name, hint=hint)
    return axes


Axes = Annotated[dict[str, Values], pydantic.AfterValidator(_with_datasets_named)]


def _without_secrets(addresses: str | list[str] | None) -> str | list[str] | None:
    """A study's file is kept in the storage and shown."""
    for address in [addresses] if isinstance(addresses, str) else addresses or []:
        if redacted(address) != address:
            raise SpecError(
                "a study holds no password",
                value=redacted(address),
                hint="leave it out of the address and set CONTRASWEEP_TRACKING_PASSWORD, or "
                "CONTRASWEEP_TRACKING_PASSWORD_FILE to a file that has it",
            )
    return addresses


Tracking = Annotated[str | list[str] | None, pydantic.AfterValidator(_without_secrets)]
SmallestDifference = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
