"""Types and shapes of calls, checked while tests run: the checker that jaxtyping's import hook puts around them."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping
from beartype import BeartypeConf, BeartypeHintOverrides, beartype
from numpy.typing import ArrayLike

check = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,  # an int may stand for a float, as mypy has it
        hint_overrides=BeartypeHintOverrides({ArrayLike: object}),  # its protocols refuse a tuple of numbers
    )
)


@contextmanager
def unchecked() -> Iterator[None]:
    """No checks inside: for tests of what the code itself says of a wrong shape or type."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
