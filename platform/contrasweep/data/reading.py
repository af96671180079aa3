"""Reading a staged dataset: parts of a fold as arrays that are mapped from the node's one decoded copy."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep import canonical
from contrasweep.data import cache, decoding, folds
from contrasweep.data.column_files import ArrayFile, ColumnFile, EncodedFile
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError, choose_from

Ints = NDArray[np.int64]
GROUP = "group"


def open_dataset(manifest: Manifest) -> "Dataset":
    """Return the dataset behind `manifest`.

    Nothing is read until a part of it is asked for; then its shards are fetched and decoded once per node. `DataError`
    names an object that is missing or not what the manifest says.
    """
    return Dataset(manifest)


@dataclass(frozen=True)
class Ragged:
    """Rows of several items each: row i owns `values[starts[i] : starts[i] + lengths[i]]`."""

    values: NDArray[Any]
    starts: Ints
    lengths: Ints

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Return the items of a row, [m ...]: a view."""
        start = self.starts[row]
        return self.values[start : start + self.lengths[row]]

    def __len__(self) -> int:
        return len(self.starts)


class Dataset:
    """A staged dataset: opens its splits, and the training and test part of a fold."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._splits: dict[str, Split] = {}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by label; empty where rows have no labels."""
        return self.manifest.classes

    def split(self, name: str) -> "Part":
        """Return all rows of a split, in their order; `DataError` lists the splits if there is no such one."""
        split = self._split(name)
        return Part(split, np.arange(split.rows), lambda: split.arrays)

    def parts(self, fold: int | None) -> "tuple[Part, Part]":
        """Return the training and the test part.

        `fold` None: the splits `train` and `test`; otherwise the rows of the training split outside and inside that
        fold. Fold numbers from the manifest's count on are those of further partitions by the same rule: of 5 folds,
        fold 7 is number 2 of the second. `SpecError` on a fold that there is not.
        """
        if fold is None:
            return self.split("train"), self.split("test")
        count = self.manifest.folds.count if self.manifest.folds else 0  # 0: it has no folds
        if not count or fold < 0:
            hint = (
                f"folds from 0, {count} a partition"
                if count
                else "no folds: resolve it with folds=N"
            )
            raise SpecError(f"dataset {self.manifest.name!r} has {hint}", place="fold", value=fold)
        return self._split("train").parts(fold)

    def _split(self, name: str) -> "Split":
        """Return the split `name`, opened once: it is fetched and decoded then, unless the node has it.

        `DataError` lists the splits that have rows where it is none of them.
        """
        if name not in self.manifest.splits or not self.manifest.rows(name):
            hint = choose_from(
                "splits",
                [split for split in self.manifest.splits if self.manifest.rows(split)],
                name,
            )
            raise DataError(f"dataset {self.manifest.name!r} has no split {name!r}; {hint}")
        if name not in self._splits:
            self._splits[name] = Split(self.manifest, name)
        return self._splits[name]


class Split:
    """One split in the node's cache, which it is fetched and decoded to as this is made.

    `mapped` are the decoded array columns, `files` all array columns as files, `table` the other columns, `encoded` the
    names of image columns that stay encoded; `key` is that of its entry of the cache.
    """

    def __init__(self, manifest: Manifest, name: str) -> None:
        self.manifest = manifest
        self.name = name
        self.rows = manifest.rows(name)
        # By repeat of the partition: the fold of each row, and what `decoding.fold_order` gives of these: an order of
        # rows,
        # and where in it each fold starts.
        self._fold_orders: dict[int, tuple[Ints, Ints, Ints]] = {}
        self._laid_out: dict[int, dict[str, NDArray[Any]]] = {}  # by repeat
        # The key has all that decides what lies in the entry, and nothing of where the data come from.
        content = [[shard.rows, shard.content or shard.sha256] for shard in manifest.splits[name]]
        self.encoded = decoding.stays_encoded(manifest, name, cache.decoded_limit_bytes())
        identity = {"version": decoding.VERSION, "rows": content, "columns": manifest.columns}
        self.key = canonical.digest(
            identity | ({"encoded": self.encoded} if self.encoded else {}), 32
        )
        what = f"{manifest.name} ({name})"

        def build(folder: Path) -> None:
            decoding.decode_split(manifest, name, folder, self.encoded)

        with cache.entry(self.key, what, build) as folder:
            self.mapped = _open_arrays(folder)
            self.files: dict[str, ColumnFile] = {
                **{name: ArrayFile(folder / f"{name}.npy") for name in self.mapped},
                **{
                    name: EncodedFile(folder, name, manifest.columns[name]) for name in self.encoded
                },
            }
            with pa.memory_map(str(folder / decoding.ROWS)) as file:
                self.table = pa.ipc.open_file(file).read_all()

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array column, mapped; what stays encoded is decoded for it, once per node.

        `DataError` where an encoded image is broken, or images differ in size.
        """
        if not self.encoded:
            return self.mapped
        files = {name: self.files[name] for name in self.encoded}
        # Written as they come, to an entry of their own.
        order = np.arange(self.rows)
        key = canonical.digest({"of": self.key, "decoded": self.encoded}, 32)
        label = f"{self.manifest.name} ({self.name}, decoded)"
        with cache.entry(
            key, label, lambda folder: decoding.write_in_order(files, order, folder)
        ) as folder:
            return self.mapped | _open_arrays(folder)

    @cached_property
    def labels(self) -> Ints:
        """The class index of every row [n]; `DataError` if the split has no labels."""
        if "label" not in self.table.column_names:
            raise DataError(
                f"split {self.name!r} of {self.manifest.name!r} has no labels; columns: {self.names}"
            )
        return np.asarray(self.table["label"].to_numpy(), np.int64)

    @property
    def names(self) -> list[str]:
        """Return the names of columns, sorted, without those that only describe an array, as `features.start` does."""
        return sorted(
            {*self.manifest.columns, *(n for n in self.table.column_names if "." not in n)}
        )

    def _partition(self, repeat: int) -> Ints:
        """Return the fold of every row [n] in this repeat of the partition.

        Raises `SpecError` where the rule leaves no choice, so that a repeat would be the same partition again.
        """
        assert self.manifest.folds is not None
        # Without labels all rows are of one class, which stratifying deals out evenly.
        columns = set(self.table.column_names)
        groups = self.table[GROUP].to_pylist() if GROUP in columns else None
        own_folds = self.table["fold"].to_numpy() if "fold" in columns else None
        labels = self.labels if "label" in columns else np.zeros(self.rows, np.int64)
        return folds.repeated(labels, groups, own_folds, self.manifest.folds, repeat)

    def _in_fold_order(self, repeat: int) -> "dict[str, NDArray[Any]]":
        """Return the arrays laid out in the fold order of a repeat, once per node; columns of several items are not.

        It is called when an array of a part is first asked for, since rows can be read without it.
        """
        if repeat not in self._laid_out:
            assert self.manifest.folds is not None
            numbers, order, _ = self._fold_orders[repeat]
            # A column of several items a row is read by its starts, in any order.
            plain = {
                name: file
                for name, file in self.files.items()
                if not self.manifest.columns[name].get("list")
            }
            key = canonical.digest({"of": self.key, "folds": numbers.tolist()}, 32)
            label = f"{self.manifest.name} ({self.manifest.folds.count} folds)"
            with cache.entry(
                key, label, lambda folder: decoding.write_in_order(plain, order, folder)
            ) as folder:
                self._laid_out[repeat] = _open_arrays(folder)
        return self._laid_out[repeat]

    def parts(self, fold: int) -> "tuple[Part, Part]":
        """Return the training and the test part of a fold, the rows outside and inside it: views of arrays.

        Fold numbers from the count on are of further partitions; see `Dataset.parts`.
        """
        assert self.manifest.folds is not None
        count = self.manifest.folds.count
        repeat, fold = divmod(fold, count)
        if repeat not in self._fold_orders:
            numbers = self._partition(repeat)
            self._fold_orders[repeat] = numbers, *decoding.fold_order(numbers, count)
        _, order, starts = self._fold_orders[repeat]
        # In this order a fold's rows are one stretch, and what follows it, around to where it starts, are all others.
        low = starts[fold]
        high = starts[fold + 1]
        test = slice(low, high)
        train = slice(high, high + self.rows - (high - low))
        return (
            Part(self, order[train], lambda: _sliced(self._in_fold_order(repeat), train)),
            Part(self, order[test], lambda: _sliced(self._in_fold_order(repeat), test)),
        )


class Part:
    """Some rows of a split; `rows` are their indices in it.

    `array(name)` is mapped, shared by all processes on the node, and private on write: a trial that changes it changes
    its own copy only. `read(name, rows)` reads some rows and maps nothing.
    """

    def __init__(
        self, split: Split, rows: Ints, arrays: Callable[[], dict[str, NDArray[Any]]]
    ) -> None:
        self.split = split
        self.rows = rows
        self._mapped = arrays

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The array columns of these rows, which are laid out on the first use."""
        return self._mapped()

    def __len__(self) -> int:
        return len(self.rows)

    def array(self, name: str) -> NDArray[Any]:
        """Return all rows of an array column, [n *shape], for example images uint8 [n h w c]; no copy is made.

        `DataError` lists the array columns where there is no such one.
        """
        if name not in self._arrays:
            hint = choose_from("array columns", list(self._arrays), name)
            raise DataError(
                f"split {self.split.name!r} of {self.split.manifest.name!r} has no array {name!r}; {hint}"
            )
        return self._arrays[name]

    def file(self, name: str) -> ColumnFile:
        """Return an array column of the whole split as a file; its rows of this part are `rows`.

        Images that stay encoded are decoded as they are read. `DataError` lists the columns where there is no such one.
        """
        if name not in self.split.files:
            hint = choose_from("array columns", list(self.split.files), name)
            raise DataError(
                f"split {self.split.name!r} of {self.split.manifest.name!r} has no array {name!r}; {hint}"
            )
        return self.split.files[name]

    def read(self, name: str, rows: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the rows of these indices of an array column, [len(rows) ...], in this order; 0 is this part's first.

        They are written to `out`, an array of this shape, where it is given.
        """
        return self.file(name).read(self.rows[rows], out)

    def blocks(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield all rows of an array column in order, at most 8 MiB of them at a time."""
        file = self.file(name)
        return (file.read(rows) for rows in file.blocks(self.rows))

    def once_per_node(self, what: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return an array that follows from this part's rows alone, computed by the first who asks and then cached.

        `what` names it, and with the rows is its key: two arrays of one part must have different names.
        """
        rows = hashlib.sha256(np.ascontiguousarray(self.rows).tobytes()).hexdigest()
        key = canonical.digest({"of": self.split.key, "rows": rows, "what": what}, 32)
        name = f"{self.split.manifest.name} ({what})"
        with cache.entry(
            key, name, lambda folder: np.save(folder / "values.npy", compute())
        ) as folder:
            values: NDArray[Any] = np.load(folder / "values.npy", allow_pickle=False)
        return values

    def ragged(self, name: str) -> Ragged:
        """Return an array column with several items a row, for example region features float16 [items 2048].

        `DataError` where there is no such column. The values are those of the whole split, mapped.
        """
        if f"{name}.start" not in self.split.table.column_names:
            raise DataError(
                f"split {self.split.name!r} has no column {name!r} of several items a row"
            )
        starts = self.split.table[f"{name}.start"].to_numpy()
        # A row of the split ends where the next one starts.
        ends = np.append(starts[1:], len(self.split.mapped[name]))
        return Ragged(self.split.mapped[name], starts[self.rows], (ends - starts)[self.rows])

    @property
    def labels(self) -> Ints:
        """Class indices [n] int64; `DataError` if the split has no labels."""
        return self.split.labels[self.rows]

    @property
    def labelled(self) -> bool:
        """Whether the rows have labels."""
        return "label" in self.split.table.column_names

    @property
    def grouping(self) -> dict[str, list[str]]:
        """The group of each row as {"group": [...]}, as `Report.items` takes it; {} where the data name none."""
        if GROUP in self.split.table.column_names:
            return {GROUP: self.column(GROUP).to_pylist()}
        return {}

    def column(self, name: str) -> pa.Array:
        """Return a column that is no array (text, numbers, lists), as an Arrow array of n values, one for each row.

        `DataError` lists the columns where there is no such one.
        """
        table = self.split.table
        if name not in table.column_names:
            raise DataError(
                f"split {self.split.name!r} of {self.split.manifest.name!r} has no column {name!r}; "
                + choose_from("columns", self.split.names, name)
            )
        column = table[name].combine_chunks()
        # A part of all rows in their order is the column itself, and needs no copy.
        is_whole = len(self.rows) == len(column) and bool((np.diff(self.rows) == 1).all())
        return column if is_whole else column.take(pa.array(self.rows))

    def batches(
        self, size: int, *, seed: int, epoch: int, drop_last: bool = False
    ) -> Iterator[Ints]:
        """Yield the row indices of this part, `size` at a time, in an epoch's order, which seed and epoch alone decide.

        The last batch may be smaller; with `drop_last` it is left out then.
        """
        order = shuffled(len(self), seed, epoch)
        # With `drop_last` no batch may start with fewer than `size` rows left.
        for start in range(0, len(order) - (size - 1 if drop_last else 0), size):
            yield order[start : start + size]


def shuffled(n: int, seed: int, epoch: int) -> Ints:
    """Return a permutation [n] of 0 to n - 1 that depends on seed and epoch alone, so on neither arm nor node."""
    return np.random.RandomState(
        np.random.MT19937(np.random.SeedSequence([seed, epoch]))
    ).permutation(n)


def _open_arrays(folder: Path) -> dict[str, NDArray[Any]]:
    """Return column -> array of the .npy files of an entry, mapped copy-on-write.

    Pages are shared until somebody writes, and torch takes the arrays without a warning.
    """
    arrays = {}
    for file in sorted(folder.glob("*.npy")):
        # What has no items cannot be mapped; only a small file may be so, and is looked into.
        is_small = file.stat().st_size < 4096
        empty = is_small and np.load(file, allow_pickle=False).size == 0
        mode: Any = None if empty else "c"
        arrays[file.stem] = np.asarray(np.load(file, mmap_mode=mode, allow_pickle=False))
    return arrays


def _sliced(arrays: dict[str, NDArray[Any]], rows: slice) -> dict[str, NDArray[Any]]:
    """Return column -> these rows of its array, as views."""
    return {name: array[rows] for name, array in arrays.items()}
