"""What a cohort keeps open: the last few datasets and folds of its members."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Keeps the last `count` different values that were asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._kept: OrderedDict[tuple[object, ...], V] = OrderedDict()

    def get(self, key: tuple[object, ...], opened: Callable[[], V]) -> V:
        """The value of `key`, which `opened` gives where it is not kept."""
        if key not in self._kept:
            self._kept[key] = opened()
            if len(self._kept) > self.count:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]
