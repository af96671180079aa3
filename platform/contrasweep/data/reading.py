"""Reading a staged dataset: the parts of a fold, as arrays that are mapped from the node's decoded copy."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache as cache_result
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from contrasweep import canonical
from contrasweep.data import cache, decoding, folds
from contrasweep.data.column_files import Array, ArrayFile, ColumnFile, EncodedFile, Ints
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError, choose_from

Arrays = dict[str, Array]
GROUP = "group"
T = TypeVar("T")


def open_dataset(manifest: Manifest) -> "Dataset":
    """Return the dataset that `manifest` describes.

    Its shards are fetched and decoded, once per node, when a part of it is first asked for. Then a `DataError` names a
    shard that is missing, or that differs from the manifest. Raises `SpecError` for a name or a record's reference.
    """
    if not isinstance(manifest, Manifest):
        # A record refers to a dataset by an object with its name.
        name = getattr(manifest, "name", manifest)
        hint = f"open_dataset(contrasweep.data.resolve({name!r}, folds=..., storage=...)), with the study's folds"
        raise SpecError("a dataset is opened by its manifest", place="open_dataset", hint=hint)
    return Dataset(manifest)


@dataclass(frozen=True)
class Ragged:
    """n rows with several items each: those of row i are `values[starts[i] : starts[i] + lengths[i]]`.

    `values` [items ...] may have items of other rows too; `starts` and `lengths` are [n].
    """

    values: Array
    starts: Ints
    lengths: Ints

    def __getitem__(self, row: int) -> Array:
        """Return the items of a row, [m ...]: a view."""
        start = self.starts[row]
        return self.values[start : start + self.lengths[row]]


class Dataset:
    """A staged dataset, which gives its splits, and the training and test parts of its folds."""

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
        """Return the training part and the test part of a fold.

        The test part are the rows of the split `train` that are in the fold, the training part its other rows. With
        `fold` None, the parts are the splits `train` and `test`.

        The folds of repeats are numbered on. With 5 folds, 0 to 4 are the folds of the partition, and 5 to 9 those of
        its first repeat, which has another seed. `SpecError` where there is no such fold.
        """
        if fold is None:
            return self.split("train"), self.split("test")
        count = self.manifest.folds.count if self.manifest.folds else 0
        if not count or fold < 0:
            folds = f"folds from 0, {count} a partition"
            if not count:
                folds = "no folds: resolve it with folds=N"
            raise SpecError(f"dataset {self.manifest.name!r} has {folds}", place="fold", value=fold)
        return self._split("train").parts(fold)

    def _split(self, name: str) -> "Split":
        """Return the split `name`, which is fetched and decoded when it is first asked for, unless the node has it.

        `DataError`, with the splits that have rows, where it is none of them.
        """
        if not self.manifest.rows(name):
            splits = [split for split in self.manifest.splits if self.manifest.rows(split)]
            hint = choose_from("splits", splits, name)
            raise DataError(f"dataset {self.manifest.name!r} has no split {name!r}; {hint}")
        if name not in self._splits:
            self._splits[name] = Split(self.manifest, name)
        return self._splits[name]


class Split:
    """One split in the node's cache; it is fetched and decoded when the object is made, unless the node has it.

    `key` is the key of its entry in the cache. `mapped` has the decoded array columns, `files` all array columns as
    files, and `table` all other columns. `encoded` are the names of image columns that stay encoded.
    """

    def __init__(self, manifest: Manifest, name: str) -> None:
        self.manifest = manifest
        self.name = name
        self.rows = manifest.rows(name)
        self._partitions: dict[int, Ints] = {}  # repeat of the partition -> fold of each row
        # Repeat -> arrays in the order of its folds.
        self._laid_out: dict[int, Arrays] = {}
        # The key depends on all that decides the content of the entry, and not on where the data come from.
        content = [[shard.rows, shard.content or shard.sha256] for shard in manifest.splits[name]]
        self.encoded = decoding.stays_encoded(manifest, name, cache.decoded_limit_bytes())
        identity = {"version": decoding.ENTRY_VERSION, "rows": content, "columns": manifest.columns}
        if self.encoded:
            identity["encoded"] = self.encoded
        self.key = canonical.digest(identity, 32)
        what = f"{manifest.name} ({name})"

        def build(folder: Path) -> None:
            decoding.decode_split(manifest, name, folder, self.encoded)

        with cache.entry(self.key, what, build) as folder:
            self.mapped = _open_arrays(folder)
            self.files: dict[str, ColumnFile] = {}
            for column in self.mapped:
                self.files[column] = ArrayFile(folder / f"{column}.npy")
            for column in self.encoded:
                self.files[column] = EncodedFile(folder, column, manifest.columns[column])
            with pa.memory_map(str(folder / decoding.ROWS_FILE)) as file:
                self.table = pa.ipc.open_file(file).read_all()

    @cached_property
    def arrays(self) -> Arrays:
        """All array columns, mapped. Encoded images are decoded for this, once per node, to another entry of the cache.

        `DataError` where an encoded image is broken, or images differ in size.
        """
        if not self.encoded:
            return self.mapped
        files = {name: self.files[name] for name in self.encoded}
        order = np.arange(self.rows)
        key = canonical.digest({"of": self.key, "decoded": self.encoded}, 32)
        label = f"{self.manifest.name} ({self.name}, decoded)"
        with cache.entry(
            key, label, lambda folder: decoding.write_in_order(files, order, folder)
        ) as folder:
            return self.mapped | _open_arrays(folder)

    @cached_property
    def labels(self) -> Ints:
        """The class index of every row, [n] int64; `DataError` if the split has no labels."""
        if "label" not in self.table.column_names:
            raise DataError(
                f"split {self.name!r} of {self.manifest.name!r} has no labels; columns: {self.names}"
            )
        return np.asarray(self.table["label"].to_numpy(), np.int64)

    @property
    def names(self) -> list[str]:
        """The names of all columns, sorted: array columns too, but no helper columns such as `features.start`."""
        plain = {name for name in self.table.column_names if "." not in name}
        return sorted(plain.union(self.manifest.columns))

    def _partition(self, repeat: int) -> Ints:
        """Return the fold of every row, [n], in a repeat of the partition; 0 is the partition itself.

        Each repeat assigns the rows by the same rule with another seed. `SpecError` where the rule allows no repeat, as
        in `folds.repeated`.
        """
        assert self.manifest.folds is not None
        columns = set(self.table.column_names)
        groups = self.table[GROUP].to_pylist() if GROUP in columns else None
        own_folds = self.table["fold"].to_numpy() if "fold" in columns else None
        # Rows without labels count as rows of one class.
        labels = self.labels if "label" in columns else np.zeros(self.rows, np.int64)
        return folds.repeated(labels, groups, own_folds, self.manifest.folds, repeat)

    def _in_fold_order(self, repeat: int) -> Arrays:
        """Return the array columns with rows in the order of `decoding.fold_order`, for this repeat of the partition.

        They are mapped from an entry of the node's cache, which is written once per node. Columns with several items
        per row are left out. Only the first call of `Part.array` needs this, because `Part.read` reads rows without it.
        """
        if repeat not in self._laid_out:
            assert self.manifest.folds is not None
            assigned = self._partitions[repeat]
            order, _ = decoding.fold_order(assigned, self.manifest.folds.count)
            # Columns with several items per row are read by their starts, in any order.
            plain = {
                name: file
                for name, file in self.files.items()
                if not self.manifest.columns[name].get("list")
            }
            key = canonical.digest({"of": self.key, "folds": assigned.tolist()}, 32)
            label = f"{self.manifest.name} ({self.manifest.folds.count} folds)"
            with cache.entry(
                key, label, lambda folder: decoding.write_in_order(plain, order, folder)
            ) as folder:
                self._laid_out[repeat] = _open_arrays(folder)
        return self._laid_out[repeat]

    def parts(self, fold: int) -> "tuple[Part, Part]":
        """Return the training part and the test part of a fold: the rows outside the fold, and those inside it.

        Their arrays are views, so that no rows are copied. The folds of repeats are numbered on; see `Dataset.parts`.
        """
        assert self.manifest.folds is not None
        count = self.manifest.folds.count
        repeat, fold = divmod(fold, count)
        if repeat not in self._partitions:
            self._partitions[repeat] = self._partition(repeat)
        order, starts = decoding.fold_order(self._partitions[repeat], count)
        low = starts[fold]
        high = starts[fold + 1]
        test = slice(low, high)
        # Behind the last fold the order begins anew. So the rows of all other folds follow this fold, and end where it
        # would come again: n rows behind its start.
        train = slice(high, low + self.rows)
        return (
            Part(self, order[train], lambda: _sliced(self._in_fold_order(repeat), train)),
            Part(self, order[test], lambda: _sliced(self._in_fold_order(repeat), test)),
        )


class Part:
    """A part of a split, such as the training rows of a fold. `rows` are the indices of its rows in the split.

    `array(name)` is mapped into memory, and shared by all processes of the node. A trial that writes to it changes its
    own copy only. `read(name, rows)` reads some rows from the file and maps nothing.
    """

    def __init__(self, split: Split, rows: Ints, arrays: Callable[[], Arrays]) -> None:
        self.split = split
        self.rows = rows
        # A function without arguments that returns column -> array of these rows. It is called when an array is first
        # asked for, because it may write files in the node's cache.
        self._arrays = cache_result(arrays)

    def __len__(self) -> int:
        return len(self.rows)

    def array(self, name: str) -> Array:
        """Return all rows of an array column, [n *shape], for example images uint8 [n h w c], without a copy.

        `DataError`, with the names of the array columns, where there is no such column.
        """
        return self._named(self._arrays(), name)

    def file(self, name: str) -> ColumnFile:
        """Return an array column of the whole split as a file, also with rows that are not in this part.

        The rows of this part are those with the indices `rows`. Images that stay encoded are decoded when they are
        read. `DataError`, with the names of the array columns, where there is no such column.
        """
        return self._named(self.split.files, name)

    def _named(self, columns: Mapping[str, T], name: str) -> T:
        """Return the entry `name` of `columns`, which are array columns by name, or something made of each.

        `DataError`, with the names of the array columns, where there is none.
        """
        if name not in columns:
            hint = choose_from("array columns", columns, name)
            if name in self.split.table.column_names:
                hint = f"`{'labels' if name == 'label' else f'column({name!r})'}` gives it"
            raise DataError(
                f"split {self.split.name!r} of {self.split.manifest.name!r} has no array {name!r}; {hint}"
            )
        return columns[name]

    def read(self, name: str, rows: Ints, out: Array | None = None) -> Array:
        """Return these rows of an array column, [len(rows) ...], in this order; index 0 is the first row of this part.

        If `out` is given, an array of this shape and of the column's dtype, they are written to it. `DataError` as for
        `file`.
        """
        return self.file(name).read(self.rows[rows], out)

    def blocks(self, name: str) -> Iterator[Array]:
        """Yield all rows of an array column in order, in arrays of at most 8 MiB; a single row may have more."""
        file = self.file(name)
        return (file.read(rows) for rows in file.blocks(self.rows))

    def once_per_node(self, what: str, compute: Callable[[], Array]) -> Array:
        """Return an array that depends on this part's rows alone: `compute` is called once per node, and then cached.

        `what` names the array in messages. With the rows it is also the key in the cache, so that two arrays of a part
        must have different names.
        """
        rows = hashlib.sha256(np.ascontiguousarray(self.rows).tobytes()).hexdigest()
        key = canonical.digest({"of": self.split.key, "rows": rows, "what": what}, 32)
        name = f"{self.split.manifest.name} ({what})"
        with cache.entry(
            key, name, lambda folder: np.save(folder / "values.npy", compute())
        ) as folder:
            values: Array = np.load(folder / "values.npy", allow_pickle=False)
        return values

    def ragged(self, name: str) -> Ragged:
        """Return an array column with several items per row, for example region features float16 [items 2048].

        The items are mapped. `DataError` where there is no such column.
        """
        if f"{name}.start" not in self.split.table.column_names:
            raise DataError(
                f"split {self.split.name!r} has no column {name!r} of several items per row"
            )
        starts = self.split.table[f"{name}.start"].to_numpy()
        # The items of a row end where those of the next row start.
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
        """The group of each row as {"group": [...]}, to be joined with the scores in `Report.items`.

        It is {} where rows have no groups.
        """
        if GROUP in self.split.table.column_names:
            return {GROUP: self.column(GROUP).to_pylist()}
        return {}

    def column(self, name: str) -> pa.Array:
        """Return a column that is no array column (text, numbers, lists) as an Arrow array with n values.

        `DataError`, with the names of the columns, where there is no such column.
        """
        table = self.split.table
        if name not in table.column_names:
            raise DataError(
                f"split {self.split.name!r} of {self.split.manifest.name!r} has no column {name!r}; "
                + choose_from("columns", self.split.names, name)
            )
        return table[name].combine_chunks().take(pa.array(self.rows))

    def batches(
        self, size: int, *, seed: int, epoch: int, drop_last: bool = False
    ) -> Iterator[Ints]:
        """Yield the row indices of this part, `size` at a time, in an order that seed and epoch alone decide.

        With `drop_last`, a last batch that is smaller than `size` is left out.
        """
        order = shuffled(len(self), seed, epoch)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            if len(batch) == size or not drop_last:
                yield batch


def shuffled(n: int, seed: int, epoch: int) -> Ints:
    """Return a permutation [n] of 0 to n - 1 that depends on seed and epoch alone: it is the same for all arms."""
    return np.random.RandomState(
        np.random.MT19937(np.random.SeedSequence([seed, epoch]))
    ).permutation(n)


def _open_arrays(folder: Path) -> Arrays:
    """Return column -> array of the .npy files of an entry, mapped copy-on-write.

    So processes share pages until one writes, and torch takes the arrays without a warning.
    """
    arrays = {}
    for file in sorted(folder.glob("*.npy")):
        try:
            arrays[file.stem] = np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
        except ValueError:  # an array without items cannot be mapped
            arrays[file.stem] = np.load(file, allow_pickle=False)
    return arrays


def _sliced(arrays: Arrays, rows: slice) -> Arrays:
    """Return column -> the given slice of its rows, as a view, for each of `arrays`."""
    return {name: array[rows] for name, array in arrays.items()}
