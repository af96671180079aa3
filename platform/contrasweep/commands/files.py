"""The files that training programs leave their metrics in, as rows: metric -> number, mostly with a step.

CSV, JSON and JSON lines (Lightning's `metrics.csv`, Hugging Face's `trainer_state.json`), TensorBoard's event files and
W&B's offline runs. A file is read as far as it is whole, since its program may be writing it.
"""

import csv
import io
import itertools
import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from contrasweep.errors import SpecError

KNOWN_FILES = {
    "a metrics.csv": ("metrics.csv",),
    "Hugging Face's trainer_state.json or all_results.json": (
        "trainer_state.json",
        "all_results.json",
    ),
    "TensorBoard's event files": ("events.out.tfevents.*",),
    "a W&B run": ("run-*.wandb",),
}
"""Kinds of files that are found without being named: the kind, in words -> patterns of its files' names."""
STEP_NAMES = ("step", "global_step", "_step", "trainer/global_step", "iteration", "epoch")
"""Names that a step may have in a row, the most telling first: of several in a row the first one counts."""
READABLE_SUFFIXES = ("", ".csv", ".json", ".jsonl", ".txt", ".wandb")
"""Suffixes of files that can be read; the first, "", is that of folders."""
CHECKPOINT = "checkpoint"
"""The name that the folder of a checkpoint has in a row."""
Values = dict[str, Any]
"""A row as a file has it, name -> value; values may be other things than numbers."""


def read(file: Path) -> Iterator[Values]:
    """Return the rows of a file, as far as it is whole; `SpecError` where it is of no kind that is known.

    The kind is told by the name: `.tfevents.` in it, or its suffix; any other known suffix is JSON.
    """
    # Without "", the suffix of folders.
    if ".tfevents." not in file.name and file.suffix not in READABLE_SUFFIXES[1:]:
        rule = "a file of metrics is CSV, JSON, JSON lines, TensorBoard's or W&B's, by its name"
        raise SpecError(rule, place="metrics", value=file.name)
    kinds = {".csv": _csv, ".wandb": _wandb}
    kind = _events if ".tfevents." in file.name else kinds.get(file.suffix, _json)
    return kind(file.read_bytes())


def _csv(data: bytes) -> Iterator[Values]:
    """Yield the rows of a CSV file without their empty cells.

    Columns are separated by `;` where the head has more of these than commas, else by commas.
    """
    # A byte-order mark, as Excel writes it, is no part of the first name.
    text = data.decode("utf-8-sig", "replace")
    head = text.partition("\n")[0]
    delimiter = ";" if head.count(";") > head.count(",") else ","
    for row in csv.DictReader(io.StringIO(text), delimiter=delimiter):
        yield values(row.items())


def values(texts: Iterable[tuple[str | None, Any]]) -> Values:
    """Return name -> value for a row of a table whose entries are texts: `loss` and `0.5` give {"loss": 0.5}.

    Entries without a name or a text are left out. The entry `checkpoint` stays a text: it names a folder.
    """
    return {
        name.strip(): value.strip() if name.strip() == CHECKPOINT else number(value)
        for name, value in texts
        if name and value
    }


def number(text: str) -> float | str:
    """Return the number that Python reads in a text, also `nan` and `inf`; any other text is returned unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def _json(data: bytes) -> Iterator[Values]:
    """Yield the rows of a JSON file: a list, a mapping with `log_history` (Hugging Face), one row, or lines of JSON.

    A line that is no JSON, as one that is half written, is left out, and so is a row that is no mapping.
    """
    try:
        content = json.loads(data)
    except ValueError:  # lines of JSON, or half of it is written
        lines = data.splitlines()
        # A single line is what was just tried: this function would call itself for ever.
        if len(lines) > 1:
            for line in lines:
                yield from _json(line)
        return
    history = content.get("log_history", content) if isinstance(content, dict) else content
    rows = history if isinstance(history, list) else [history]
    yield from (row for row in rows if isinstance(row, dict))


def _events(data: bytes) -> Iterator[Values]:
    """Yield the scalars of an event file of TensorBoard by step, up to the first record that is not whole.

    A record is a length (8 bytes), its checksum (4), a message `Event` of that length, and its checksum (4). Checksums
    are not compared. Other events than scalars give no row.
    """
    place = 0
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        event = data[place + 12 : place + 12 + length]
        place = place + 16 + length
        if place > len(data):
            return
        step = 0
        values = []
        # Fields of `Event` by number: 2 is the step, 5 the summary, whose fields 1 are values.
        for number, value in _fields(event):
            if number == 2:
                step = value
            elif number == 5:
                values += [inner for inner_number, inner in _fields(value) if inner_number == 1]
        # `_scalar` gives None for a value that is no scalar.
        row = dict(filter(None, map(_scalar, values)))
        if row:
            yield {"step": step, **row}


def _scalar(value: bytes) -> tuple[str, float] | None:
    """Return tag and number of a TensorBoard value, from its protocol buffer; None where it is no single float.

    Fields by number: 1 is the tag, 2 a plain float, 8 a tensor. In a tensor 1 is the type (1: float), 4 its content as
    bytes, 5 its floats.
    """
    fields = dict(_fields(value))
    number = fields.get(2)  # a plain scalar; else a tensor with one float
    if number is None and 8 in fields:
        tensor = dict(_fields(fields[8]))
        number = tensor.get(5, tensor.get(4)) if tensor.get(1) == 1 else None
    if number is None or len(number) != 4:
        return None
    return fields[1].decode(), struct.unpack("<f", number)[0]


def _wandb(data: bytes) -> Iterator[Values]:
    """Yield a row for each step of the history of a W&B run, then one with its summary; `data` is the file of the run.

    The file is a log of protobuf messages `Record` in the format of LevelDB. Their field 2 is a step of the history, 3
    the summary. In both the fields 1 are items.
    """
    summary: Values = {}
    for record in _leveldb(data):
        for number, value in _fields(record):
            if number == 2:
                # Field 2 of a row is the step, whose field 1 is the number; a number of 0 is left out.
                history = dict(_fields(value))
                step = dict(_fields(history.get(2, b"")))
                yield {"step": step.get(1, 0), **_items(value)}
            elif number == 3:
                summary |= _items(value)
    if summary:  # what the script has put there without logging it
        yield {"step": summary.get("_step"), **summary}


def wandb_config(data: bytes) -> Values:
    """Return the settings that a W&B run was given, dotted key -> value, from the content of its log.

    A setting that was given twice has its later value.
    """
    config: Values = {}
    for number, value in itertools.chain.from_iterable(map(_fields, _leveldb(data))):
        # Settings stand in records of their own (field 5), and in field 4 of the record that begins a run (17).
        if number == 5:
            config |= _items(value)
        elif number == 17:
            for inner_number, inner in _fields(value):
                if inner_number == 4:
                    config |= _items(inner)
    return config


def _items(message: bytes) -> Values:
    """Return the settings or metrics in a W&B message: dotted key -> value.

    Each protobuf field 1 of the message is an item, with one of them. Such an item has these fields: 1 is its key, 2 a
    part of a nested key, 16 the value as JSON.
    """
    row = {}
    for number, value in _fields(message):
        if number == 1:
            item = list(_fields(value))
            parts = [part.decode() for field, part in item if field in (1, 2) and part]
            row[".".join(parts)] = json.loads(dict(item)[16])
    return row


def _leveldb(data: bytes) -> Iterator[bytes]:
    """Yield the whole records of a log in the format of LevelDB: blocks of 32 KiB, each a row of pieces of records.

    A piece is a head of 7 bytes (a checksum of 4, which is not compared, the length of 2, the kind of 1) and bytes. A
    record may have pieces in several blocks. Nothing follows the first piece that is not whole.
    """
    block = 32768
    head = 7
    # The file begins with a head of its own, of as many bytes.
    place = head
    record = b""
    while place + head <= len(data):
        # What is left at a block's end is too little for a head: it is padding.
        block_left = block - place % block
        if block_left < head:
            place += block_left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        piece = data[place + head : place + head + length]
        place = place + head + length
        if len(piece) < length:
            return
        record = piece if kind in (1, 2) else record + piece  # 1 whole, 2 first, 3 middle, 4 last
        if kind in (1, 4):
            yield record


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message, number and value: bytes, or an integer where it is one.

    A field begins with its key: the lowest three bits are the kind of value, the others the number.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        # Kind 0 is an integer, 1 has eight bytes, 5 four, 2 a length and so many bytes.
        if key & 7 == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(key & 7, 0)
        if key & 7 == 2:
            length, place = _varint(message, place)
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return a protocol buffer's number of variable length at `place`, and the place after it.

    Each byte has seven bits of it, the lowest first; the eighth says whether another byte follows. `ValueError` for
    more than 64 bits, `IndexError` where the message ends before it.
    """
    value = shift = 0
    while shift < 64:
        byte = message[place]
        value = value | (byte & 127) << shift
        shift = shift + 7
        place = place + 1
        if byte < 128:
            return value, place
    raise ValueError("a number has more than 64 bits")
