"""An iterator that runs ahead of its consumer, in a thread."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
AHEAD = 2
CHUNK = {"cpu": 2**21, "cuda": 2**26}
"""Values of one view that are augmented at once: some batches of small images, so that the cost a call is shared."""
_END = object()


def prefetched(items: Iterator[T], ahead: int = AHEAD) -> Generator[T]:
    """The items of `items`, up to `ahead` of them computed before they are asked for. An exception reaches the consumer
    where its item would have; closing this iterator ends the thread after the item that it is at."""
    waiting: queue.Queue[Any] = queue.Queue(maxsize=ahead)
    closed = threading.Event()

    def put(item: Any) -> bool:
        while not closed.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((_END, None))
        except BaseException as error:  # it is raised in the consumer
            put((_END, error))

    worker = threading.Thread(target=work, name="prefetch", daemon=True)
    worker.start()
    try:
        while True:
            item, error = waiting.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        closed.set()
        worker.join()
