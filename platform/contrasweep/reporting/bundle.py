"""A study as one file that is checked without contrasweep: an RO-Crate with records, code, table and a verifier."""

import hashlib
import io
import json
import zipfile
from dataclasses import asdict, replace
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
"""Of every file, so that the same study is the same bundle."""


def pack_bundle(results: Results, table: bytes) -> bytes:
    """Return a bundle of a finished study, the same bytes for the same records; `table` is its report as JSON.

    Raises `SpecError` where trials are still to run or a file is broken.
    """
    if results.pending or results.broken:
        left = str(results.broken[0]) if results.broken else results.statuses
        raise SpecError(
            "a bundle is of a study whose trials have all ended", place="bundle", value=left
        )
    # The plan, when the study ended, and what it ran with.
    document = results.document
    records = {**results.search_records, **results.trial_records}
    rows = [
        {
            "trial_id": r["trial_id"],
            "arm": r["arm"],
            "axes": {axis: label(v) for axis, v in r["axes"].items()},
            "fold": r["fold"],
            "seed": r["seed"],
        }
        for r in results.trial_rows()
    ]
    ended = datetime.fromtimestamp(max(record.ended for record in records.values()), UTC)
    versions = {
        "driver": document.versions,
        "trials": {i: dict(r.versions) for i, r in sorted(records.items())},
    }
    # Without addresses of this machine, which would also be other ones elsewhere.
    page = replace(
        report_data(results, results.table()),
        document=document,
        storage="",
        links={},
        study_link="",
        served="",
    )
    files = {
        "study.json": STUDY_FILE.encode(asdict(document)),
        "plan.json": _json(rows),
        "environment.json": _json(versions),
        "table.json": table,
        "table.txt": f"{results}\n".encode(),
        "report.html": html_report(page, written=ended).encode(),
        "verify.py": VERIFIER.read_bytes(),
    }
    files |= {f"records/{trial_id}.json": record.to_json() for trial_id, record in records.items()}
    for digest in {
        code for r in records.values() for code in (r.code.digest, *r.code.earlier) if code
    }:
        files |= {
            f"code/{digest}{end}": data for end, data in code_bytes(results.records, digest).items()
        }
    files[METADATA] = _metadata(results, files, ended)

    # The same bytes on any machine: no times, and rights and system as of any file made under Unix.
    sink = io.BytesIO()
    with zipfile.ZipFile(
        sink, "w", zipfile.ZIP_STORED
    ) as archive:  # another zlib would compress to other bytes
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, SAME_TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name])
    return sink.getvalue()


def _metadata(results: Results, files: dict[str, bytes], ended: datetime) -> bytes:
    """Return the RO-Crate 1.1 metadata: what the bundle holds, by digest, and the datasets, which it does not hold.

    `files` are those of the bundle, name -> content; `ended` is when the study's last trial ended.
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
