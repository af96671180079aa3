"""study.json and record.json: what is written, and what other releases wrote, which is refused."""

import dataclasses
import functools
import json

import pyarrow as pa
import pytest
from refusals import refused

from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError, StorageError
from contrasweep.running.upkeep import verify
from contrasweep.storage.interim_log import LookLog, LookTaken
from contrasweep.storage.parquet_file import encode_table
from contrasweep.storage.planned import read_planned
from contrasweep.storage.record import RECORD_FILE, DatasetRef, Phase, Record, Status, TrialNotes
from contrasweep.storage.study_document import (
    STUDY_FILE,
    DeclaredSearch,
    StudyDocument,
    declared_lines,
)
from contrasweep.trial import Trial

TRIAL = Trial("s", "a", "m:f", {"lr": 0.1}, Manifest("d", "/d", "image", {}), 1, 7)
DOCUMENT = StudyDocument(
    name="s",
    metric="accuracy",
    arms=("a", "b"),
    axes=("lr",),
    folds=5,
    search=DeclaredSearch("tpe", 1, {"trials": 4}),
    datasets=(DatasetRef("d", "dd", synthetic=True),),
    spec={
        "data": "d",
        "arms": {
            "a": {"trainable": "m:f", "space": {"lr": {"low": 0.1}}},
            "b": {"trainable": "m:f"},
        },
    },
)


def encoded(document):
    return STUDY_FILE.encode(dataclasses.asdict(document))


def test_a_document_is_read_as_it_was_written():
    assert STUDY_FILE.decode(encoded(DOCUMENT), "study.json") == DOCUMENT
    assert STUDY_FILE.decode(encoded(dataclasses.replace(DOCUMENT, search=None)), "").search is None
    assert (DOCUMENT.space("a"), DOCUMENT.space("b")) == ({"lr": {"low": 0.1}}, {})


def test_a_record_is_made_from_its_trial_and_reports():
    rows = [{"step": 1, "time": 5.0, "loss": 2.0}, {"step": 2, "time": 8.0, "loss": 1.0}]
    notes = TrialNotes(phase=Phase.SEARCH, candidate=0, gpus=0.0)
    record = Record.of(TRIAL, status=Status.DONE, rows=rows, notes=notes)
    assert (record.trial_id, record.study, record.arm, record.fold, record.seed) == (
        TRIAL.id,
        "s",
        "a",
        1,
        7,
    )
    assert (record.metrics, record.step, record.started, record.ended) == (
        {"loss": 1.0},
        2,
        5.0,
        8.0,
    )
    assert RECORD_FILE.decode(record.to_json(), "record.json") == record
    content = json.loads(record.to_json())
    assert content["status"] == "done"
    assert content["notes"] == {
        "phase": "search",
        "candidate": 0,
        "gpus": 0.0,
    }


@pytest.mark.parametrize("name", ["study.json", "record.json"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda content: content | {"format_version": 9},
            "has format version 9, and this release reads .* [34]; use",
        ),
        (
            lambda content: content | {"format_version": 1},
            "has format version 1, and this release reads .* [34]; use",
        ),
        (lambda content: content | {"colour": 1}, "is broken"),
        (lambda content: [content], "is broken"),
        (lambda content: {k: v for k, v in content.items() if k != "format_version"}, "is broken"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(tmp_path, records, name, damage, said):
    key = "s/study.json" if name == "study.json" else records.key(TRIAL.id, name)
    whole = (
        encoded(DOCUMENT)
        if name == "study.json"
        else Record.of(TRIAL, status=Status.FAILED).to_json()
    )
    records.store.write(key, json.dumps(damage(json.loads(whole))).encode())
    with refused(StorageError, begins=f"{tmp_path}/{key} ", match=said):
        records.document() if name == "study.json" else records.read_one(TRIAL.id)


@pytest.mark.parametrize("digest", [True, False])
def test_a_study_of_an_earlier_format_is_refused_and_left_as_it_is(records, digest):
    older = dataclasses.asdict(DOCUMENT)
    if digest:
        dataclasses.replace(STUDY_FILE, version=3).write(records.store, "s/study.json", older)
    else:
        plain = json.dumps(older | {"format_version": 3}, sort_keys=True, indent=1)
        records.store.write("s/study.json", plain.encode())
    records.store.write("s/trials/one/record.json", b"{}")
    before = {key: records.store.read(key) for key in records.store.list("s/")}
    claim = functools.partial(records.claim, DOCUMENT)
    check = functools.partial(verify, records)
    for call in (records.document, claim, check, lambda: check(repair=True)):
        with refused(
            StorageError,
            match=r"study.json has format version 3, .* reads and writes version 4; use",
        ):
            call()
    assert {key: records.store.read(key) for key in records.store.list("s/")} == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document["spec"].pop("data"), "spec.data"),
        (lambda document: document["spec"].update(data=["d"]), "spec.data"),
        (lambda document: document["spec"].update(axes={"data": [{"d": 1}]}), "spec.axes.data.0"),
        (
            lambda document: document["spec"].update(replicates={"of": "seeds"}),
            "spec.replicates.most",
        ),
        (lambda document: document["spec"]["arms"]["a"].pop("trainable"), "spec.arms.a.trainable"),
        (
            lambda document: document["spec"]["arms"]["a"].update(
                start={"study": "../s", "arm": "a"}
            ),
            "spec.arms.a.start",
        ),
        (
            lambda document: document["spec"]["arms"].pop("b"),
            "arms that its declaration has not: 'b'",
        ),
        (lambda document: document.update(log=[{"at": 1.0, "spec": {"arms": {}}}]), "log.0.spec"),
    ],
)
def test_a_declaration_without_what_commands_read_of_it_is_a_broken_file(change, said):
    document = json.loads(json.dumps(dataclasses.asdict(DOCUMENT)))
    change(document)
    with refused(StorageError, match=f"study.json is broken .*{said}"):
        STUDY_FILE.decode(STUDY_FILE.encode(document), "study.json")


def test_what_was_asked_before_is_told_in_a_line_and_a_document_without_a_declaration_says_so():
    before = dataclasses.replace(DOCUMENT, asked_before=("k", "l", "m", "n", "o"))
    (line,) = declared_lines(before)
    assert line.startswith("asked before, on the same data: k, l, m and 2 more compared the same")
    with refused(SpecError, "the study's declaration is not in its study.json, got 's'"):
        dataclasses.replace(DOCUMENT, spec={}).required_spec  # noqa: B018


def test_a_file_of_more_than_what_is_read_is_not_parsed(monkeypatch):
    monkeypatch.setattr("contrasweep.storage.json_file.MAX_BYTES", 9)
    with refused(StorageError, "study.json is broken (it has 1,", " bytes, and 9 are read)"):
        STUDY_FILE.decode(
            encoded(dataclasses.replace(DOCUMENT, description="x" * 500)), "study.json"
        )


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["arm", "trial_id", "fold", "seed"], "its columns are not trial_id, arm, the axes, fold"),
        (["trial_id", "arm", "lr", "lr", "fold", "seed"], "two of its columns have one name"),
        (["trial_id", "arm", "lr", "fold", "seed"], "a trial lacks its id, arm, seed or the value"),
        (["trial_id", "arm", "fold", "seed"], "a trial stands in it twice"),
    ],
)
def test_a_plan_that_is_none_is_a_broken_file(columns, said, records):
    values = {"trial_id": ["t", "t"], "arm": ["a", "a"], "lr": ["1", None]}
    table = pa.table([values.get(name, [0, 1]) for name in columns], names=columns)
    records.store.write("s/plan.parquet", encode_table(table))
    with refused(StorageError, "plan.parquet is broken", said):
        read_planned(records)


def test_looks_that_do_not_follow_one_another_are_none():
    looks = [LookTaken(n, n / 9, (), ()) for n in (3, 6, 9)]
    assert LookLog("power", "seeds", tuple(looks)).over
    for wrong in (looks[::-1], [looks[0], looks[0]]):
        with refused(ValueError, match="its looks do not follow one another"):
            LookLog("power", "seeds", tuple(wrong))


def test_a_trial_without_a_value_for_another_cause_than_its_method_is_missing():
    record = Record.of(TRIAL, status=Status.INFEASIBLE)
    assert record.missing and not dataclasses.replace(record, status=Status.FAILED).missing
