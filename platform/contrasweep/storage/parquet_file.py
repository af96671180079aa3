"""The one way in which Parquet files of a storage are written and read: with page checksums, and checked columns.

The checksums cover the values. A damaged footer cannot be read, does not fit the values, or has two schemas whose names
or types of columns differ.
"""

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contrasweep.errors import BrokenFileError
from contrasweep.storage.names import check_label

# The most rows, values, columns and bytes of a table that is read: a forged file may state any size.
MAX_ROWS = 50_000_000
MAX_VALUES = 1_000_000_000
MAX_COLUMNS = 10_000
MAX_BYTES = 4 * 2**30
SMALL_BYTES = 64 * 2**10
"""A smaller table is written without compression, dictionaries and statistics. With them a dozen rows of thirty columns
take four times as long to write and to read, and the file is larger."""

Check = Callable[[pa.DataType], bool]
"""A function that returns whether a column may have this type."""


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds numbers or truth values; also one that is null in every row."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def is_value(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text (`is_text`) or numbers (`is_number`)."""
    return is_text(kind) or is_number(kind)


def encode_table(table: pa.Table) -> bytes:
    """Return the content of a Parquet file with `table`; a small table is not compressed (`SMALL_BYTES`)."""
    sink = io.BytesIO()
    small = table.nbytes <= SMALL_BYTES
    pq.write_table(
        table,
        sink,
        compression="none" if small else "zstd",
        use_dictionary=not small,
        write_statistics=not small,
        write_page_checksum=True,
    )
    return sink.getvalue()


def decode_table(
    data: bytes,
    file: str,
    remedy: str,
    columns: Mapping[str, Check],
    others: Check | None,
    max_values: int = MAX_VALUES,
) -> pa.Table:
    """Return the table in the content of a Parquet file.

    Args:
        data: The content.
        file: The file's name, for errors.
        remedy: What to do about a broken file, for errors.
        columns: The columns that the table must have, each with a check of its type.
        others: A check of the type of further columns; None: the table must have no further ones.
        max_values: The most values that the table may have in all its columns.

    Raises:
        BrokenFileError: The file is damaged, too large, or has other columns.
    """
    try:
        # The footer is checked before any value is decoded.
        opened = opened_table(pa.BufferReader(data), max_values)
        check_columns(opened.schema_arrow, columns, others)
        _check_schema(opened)
        return read_bounded(pa.BufferReader(data), opened)
    except (pa.ArrowException, ValueError, OSError, KeyError, OverflowError, MemoryError) as error:
        raise BrokenFileError(file, str(error) or "it is no Parquet file", remedy) from None


def opened_table(source: Any, max_values: int = MAX_VALUES) -> pq.ParquetFile:
    """Open a Parquet file, given as a path or an open file, and read its footer alone.

    Raises `ValueError` where it has more than `max_values` values in all its columns, or too many bytes or columns.
    """
    opened = pq.ParquetFile(source, thrift_string_size_limit=2**27, page_checksum_verification=True)
    _check_size(opened.metadata, max_values)
    return opened


def read_bounded(source: Any, opened: pq.ParquetFile) -> pa.Table:
    """Return the table of a Parquet file that `opened_table` has opened.

    `source` is the path or open file that `opened_table` was given; the file is read from it again. Raises `ValueError`
    where the texts of all rows together have more than `MAX_BYTES`.
    """
    schema = opened.schema_arrow
    texts = [
        name
        for name, kind in zip(schema.names, schema.types, strict=True)
        if pa.types.is_large_binary(kind) or is_text(kind)
    ]
    # A file of a few bytes can have the same long text in any number of rows. So columns of texts are first read as
    # dictionaries, which have each different text once, and the size of all rows is computed from these.
    if texts:
        opened = pq.ParquetFile(
            source, metadata=opened.metadata, read_dictionary=texts, page_checksum_verification=True
        )
    table = opened.read(use_threads=False)
    size = 0  # bytes of the texts of all rows
    for name in texts:
        for chunk in table[name].chunks:
            if isinstance(chunk, pa.DictionaryArray):
                lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                size += pc.sum(lengths).as_py() or 0
    if size > MAX_BYTES:
        raise ValueError(f"its texts have {size:,} bytes, above the limit")
    return table.cast(schema) if texts else table


def _check_size(about: pq.FileMetaData, max_values: int) -> None:
    """Raise `ValueError` for a table with too many rows, columns, values or bytes, by what its footer says."""
    values = about.num_rows * max(1, about.num_columns)
    # Bytes without compression.
    size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if (
        about.num_rows > MAX_ROWS
        or about.num_columns > MAX_COLUMNS
        or values > max_values
        or size > MAX_BYTES
    ):
        raise ValueError(
            f"it has {about.num_rows:,} rows of {about.num_columns:,} columns in {size:,} bytes, above the limit"
        )


def check_columns(schema: pa.Schema, columns: Mapping[str, Check], others: Check | None) -> None:
    """Raise `ValueError` where a column is missing, is there twice, or has a type that it may not have.

    `columns` and `others` are as in `decode_table`.
    """
    for name in columns:
        if schema.names.count(name) != 1:
            raise ValueError(f"it has no column {name!r}, or several")
    if len(set(schema.names)) < len(schema.names):
        raise ValueError("two of its columns have one name")
    for name, kind in zip(schema.names, schema.types, strict=True):
        check_label(name)
        check = columns.get(name, others)
        if check is None or not check(kind):
            raise ValueError(f"its column {name!r} is of type {str(kind)[:50]}")


def _check_schema(opened: pq.ParquetFile) -> None:
    """Raise `ValueError` where the names or types of a file's columns were damaged.

    The checksums of a Parquet file do not cover these. But the file states them twice, in Parquet's own schema and in
    that of Arrow in the metadata; the two are compared.
    """
    text = (opened.metadata.metadata or {}).get(b"ARROW:schema", b"")
    stated = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))
    if stated != opened.schema_arrow:
        raise ValueError("the names or types of its columns are damaged")
