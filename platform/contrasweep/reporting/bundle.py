"""A study as one file that is checked without contrasweep: an RO-Crate with records, code, table and a verifier."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from contrasweep.canonical import label
from contrasweep.errors import SpecError
from contrasweep.reporting import report_data
from contrasweep.reporting.page import html_report
from contrasweep.reporting.verify import METADATA
from contrasweep.results.results import Results
from contrasweep.storage.code_files import code_bytes
from contrasweep.storage.study_document import STUDY_FILE

VERIFIER = Path(__file__).with_name("verify.py")
CONTEXT = "https://w3id.org/ro/crate/1.1/context"
SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that the same study gives the same bundle."""


def pack_bundle(results: Results, table: bytes) -> bytes:
    """Return a bundle of a finished study, the same bytes for the same records.

    `table` is what `contrasweep report --json` prints of the study; it becomes the file `table.json` of the bundle.
    Raises `SpecError` where trials are still to run or a file is broken.
    """
    if results.pending or results.broken:
        unfinished = str(results.broken[0]) if results.broken else results.statuses
        raise SpecError(
            "a bundle is of a study whose trials have all ended", place="bundle", value=unfinished
        )
    # The plan, and the time at which the study ended.
    document = results.document
    records = results.all_records
    plan = []
    for row in results.trial_rows():
        fields = {name: row[name] for name in ("trial_id", "arm", "axes", "fold", "seed")}
        fields["axes"] = {axis: label(value) for axis, value in row["axes"].items()}
        plan.append(fields)
    ended = datetime.fromtimestamp(max(record.ended for record in records.values()), UTC)
    # The page, without addresses of this machine, which would be other ones elsewhere.
    page = replace(
        report_data(results, results.table()),
        document=document,
        storage="",
        links={},
        study_link="",
        ui_command="",
    )
    files = {
        "study.json": STUDY_FILE.encode(document),
        "plan.json": _json(plan),
        "environment.json": _json(document.versions),
        "table.json": table,
        "table.txt": f"{results}\n".encode(),
        "report.html": html_report(page, written=ended).encode(),
        "verify.py": VERIFIER.read_bytes(),
    }
    # Each record, and each code that any attempt of a trial ran; its digest is "" where the code was not recorded.
    codes = set[str]()
    for trial_id, record in records.items():
        files[f"records/{trial_id}.json"] = record.to_json()
        codes |= {record.code.digest, *record.code.earlier}
    for digest in codes - {""}:
        for ending, data in code_bytes(results.records, digest).items():
            files[f"code/{digest}{ending}"] = data
    files[METADATA] = _metadata(results, files, ended)

    # The same bytes on any machine: not compressed, as another zlib gives other bytes; one time for all files; rights
    # and system as of files made under Unix.
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, SAME_TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name])
    return sink.getvalue()


def _metadata(results: Results, files: dict[str, bytes], ended: datetime) -> bytes:
    """Return the bundle's metadata (RO-Crate 1.1): its files with their digests, and the study's datasets.

    The datasets are named, but are not in the bundle. `files` is name -> content of the bundle's files; `ended` is the
    time at which the study's last trial ended.
    """
    document = results.document
    datasets = [
        {"@id": f"#{data.digest}", "@type": "Dataset", "name": data.name}
        for data in document.datasets
    ]
    entries = [
        {
            "@id": name,
            "@type": "File",
            "name": name,
            "contentSize": str(len(content)),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in sorted(files.items())
    ]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": document.name,
        "description": document.description
        or f"Records of the study {document.name}, made by contrasweep",
        "datePublished": ended.strftime("%Y-%m-%d"),
        "hasPart": [{"@id": name} for name in sorted(files)],
        "mentions": [{"@id": data["@id"]} for data in datasets],
    }
    about = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": CONTEXT.removesuffix("/context")},
        "about": {"@id": "./"},
    }
    return _json({"@context": CONTEXT, "@graph": [about, root, *datasets, *entries]})


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
