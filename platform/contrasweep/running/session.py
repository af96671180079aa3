"""Several studies on one Ray: it starts with the first that trains, and ends with the block."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

KEPT: ContextVar[ExitStack | None] = ContextVar("KEPT", default=None)
"""What ends with the session in which this code runs; None outside of one."""

_PROCESS = ExitStack()


@contextmanager
def session(*, of_process: bool = False) -> Iterator[None]:
    """Keep Ray running between the studies of a `with` block. The first study that trains starts Ray.

    Args:
        of_process: Whether Ray goes on after a block without an error, until this process ends. A block within another
            leaves Ray to that.

    Returns:
        What `with` takes.

    Example:
        >>> with cs.session():
        ...     finished = [cs.run(one, tracking=None) for one in (study, study)]
        >>> finished[1].complete
        True
    """
    with ExitStack() as block:
        # Ray ends with the outermost block, or with the process.
        kept = KEPT.get() or (_PROCESS if of_process else block)
        before = KEPT.set(kept)
        try:
            yield
        except BaseException:
            if kept is _PROCESS:  # whatever broke may be Ray, which the next block then starts anew
                kept.close()
            raise
        finally:
            KEPT.reset(before)
