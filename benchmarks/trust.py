"""What the checks of a storage's files cost a report: digests, schemas and names, as a share of its processor time.

    python -m benchmarks.trust [--trials 10000] [--formats text,html] [--output benchmarks/results/trust.md]

The same process reports the study again, from the compacted files (as every report but the first does), and does each
check alone on the very bytes that the report reads. Reading JSON and building records of it is no check: what these
take without any check is taken off, but never so much that less than the digests is left.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pydantic_core

from benchmarks.report import fill, study
from contrasweep import load
from contrasweep.report import render
from contrasweep.storage import compact
from contrasweep.storage.compact_parts import CURVES, RECORDS, decode_part
from contrasweep.storage.json_file import _digest
from contrasweep.storage.parquet_file import _check_digest
from contrasweep.storage.planned import PLAN
from contrasweep.storage.record import RECORD_FILE, CodeRef, DatasetRef, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords

ABOUT_FILE = ("format_version", "digest")


def seconds(call: Callable[[], object], times: int = 5) -> float:
    """Processor seconds of a call, the least of so many."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return min(spent)


def unchecked(data: bytes) -> Record:
    """The record in the content of a record.json, believed."""
    members = pydantic_core.from_json(data)
    nested = {"data": DatasetRef(**members["data"]), "code": CodeRef.from_dict(members["code"])}
    nested |= {"notes": TrialNotes.from_dict(members["notes"]), "status": Status(members["status"])}
    nested |= {name: tuple(members[name]) for name in ("items", "artifacts", "unread") if name in members}
    return Record(**{name: value for name, value in members.items() if name not in ABOUT_FILE} | nested)


def run() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--formats", default="text,html")
    parser.add_argument("--times", type=int, default=1, help="reports of each format, of which the fastest counts")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as storage:
        declared = study(options.trials)
        trials, records = fill(declared, storage), StudyRecords(storage, declared.name)
        compact.read_curves(records, etags := compact.record_etags(records), etags)  # compacts
        compact.read_records(records, etags)
        formats = {
            f: seconds(lambda f=f: render(load(declared.name, storage=storage), f), options.times)
            for f in options.formats.split(",")
        }
        parts = {
            kind: [records.store.read(key) for key in records.store.list(f"{declared.name}/compact/{kind}/")]
            for kind in (RECORDS, CURVES)
        }
        files = [records.store.read(f"{declared.name}/{PLAN}"), *parts[RECORDS], *parts[CURVES]]
        recorded = [data for part in parts[RECORDS] for data in _records(decode_part(part, "", RECORDS))]
        texts = [data for data in recorded if data.startswith(b"{")]
    built = seconds(lambda: [unchecked(data) for data in texts])
    decoded = seconds(lambda: [RECORD_FILE.decode(data, "") for data in texts])
    digests = seconds(lambda: [_digest(data) for data in texts])
    check = max(decoded - built, digests)  # pydantic may check and build faster than Python builds
    tables = seconds(lambda: [_check_digest(data) for data in files])
    rows = [f"| {name} | {total:.2f} | {100 * (check + tables) / total:.1f} % |" for name, total in formats.items()]
    text = (
        f"# What checking a storage costs a report\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} shared "
        f"cores; {trials} made-up trials in the format of real ones, from a folder; "
        f"`python -m benchmarks.trust --trials {options.trials}`. Records, read with all checks (digest, schema, "
        f"names): {decoded:.3f} s, of which digests {digests:.3f} s; read and built without a check: {built:.3f} s. "
        f"Digests of {sum(map(len, files)) / 2**20:.1f} MiB of compacted tables and the plan: {tables:.3f} s. "
        "*Checks*: what checked records take longer, or their digests where that is more, and the tables' digests.\n\n"
        "| report | processor s | checks |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    print(text)
    if options.output:
        options.output.write_text(text)


def _records(table: pa.Table) -> list[bytes]:
    return [data if isinstance(data, bytes) else data.encode() for data in table["record"].to_pylist()]


if __name__ == "__main__":
    run()
