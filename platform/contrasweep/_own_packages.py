"""The packages beside `contrasweep` that belong to it, and that nothing else hides them: looked at first of all.

They have names of their own because trainables are named by them (`trainables.contrastive:train`) in every study file
and in every trial's id; a second name for the same modules would make two of each class.
"""

import importlib.util
from pathlib import Path

from contrasweep.errors import SpecError

OWN_PACKAGES = ("cluster", "trainables", "search_spaces")
"""Packages beside `contrasweep` that are its own, by names that somebody else's file may have too."""


def check_own_packages() -> None:
    """See that the packages that belong to `contrasweep` are its own; `SpecError` where a file or folder of the same
    name, in the current folder or wherever Python looks first, stands before one of them."""
    homes = (Path(__file__).parents[1], Path(__file__).parents[2])  # an installation, and a checkout
    for name in OWN_PACKAGES:
        spec = importlib.util.find_spec(name)
        places = [spec.origin, *(spec.submodule_search_locations or [])] if spec else []
        place = next(filter(None, places), None)
        if place is None or Path(place).resolve().parent in homes or Path(place).resolve().parents[1] in homes:
            continue
        raise SpecError(
            f"{name!r} is the name of a package of contrasweep, and another one hides it",
            place="import",
            value=str(place),
            hint="rename it, or run from another folder",
        )


check_own_packages()
