"""The layout of columns in Parquet: arrays as fixed-size binary, with dtype and shape in the field's metadata.

Every Parquet reader opens `fixed_size_binary`, and reads it as one contiguous block; a `fixed_size_list<float16>` takes
eight times as long to read. Bytes are little-endian and row-major.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data.manifest import REMEDY, ColumnSpec
from contrasweep.errors import DataError

TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view())
"""Types of texts. pandas writes the second one, Polars the second or the third."""
BYTES_TYPES = (pa.binary(), pa.large_binary(), pa.binary_view())
"""Types of bytes of any length."""


def spec(dtype: str, shape: Sequence[int], *, several: bool = False) -> ColumnSpec:
    """Return the description of an array column for the manifest: `{"dtype": dtype, "shape": [...]}`.

    `dtype` and `shape` are those of one item. Each row has one item, or with `several` a list of items.
    """
    plain: ColumnSpec = {"dtype": dtype, "shape": [int(size) for size in shape]}
    return {**plain, "list": True} if several else plain


def from_array(array: NDArray[Any]) -> pa.FixedSizeBinaryArray:
    """Return an array [n ...] as n fixed-size binary values, one for each row; a contiguous array is not copied."""
    flat = np.ascontiguousarray(array)
    width = flat.dtype.itemsize * int(np.prod(flat.shape[1:], dtype=np.int64))
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(flat), [None, pa.py_buffer(flat)]
    )


def from_ragged(items: Sequence[NDArray[Any]], dtype: str, shape: Sequence[int]) -> pa.ListArray:
    """Return a column whose row i is the list of the items in the array `items[i]`, each as fixed-size binary.

    An array has the shape [m *shape], with an m of its own: it gives a list of m values. `dtype` is that of the values,
    as in `float16`.
    """
    # List i has the values from offset i to offset i + 1.
    offsets = np.concatenate([[0], np.cumsum([len(item) for item in items])]).astype(np.int32)
    # The empty array gives the shape where there are no items.
    flat = np.concatenate([np.empty((0, *shape), dtype), *items]).astype(dtype)
    return pa.ListArray.from_arrays(pa.array(offsets), from_array(flat))


def to_array(column: pa.Array, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Return a column of n fixed-size binary values as an array [n *shape] of this `dtype`, a read-only view.

    The column has no nulls.
    """
    if len(column) == 0:
        return np.empty((0, *shape), dtype)
    # Buffer 1 has the values; those of a sliced column begin `offset` values into it.
    width = column.type.byte_width
    raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
    return raw.view(np.dtype(dtype).newbyteorder("<")).reshape(len(column), *shape)


def check_stored(column: pa.Array, spec: ColumnSpec, where: str) -> None:
    """Raise `DataError` where a column has another Arrow type than `spec` says, or has nulls; `where` names its shard.

    In a column of lists, the lists and the items in them are checked. Encoded images may have any number of bytes, and
    are not decoded here.
    """
    kind = column.type
    nulls = column.null_count
    if spec.get("list"):
        if not pa.types.is_list(kind):
            raise DataError(
                f"{where}: a column of several items per row is stored as {str(kind)[:50]}; {REMEDY}"
            )
        # A list may be null, and so may a value in it.
        nulls += column.values.null_count
        kind = kind.value_type
    width = np.dtype(spec["dtype"]).itemsize * int(np.prod(spec["shape"], dtype=np.int64))
    is_right = kind == pa.binary(width)
    if spec.get("encoding") == "image":
        is_right = pa.types.is_binary(kind)
    if nulls or not is_right:
        declared = f"{spec['dtype']} {list(spec['shape'])} of {width:,} bytes"
        raise DataError(
            f"{where}: {declared} is stored as {str(kind)[:50]} with {nulls:,} nulls; {REMEDY}"
        )


def table(columns: Mapping[str, object], specs: Mapping[str, ColumnSpec]) -> pa.Table:
    """Return a table with these columns: name -> an Arrow array, or a sequence from which one is made.

    Each array column has its spec (dtype, shape, encoding) in `specs`. The spec is written as text to the metadata of
    the column's field, so that other programs can decode its bytes.
    """
    arrays = []
    fields = []
    for name, values in columns.items():
        array = values if isinstance(values, pa.Array) else pa.array(values)
        metadata = None
        if name in specs:
            metadata = {key: str(value) for key, value in specs[name].items()}
            metadata["byte_order"] = "little"  # of all numbers that are stored
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata=metadata))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def plain(rows: pa.Table) -> pa.Table:
    """Return the table with one Arrow type for texts (`string`), one for bytes (`binary`) and one for lists (`list`).

    So `large_string` becomes `string`, and a dictionary of texts too, also inside lists. Bytes of a fixed length,
    numbers and booleans stay as they are. `DataError` for any other type, such as dates.
    """
    for i, field in enumerate(rows.schema):
        kind = _plain_type(field.type, field.name)
        if kind != field.type:
            rows = rows.set_column(i, field.with_type(kind), rows.column(i).cast(kind))
    return rows


def _plain_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the Arrow type that `plain` gives to a column of the type `kind`, such as `string` for `large_string`.

    `name` is the column's, for the error: `DataError` for a type that is neither numbers, texts, bytes nor lists of
    them.
    """
    if kind in TEXT_TYPES:
        return pa.string()
    if kind in BYTES_TYPES:
        return pa.binary()
    # Lists of every kind, and dictionaries, say of which type their values are.
    if hasattr(kind, "value_type"):
        value_type = _plain_type(kind.value_type, name)
        return value_type if pa.types.is_dictionary(kind) else pa.list_(value_type)
    is_number = pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)
    if is_number or pa.types.is_fixed_size_binary(kind):
        return kind
    raise DataError(
        f"the column {name!r} has the type {str(kind)[:50]}: make it numbers, texts, bytes or lists of these"
    )


def content_digest(rows: pa.Table) -> str:
    """Return the SHA-256 of a table, 64 hexadecimal digits: of the names, types and values of its columns, in order.

    Chunks, encodings and versions of libraries do not change it. `DataError` for types that `plain` does not allow.
    """
    rows = plain(rows)
    state = hashlib.sha256()
    for name in rows.column_names:
        column = rows.column(name)
        state.update(f"{name}\0{len(column)}\0".encode())
        if _is_bytes(column.type):
            # Chunk by chunk, because these are mostly images, which would take much memory to join.
            _feed_chunks(state, column.type, column.chunks)
        else:
            _feed(state, column.combine_chunks())
    return state.hexdigest()


def _is_bytes(kind: pa.DataType) -> bool:
    """Return whether `kind` is the type `string`, `binary` or binary of a fixed size."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    """Return for each of the n values of a column whether it is not null, [n]."""
    valid: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _feed_chunks(state: Any, kind: pa.DataType, chunks: Sequence[pa.Array]) -> None:
    """Feed a column of texts or bytes to the hash `state`: its type, which rows are null, the lengths, and all bytes.

    `chunks` are the pieces of the column in order. Where one piece ends and the next begins does not change the hash.
    Values of the type binary of a fixed size all have one length, so their lengths are left out.
    """
    state.update(f"{kind}\0".encode())
    # An empty array comes first, here and below, because a column without chunks could not be joined otherwise.
    valid = [np.zeros(0, bool), *(_valid(chunk) for chunk in chunks)]
    state.update(np.packbits(np.concatenate(valid)).tobytes())
    if pa.types.is_fixed_size_binary(kind):
        for chunk in chunks:
            filled = _filled(chunk, bytes(kind.byte_width))
            state.update(to_array(filled, "uint8", [kind.byte_width]).data)
        return
    empty = b"" if pa.types.is_binary(kind) else ""
    chunks = [_filled(chunk, empty) for chunk in chunks if len(chunk)]
    # Buffer 1 has where each text begins, and where the last one ends, four bytes each; those of a sliced column begin
    # `offset` values into it. Offsets depend on how the column is cut into chunks, so the lengths are hashed.
    offsets = [
        np.frombuffer(chunk.buffers()[1], np.int32, len(chunk) + 1, chunk.offset * 4)
        for chunk in chunks
    ]
    lengths = [np.zeros(0, "<i8"), *map(np.diff, offsets)]
    state.update(np.concatenate(lengths).astype("<i8").data)
    for chunk, chunk_offsets in zip(chunks, offsets, strict=True):
        first = chunk_offsets[0]
        end = chunk_offsets[-1]
        # Buffer 2 has the bytes of all values. A chunk of empty values may have none.
        if end > first:
            state.update(memoryview(chunk.buffers()[2])[first:end])


def _filled(column: pa.Array, value: object) -> pa.Array:
    """Return the column with `value` in place of each null, because Arrow does not define the bytes of a null."""
    return column.fill_null(value) if column.null_count else column


def _feed(state: Any, column: pa.Array) -> None:
    """Feed a column to the hash `state`: its type, which values are null, and the values.

    The column has a type that `plain` leaves as it is. For a column of lists, the hash gets the length of each list,
    and then the items of all lists, joined to one column.
    """
    kind = column.type
    if _is_bytes(kind):
        _feed_chunks(state, kind, [column])
    elif pa.types.is_list(kind):
        # Parquet renames the field inside a list type, so the type's text is not hashed.
        state.update(b"list\0")
        state.update(np.packbits(_valid(column)).tobytes())
        lengths = _filled(column.value_lengths(), 0).to_numpy(zero_copy_only=False)
        state.update(np.ascontiguousarray(lengths, "<i8").data)
        _feed(state, column.flatten())
    else:
        state.update(f"{kind}\0".encode())
        state.update(np.packbits(_valid(column)).tobytes())
        filled = _filled(column, False if pa.types.is_boolean(kind) else 0)
        values = filled.to_numpy(zero_copy_only=False)
        state.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data)
