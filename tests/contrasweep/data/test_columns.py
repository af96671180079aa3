"""Columns as arrays: tables hold what pyarrow makes of them, and digests do not change."""

import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from contrasweep.data import open_dataset, stage
from contrasweep.data.columns import content_digest
from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import DATASETS
from contrasweep.data.manifest import ColumnSpec
from contrasweep.errors import DataError


def test_the_digest_of_known_rows_stays_however_parquet_was_written(tmp_path):
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
    same = [rows, pa.concat_tables([rows.slice(0, 1), rows.slice(1)])]
    for options in (
        {"compression": "zstd", "row_group_size": 2},
        {"compression": "none", "use_dictionary": False, "version": "1.0"},
    ):
        pq.write_table(rows, tmp_path / "t.parquet", **options)
        same.append(pq.read_table(tmp_path / "t.parquet"))
    assert {*map(content_digest, same)} == {
        "7e0d0f99a656b1c5a3ff4e11095391407153482a6a32e43fe103d9b7e321a969"
    }


@pytest.mark.parametrize(
    ("kind", "buffers"),
    [
        (pa.int8(), []),
        (pa.bool_(), []),
        (pa.binary(1), []),
        (pa.string(), [np.arange(3, dtype="<i4")]),
        (pa.binary(), [np.arange(3, dtype="<i4")]),
    ],
)
def test_what_lies_under_a_null_does_not_show(kind, buffers):
    valid, *values = map(pa.py_buffer, (b"\1", *buffers, b"\x33\x07"))
    nulls = pa.Array.from_buffers(kind, 2, [valid, *values])
    same = pa.array(nulls.to_pylist(), kind)
    assert content_digest(pa.table({"x": nulls})) == content_digest(pa.table({"x": same}))


_png = io.BytesIO()
Image.new("L", (2, 2)).save(_png, "PNG")
PLAIN = {
    "text": pa.array(["a", None, "bcd"]),
    "image": pa.array([_png.getvalue()] * 3),
    "words": pa.array([["x"], None, ["y", "z"]]),
    "box": pa.array([[1, 2], None, [3, 4]]),
    "kind": pa.array(["u", "v", "u"]),
}
OTHERS = {
    "text": [pa.large_string(), pa.string_view()],
    "image": [pa.large_binary(), pa.binary_view()],
    "words": [pa.large_list(pa.large_string()), pa.list_(pa.string_view())],
    "box": [pa.list_(pa.int64(), 2), pa.large_list(pa.int64())],
    "kind": [pa.dictionary(pa.int8(), pa.large_string()), pa.dictionary(pa.int32(), pa.string())],
}


@pytest.mark.parametrize("number", [0, 1])
def test_the_type_that_a_library_gives_texts_bytes_and_lists_does_not_show(
    number, tmp_path, monkeypatch
):
    others = {name: PLAIN[name].cast(kinds[number]) for name, kinds in OTHERS.items()}
    specs = {"image": ColumnSpec(dtype="uint8", shape=[2, 2, 1], encoding="image")}
    manifests = []
    for rows in (PLAIN, others):
        content = Content("mine", {"train": [pa.table(rows)]}, columns=specs)
        importer = Importer(lambda source, settings, content=content: content, "", "")
        monkeypatch.setitem(DATASETS, "mine", importer)
        manifests.append(stage("mine", str(tmp_path / str(len(manifests)))))
    assert manifests[0].digest == manifests[1].digest
    part = open_dataset(manifests[1]).split("train")
    for name in ("text", "words", "box", "kind"):
        assert part.column(name).to_pylist() == PLAIN[name].to_pylist()
    assert part.array("image").shape == (3, 2, 2, 1)


@pytest.mark.parametrize(
    "values",
    [pa.nulls(2), pa.array([{"a": 1}]), pa.array([0], pa.date32()), pa.array([Decimal(1)])],
)
def test_a_column_without_a_digest_is_named(values):
    with pytest.raises(DataError, match=r"the column 'made' has the type .*: make it numbers"):
        content_digest(pa.table({"made": values}))
