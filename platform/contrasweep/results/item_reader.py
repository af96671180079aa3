"""The scores of test items, read once a trial, and from an object store those of many trials at once."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from contrasweep.rows import ItemColumns

Items = Callable[[str], ItemColumns]
"""A trial's id -> its items."""
THREADS = 16


class ItemReader:
    """Gives a trial's items by its id. `read` reads them; where it waits for a server (`remote`), several are read at
    once as soon as it is known that they will be asked for."""

    def __init__(self, read: Items, *, remote: bool) -> None:
        self.read, self.remote = read, remote
        self._known: dict[str, ItemColumns] = {}

    def __call__(self, trial_id: str) -> ItemColumns:
        """The items of a trial."""
        if trial_id not in self._known:
            self._known[trial_id] = self.read(trial_id)
        return self._known[trial_id]

    def ahead(self, trial_ids: Iterable[str]) -> None:
        """Read what will be asked for."""
        missing = [trial_id for trial_id in dict.fromkeys(trial_ids) if trial_id not in self._known]
        if self.remote and len(missing) > 1:
            with ThreadPoolExecutor(THREADS) as pool:
                self._known |= zip(missing, pool.map(self.read, missing), strict=True)


def read_ahead(items: Items, trial_ids: Iterable[str]) -> None:
    """Tell `items` which ones will be asked for, if it can make use of it."""
    if isinstance(items, ItemReader):
        items.ahead(trial_ids)
