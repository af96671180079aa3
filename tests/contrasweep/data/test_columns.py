"""Columns as arrays: tables hold what pyarrow makes of them, and digests do not change."""

import numpy as np
import pyarrow as pa
import pytest

from contrasweep.data.columns import content_digest, table

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + [
    "float32",
    "float64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_holds_what_pyarrow_makes_of_an_array(dtype):
    array = np.arange(20).astype(dtype)[::2]
    assert table({"x": array}, {})["x"].combine_chunks().equals(pa.array(array))


def test_masked_numbers_are_nulls_and_another_byte_order_is_refused():
    masked = np.ma.masked_array([1, 2, 3], mask=[False, True, False])
    assert table({"x": masked}, {})["x"].to_pylist() == [1, None, 3]
    with pytest.raises(pa.ArrowException, match=r"(?i)byte-swapped"):
        table({"x": np.arange(3, dtype=">i4")}, {})


def test_the_digest_of_known_rows_stays():
    """Datasets are named by it."""
    rows = pa.table(
        {
            "label": pa.array([3, None, 5], pa.int64()),
            "weight": pa.array([0.5, 1.5, 2.5]),
            "ready": pa.array([True, None, False]),
            "ids": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
            "name": ["a", None, "ccc"],
        }
    )
    assert content_digest(rows) == content_digest(
        pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    )
    assert (
        content_digest(rows) == "7e0d0f99a656b1c5a3ff4e11095391407153482a6a32e43fe103d9b7e321a969"
    )
