"""What the cohorts of a process share: the images of the datasets and folds of their members."""

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

KEPT_BYTES = 64 * 2**20
"""Images that are kept though no member uses them. A plan counts the images of a trial once; this is within what it
allows beyond them."""

V = TypeVar("V")


class Recent(Generic[V]):
    """Opens a value once for all who use it at a time. The last ones are kept longer, as far as they take no more than
    `kept_bytes` together: a study's folds alternate, and small images are read faster than they train."""

    def __init__(self, size: Callable[[V], int], kept_bytes: int = KEPT_BYTES) -> None:
        """`size` gives the bytes of a value."""
        self._size, self._kept_bytes = size, kept_bytes
        self._used: weakref.WeakValueDictionary[tuple[object, ...], V] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[tuple[object, ...], V] = OrderedDict()

    def get(self, key: tuple[object, ...], opened: Callable[[], V]) -> V:
        """The value of `key`, which `opened` gives where it is neither in use nor kept."""
        value = self._used.get(key)
        if value is None:
            self._used[key] = value = opened()
        if self._size(value) <= self._kept_bytes:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while sum(map(self._size, self._kept.values())) > self._kept_bytes:
                self._kept.popitem(last=False)
        return value
