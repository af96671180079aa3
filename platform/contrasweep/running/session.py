"""Several studies on one Ray: it starts with the first that trains, and ends with the block."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

SESSION_STACK: ContextVar[ExitStack | None] = ContextVar("SESSION_STACK", default=None)
"""The exit stack of the session in which this code runs, which ends Ray; None outside of a session."""

_PROCESS = ExitStack()
"""The exit stack of sessions that last as long as this process."""


@contextmanager
def session(*, of_process: bool = False) -> Iterator[None]:
    """Keep Ray running between the studies of a `with` block. The first study that trains starts Ray.

    Args:
        of_process: Whether Ray goes on after a block without an error, until this process ends. A block within another
            block has no say: Ray ends with the outer one.

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
        stack = SESSION_STACK.get() or (_PROCESS if of_process else block)
        before = SESSION_STACK.set(stack)
        try:
            yield
        except BaseException:
            # Ray itself may be broken: end it, so that the next block starts another.
            if stack is _PROCESS:
                stack.close()
            raise
        finally:
            SESSION_STACK.reset(before)
