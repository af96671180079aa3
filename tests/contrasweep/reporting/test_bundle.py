"""A study as one file: packed to the same bytes, read by the published RO-Crate reader, checked without any package."""

import dataclasses
import hashlib
import io
import json
import math
import random
import re
import shutil
import zipfile

import pytest
from command_line import contrasweep, printed, python
from made_up import made
from places import ROOT

from contrasweep.code import code_of
from contrasweep.reporting import verify
from contrasweep.reporting.bundle import SAME_TIME
from contrasweep.storage.code_files import write_code
from contrasweep.storage.records import StudyRecords

GOLDEN = ROOT / "tests/golden/0.1.0/storage"
STUDIES = {"trained": "golden-grid", "searched": "golden-sweep"}
MADE = {
    "seeds": {"arms": ("a", "b", "c"), "axes": (8, 16), "reference": "a"},
    "many": {"seeds": range(20)},
    "folds": {"seeds": [0, 1, 2], "folds": 5},
    "items": {"items": True},
    "gaps": {"seeds": range(9), "ends": (None, None, "METHOD", None)},
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """bundle(kind): the bytes of a bundle, packed once."""
    folder = tmp_path_factory.mktemp("bundles")
    packed = {}
    shutil.copytree(GOLDEN, folder / "runs")

    def pack(kind):
        name = STUDIES.get(kind, kind)
        if kind in MADE and not (folder / "runs" / name).exists():
            from contrasweep.storage.record import Cause

            fields = dict(MADE[kind])
            fields["ends"] = [Cause[end] if end else None for end in fields.get("ends", (None,))]
            made(folder / "runs", name, **fields)
        done = printed(folder, "bundle", name, "--storage", "runs", "-o", "x.zip")
        data = (folder / "x.zip").read_bytes()
        assert hashlib.sha256(data).hexdigest() in done
        return data

    def cached(kind, again=False):
        if kind not in packed or again:
            packed[kind] = pack(kind)
        return packed[kind]

    return cached


def changed(data, change):
    """A bundle whose files (name -> content) `change` has changed in place."""
    files = verify.read(data)
    change(files)
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, SAME_TIME), content)
    return sink.getvalue()


def signed(files):
    """Let the metadata name the digests that the files have now, as who forges a bundle would."""
    metadata = json.loads(files[verify.METADATA])
    for entry in metadata["@graph"]:
        if entry["@type"] == "File":
            content = files[entry["@id"]]
            entry |= {
                "sha256": hashlib.sha256(content).hexdigest(),
                "contentSize": str(len(content)),
            }
    files[verify.METADATA] = json.dumps(metadata).encode()


def test_a_metric_that_is_named_as_an_axis_is_found_in_the_records(tmp_path):
    plan = made(tmp_path, "axes", axes=(8, 16))
    records = StudyRecords(str(tmp_path), "axes")
    for record in records.read([trial.id for trial in plan.trials]).values():
        records.write(dataclasses.replace(record, metrics={**record.metrics, "batch_size": 0.5}))
    assert (
        contrasweep("bundle", "axes", "--storage", ".", "-o", "x.zip", folder=tmp_path).returncode
        == 0
    )
    differing, counted = verify.verify((tmp_path / "x.zip").read_bytes())
    assert not differing and counted["values"] > 2 * len(plan.trials)


@pytest.mark.parametrize(
    ("score", "folds"),
    [
        pytest.param(lambda seed: 0.7, None, id="copies of one run"),
        pytest.param(lambda seed: 0.7, 5, id="copies in folds"),
        pytest.param(lambda seed: 1e9 + 1e-4 * seed, None, id="differences by rounding"),
        pytest.param(lambda seed: [0.7, 1.79e308, 1.79e308][seed], None, id="values that are lost"),
    ],
)
def test_copies_and_values_that_are_not_finite_agree_with_their_records(tmp_path, score, folds):
    plan = made(tmp_path, "odd", seeds=range(3), folds=folds)
    records = StudyRecords(str(tmp_path), "odd")
    for trial in plan.trials:
        better = (0.1 if score(0) < 1 else 1e-5) * (trial.arm == "a")
        metrics = {
            "accuracy": score(trial.seed) + better,
            "side": [math.nan, math.inf, 1][trial.seed],
        }
        records.write(dataclasses.replace(records.read_one(trial.id), metrics=metrics))
    printed(tmp_path, "bundle", "odd", "--storage", ".", "-o", "x.zip")
    differing, counted = verify.verify((tmp_path / "x.zip").read_bytes())
    assert differing == [] and counted["p not recomputed"] == 1


@pytest.mark.parametrize("kind", [*STUDIES, *MADE])
def test_a_bundle_agrees_with_itself_and_is_the_same_bytes_again(bundle, kind):
    data = bundle(kind)
    differing, counted = verify.verify(data)
    assert differing == [] and data == bundle(kind, again=True)
    assert counted["means"] and counted["records"] >= counted["statuses"]
    assert bool(counted["differences"]) != (kind == "items")  # whose scores a bundle leaves out
    assert ("p" in counted) == (kind == "seeds")  # 20 seeds are drawn; a gap counts as a loss too
    text = data.decode("latin-1")
    assert "/runs" not in text.replace("contrasweep-runs", ""), "a path of this machine"


def test_a_bundle_has_the_code_of_earlier_attempts_too(tmp_path):
    plan = made(tmp_path, "s")
    records = StudyRecords(str(tmp_path), "s")
    code = code_of("contrasweep.trainables.finetune:train")
    write_code(records, code)
    first = records.read_one(plan.trials[0].id)
    ran = dataclasses.replace(first.code, earlier=(code.version.digest,))
    records.write(dataclasses.replace(first, code=ran))
    printed(tmp_path, "bundle", "s", "--storage", ".", "-o", "x.zip")
    assert f"code/{code.version.digest}.json" in verify.read((tmp_path / "x.zip").read_bytes())


def test_its_verifier_needs_no_package_and_ends_with_0_or_1(bundle, tmp_path):
    (tmp_path / "whole.zip").write_bytes(bundle("seeds"))
    (tmp_path / "verify.py").write_bytes(verify.read(bundle("seeds"))["verify.py"])
    done = python("-I", "-S", "verify.py", "whole.zip", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("all that was recomputed agrees\n"), (
        done.stdout + done.stderr
    )
    assert "p: 2" in done.stdout and not done.stderr

    def lower(files):
        files["table.json"] = re.sub(
            rb'"mean": 0\.(\d)',
            lambda m: b'"mean": 0.%d' % ((int(m[1]) + 1) % 10),
            files["table.json"],
            count=1,
        )

    (tmp_path / "whole.zip").write_bytes(changed(bundle("seeds"), lower))
    done = python("-I", "-S", "verify.py", "whole.zip", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout.endswith("DIFFERS\n")
    assert "differs: table.json: the metadata have another" in done.stdout
    assert "mean" in done.stdout
    assert python("-I", "-S", "verify.py", cwd=tmp_path).returncode == 2
    assert verify.main([]) == verify.main(["a", "b"]) == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_digit_that_is_changed_in_table_record_or_code_is_found(bundle, seed):
    rng = random.Random(seed)

    def change(files):
        part = ("table.json", "records/", "code/")[seed % 3]
        name = rng.choice(sorted(name for name in files if name.startswith(part)))
        content = bytearray(files[name])
        at = rng.choice([i for i, byte in enumerate(content) if chr(byte).isdigit()])
        content[at] = ord(rng.choice([d for d in "0123456789" if ord(d) != content[at]]))
        files[name] = bytes(content)

    assert verify.verify(changed(bundle("trained"), change))[0] != []


FORGED = {
    "mean": lambda report: report["table"][0].update(mean=report["table"][0]["mean"] + 1e-6),
    "count": lambda report: report["table"][0].update(n=report["table"][0]["n"] - 1),
    "trials": lambda report: report["table"][0]["trial_ids"].pop(),
    "value": lambda report: report["rows"][0]["metrics"].update(accuracy=0.5),
    "status": lambda report: report["rows"][0].update(status="failed"),
    "row": lambda report: report["rows"][0].update(trial_id="0" * 16),
    "difference": lambda report: report["comparisons"][0].update(difference=0.5),
    "gaps": lambda report: report["comparisons"][0].update(failed_a=1),
    "scope": lambda report: report["comparisons"][0].update(
        scope="on new items like these", difference=0.5
    ),
    "p": lambda report: report["comparisons"][0].update(raw_p=0.01),
}


@pytest.mark.parametrize(
    ("kind", "forgery"),
    [
        (k, f)
        for k in ("seeds", "trained")
        for f in FORGED
        if k == "seeds" or f not in ("scope", "p")
    ],
)
def test_a_table_that_was_forged_with_its_digests_is_found_by_the_records(bundle, kind, forgery):
    def forge(files):
        report = json.loads(files["table.json"])
        FORGED[forgery](report)
        files["table.json"] = json.dumps(report).encode()
        signed(files)

    differing = verify.verify(changed(bundle(kind), forge))[0]
    assert differing and all(line.startswith("table.json, ") for line in differing)


@pytest.mark.parametrize("field", ["metrics", "trial_id", "digest", "digest of its content"])
def test_a_record_that_was_forged_with_its_digests_is_found(bundle, field):
    def forge(files):
        name = min(name for name in files if name.startswith("records/"))
        record = json.loads(files[name])
        if field == "digest":
            record["code"]["digest"] = "0" * 16
        elif field == "trial_id":
            record["trial_id"] = "0" * 16
        elif field == "metrics":
            record["metrics"]["accuracy"] += 1e-6
        for key in ("format_version", "digest"):
            del record[key]
        body = json.dumps(record, indent=1).encode().removeprefix(b"{\n")
        signed_body = b"another body" if field == "digest of its content" else body
        digest = hashlib.sha256(signed_body).hexdigest().encode()
        files[name] = b'{"format_version": 3, "digest": "%s",\n' % digest + body
        signed(files)

    words = {
        "metrics": "by the records",
        "trial_id": "it is of trial",
        "digest": "is not in the bundle",
        "digest of its content": "its digest is not that of its content",
    }
    assert words[field] in " ".join(verify.verify(changed(bundle("trained"), forge))[0])


HOSTILE = {
    "a name above the folder": {"../../evil.py": b"x"},
    "an absolute name": {"/etc/evil": b"x"},
    "a huge number": {"table.json": b'{"rows": [], "table": [{"n": 1' + b"0" * 5000 + b"}]}"},
    "an endless number": {"plan.json": b"[1e999999999]"},
    "deep nesting": {"table.json": b"[" * 100_000},
    "no table": {"table.json": b"7"},
    "bytes": {"plan.json": b"\xff\xfe"},
    "a file that nobody lists": {"extra.txt": b"x"},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_bundle_is_a_line_and_1(bundle, case, tmp_path, capsys):
    (tmp_path / "x.zip").write_bytes(
        changed(bundle("trained"), lambda files: files.update(HOSTILE[case]))
    )
    assert verify.main([str(tmp_path / "x.zip")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 310 and line.isprintable() for line in lines) and len(lines) <= 8
    assert not (tmp_path.parent / "evil.py").exists()


@pytest.mark.parametrize("data", [b"", b"no zip", b"PK\x03\x04" + bytes(100)])
def test_what_is_no_zip_file_is_no_bundle(data, tmp_path, capsys):
    (tmp_path / "x.zip").write_bytes(data)
    assert verify.main([str(tmp_path / "x.zip")]) == 1
    assert capsys.readouterr().out.startswith("this is no bundle")


def test_a_zip_of_too_much_is_refused_before_it_is_read(monkeypatch, bundle):
    monkeypatch.setattr(verify, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="holds too much"):
        verify.verify(bundle("trained"))
    with zipfile.ZipFile(
        sink := io.BytesIO(), "w", zipfile.ZIP_BZIP2
    ) as archive:  # may be more than it says
        archive.writestr("x", "")
    with pytest.raises(ValueError, match="are compressed"):
        verify.verify(sink.getvalue())
    monkeypatch.undo()
    with zipfile.ZipFile(sink := io.BytesIO(), "w") as archive:
        archive.writestr("x", "1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x", "2")
    with pytest.raises(ValueError, match="a file is in it twice"):
        verify.verify(sink.getvalue())


def test_the_published_reader_of_ro_crates_reads_it(bundle, tmp_path):
    from rocrate.rocrate import ROCrate

    (tmp_path / "x.zip").write_bytes(bundle("trained"))
    crate = ROCrate(tmp_path / "x.zip")
    assert crate.name == "golden-grid"
    files = {entity.id: entity for entity in crate.get_by_type("File")}
    assert (
        files["table.json"]["sha256"]
        == hashlib.sha256(verify.read(bundle("trained"))["table.json"]).hexdigest()
    )
    assert {mention.id for mention in crate.root_dataset["mentions"]} == {
        "#" + data_digest(bundle("trained"))
    }


def data_digest(data):
    files = verify.read(data)
    return json.loads(files[min(name for name in files if name.startswith("records/"))])["data"][
        "digest"
    ]


@pytest.mark.parametrize("end", ["pending", None])  # None: all have ended, and a record is broken
def test_a_study_that_has_not_ended_is_refused_in_a_line(tmp_path, runs, end):
    plan = made(tmp_path / "runs", "open", ends=(None, end))
    if not end:
        StudyRecords(runs, "open").store.write(
            f"open/records/{plan.trials[0].id}/record.json", b"{"
        )
    done = contrasweep("bundle", "open", "--storage", "runs", "-o", "x.zip", folder=tmp_path)
    assert done.returncode == 2 and "whose trials have all ended" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x.zip").exists()
