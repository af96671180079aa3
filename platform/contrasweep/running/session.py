"""Several studies on one Ray: it starts with the first that trains, and ends with the block."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

KEPT: ContextVar[ExitStack | None] = ContextVar("KEPT", default=None)
"""What ends with the session in which this code runs; None outside of one."""


@contextmanager
def session() -> Iterator[None]:
    """Keep Ray running between the studies of a `with` block. The first study that trains starts Ray.

    Example:
        >>> with cs.session():
        ...     finished = [cs.run(one, tracking=None) for one in (study, study)]
        >>> finished[1].complete
        True
    """
    with ExitStack() as kept:
        before = KEPT.set(kept)
        try:
            yield
        finally:
            KEPT.reset(before)
