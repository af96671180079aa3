"""The layout of columns in Parquet: arrays as fixed-size binary, with dtype and shape in the field's metadata.

`fixed_size_binary` is what every Parquet reader opens and what reads back as one contiguous block; a
`fixed_size_list<float16>` reads eight times slower. Byte order is little-endian, row-major.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data.manifest import REMEDY, ColumnSpec
from contrasweep.errors import DataError


def spec(dtype: str, shape: Sequence[int], *, several: bool = False) -> ColumnSpec:
    """Return the manifest's entry of an array column: NumPy dtype, shape of an item, whether a row has several."""
    plain: ColumnSpec = {"dtype": dtype, "shape": [int(size) for size in shape]}
    return {**plain, "list": True} if several else plain


def from_array(array: NDArray[Any]) -> pa.FixedSizeBinaryArray:
    """Return an array [n ...] as n fixed-size binary values, one a row; no copy of a contiguous one."""
    flat = np.ascontiguousarray(array)
    width = flat.dtype.itemsize * int(np.prod(flat.shape[1:], dtype=np.int64))
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(flat), [None, pa.py_buffer(flat)]
    )


def from_ragged(items: Sequence[NDArray[Any]], dtype: str, shape: Sequence[int]) -> pa.ListArray:
    """Return `items`, each [m *shape] with its own m, as a column list<fixed_size_binary>, a list for each."""
    # List i has the values from offset i to offset i + 1; the empty array keeps the shape where there are no items.
    offsets = np.concatenate([[0], np.cumsum([len(item) for item in items])]).astype(np.int32)
    flat = np.concatenate([np.empty((0, *shape), dtype), *items]).astype(dtype)
    return pa.ListArray.from_arrays(pa.array(offsets), from_array(flat))


def to_array(column: pa.Array, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Return n fixed-size binary values without nulls as an array [n *shape]: a read-only view, no copy."""
    if len(column) == 0:
        return np.empty((0, *shape), dtype)
    # Buffer 1 has the values; a column that was sliced begins `offset` values into it.
    width = column.type.byte_width
    raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
    return raw.view(np.dtype(dtype).newbyteorder("<")).reshape(len(column), *shape)


def check_stored(column: pa.Array, spec: ColumnSpec, where: str) -> None:
    """Raise `DataError` where a column of the shard `where` differs from its spec, or has nulls.

    A list's values are checked; encoded images are bytes of any length, which are not decoded here.
    """
    kind = column.type
    if spec.get("list"):
        if not pa.types.is_list(kind):
            raise DataError(
                f"{where}: a column of several items a row is stored as {str(kind)[:50]}; {REMEDY}"
            )
        # A list may be null, and so may one of its values.
        nulls = column.null_count + column.values.null_count
        kind = kind.value_type
    else:
        nulls = column.null_count
    # The bytes of an item; an encoded image has as many as it has.
    width = np.dtype(spec["dtype"]).itemsize * int(np.prod(spec["shape"], dtype=np.int64))
    fits = pa.types.is_binary(kind) if spec.get("encoding") == "image" else kind == pa.binary(width)
    if nulls or not fits:
        declared = f"{spec['dtype']} {list(spec['shape'])} of {width:,} bytes"
        raise DataError(
            f"{where}: {declared} is stored as {str(kind)[:50]} with {nulls:,} nulls; {REMEDY}"
        )


def table(columns: Mapping[str, object], specs: Mapping[str, ColumnSpec]) -> pa.Table:
    """Return a table of `columns`, name -> Arrow array or plain values.

    Array columns, those that `specs` names, carry their spec as text in the metadata of their field.
    """
    arrays = {
        name: value if isinstance(value, pa.Array) else pa.array(value)
        for name, value in columns.items()
    }
    stored = {
        name: {k: str(v) for k, v in spec.items()} | {"byte_order": "little"}
        for name, spec in specs.items()
    }
    fields = [
        pa.field(name, array.type, metadata=stored.get(name)) for name, array in arrays.items()
    ]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def content_digest(rows: pa.Table) -> str:
    """Return the SHA-256 of a table's names, types and values, in their order, as 64 hexadecimal digits.

    Chunks, encodings and library versions make no difference.
    """
    state = hashlib.sha256()
    for name in rows.column_names:
        column = rows.column(name)
        state.update(f"{name}\0{len(column)}\0".encode())
        # These are images, mostly: nearly all of a table, so they are not copied into one piece.
        if _is_bytes(column.type):
            _feed_chunks(state, column.type, column.chunks)
        else:
            _feed(
                state,
                pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type),
            )
    return state.hexdigest()


def _is_bytes(kind: pa.DataType) -> bool:
    """Whether values are texts or bytes, of any length or of one."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values [n] are not null."""
    valid: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _feed_chunks(state: Any, kind: pa.DataType, chunks: Sequence[pa.Array]) -> None:
    """Feed a column of texts or bytes to the hash `state`: its type, which rows are null, lengths, and all bytes.

    Values of one length have no lengths. How the column is cut into `chunks` makes no difference.
    """
    state.update(f"{kind}\0".encode())
    # Which rows are null comes first; the bytes of a null row are then those of an empty or zero value.
    valid = [_valid(chunk) for chunk in chunks]
    state.update(np.packbits(np.concatenate(valid) if valid else np.zeros(0, bool)).tobytes())
    if pa.types.is_fixed_size_binary(kind):
        for chunk in chunks:
            filled = _filled(chunk, bytes(kind.byte_width))
            state.update(to_array(filled, "uint8", [kind.byte_width]).data)
        return
    # Of values of any length, buffer 1 has where each begins in buffer 2, which has the bytes of all.
    nothing = b"" if pa.types.is_binary(kind) else ""
    chunks = [_filled(chunk, nothing) for chunk in chunks]
    # Lengths alone are hashed, because offsets depend on how the column was cut into chunks.
    offsets = [
        np.frombuffer(c.buffers()[1], np.int32, len(c) + 1, c.offset * 4) for c in chunks if len(c)
    ]
    state.update(
        np.concatenate([np.zeros(0, "<i8"), *(np.diff(o) for o in offsets)]).astype("<i8").data
    )
    for chunk, of_chunk in zip((c for c in chunks if len(c)), offsets, strict=True):
        if of_chunk[-1] > of_chunk[0]:
            state.update(memoryview(chunk.buffers()[2])[of_chunk[0] : of_chunk[-1]])


def _filled(column: pa.Array, value: object) -> pa.Array:
    """Return a column with `value` in the place of nulls, whose bytes may be anything."""
    return column.fill_null(value) if column.null_count else column


def _feed(state: Any, column: pa.Array) -> None:
    """Feed a column of any type to the hash `state`: its type, which values are null, and the values.

    Of lists, the length of each and then all their values as a column. Encodings make no difference.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _feed(state, column.dictionary_decode())
    if _is_bytes(kind):
        return _feed_chunks(state, kind, [column])
    # Parquet renames the field inside a list type, so its text is no part of the content.
    state.update(b"list\0" if pa.types.is_list(kind) else f"{kind}\0".encode())
    state.update(np.packbits(_valid(column)).tobytes())
    if pa.types.is_list(kind):
        lengths = _filled(column.value_lengths(), 0).to_numpy(zero_copy_only=False)
        state.update(np.ascontiguousarray(lengths, "<i8").data)
        return _feed(state, column.flatten())
    filled = _filled(column, False if pa.types.is_boolean(kind) else 0)
    values = filled.to_numpy(zero_copy_only=False)
    state.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data)
    return None
