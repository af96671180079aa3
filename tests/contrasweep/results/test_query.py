"""SQL over a storage: what the views hold, and that a query reads them and nothing else, in bounds."""

import dataclasses
import json

import pyarrow.parquet as pq
import pytest
from command_line import contrasweep
from looks import drive_looks, noise
from sweeps import finished, sweep

from contrasweep import AblationGrid, Arm
from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError
from contrasweep.results.ledger import Asked, Began, Decided, Granted, Ledger
from contrasweep.results.query import SCHEMAS, StorageViews, plain_rows, run_query
from contrasweep.results.results import Results
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.trial import Trial

pytest.importorskip("duckdb")
HOSTILE = "x'); DROP TABLE trials; --\" =cmd</script>"
ARMS = {arm: Arm("toy:train", config={"epochs": 1}) for arm in "ab"}
GRID = AblationGrid("grid", ARMS, "digits-lt", seeds=[0, 1, 2, 3], axes={"lr": [0.1, 0.2]})


def value(trial):
    return 0.5 + 0.1 * (trial.arm == "a") + 0.01 * noise(trial.arm, trial.seed, trial.config["lr"])


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    storage = tmp_path_factory.mktemp("queried")
    drive_looks(GRID, storage, value, failed=lambda trial: (trial.arm, trial.seed) == ("a", 3))
    finished(sweep(), storage)
    records = StudyRecords(str(storage), "hostile")
    records.claim(StudyDocument(name="hostile", metric=HOSTILE, trials=1, arms=(HOSTILE,)))
    trial = Trial("hostile", HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, Manifest(HOSTILE, "/nowhere", "image", {}), None, 0)
    records.write(Record.of(trial, status=Status.DONE, metrics={HOSTILE: 0.5}))
    return str(storage)


def ask(storage, query, **bounds):
    return plain_rows(run_query(query, StorageViews(storage), **bounds))


def test_the_views_hold_what_the_results_hold(storage):
    results = Results.load("grid", storage)
    frame = results.to_frame()
    rows = ask(storage, "SELECT trial_id, status, value FROM trials WHERE study = 'grid' ORDER BY trial_id")
    values = frame["accuracy"].astype(object).where(frame["accuracy"].notna(), None)
    assert rows == sorted(map(list, zip(frame["trial_id"], frame["status"], values, strict=True)))
    pairs = ask(storage, "SELECT a, b, p_value, verdict, n FROM comparisons WHERE study = 'grid'")
    assert pairs == [
        [p.a, p.b, p.comparison.p_value, p.comparison.verdict, p.comparison.n] for p in results.answer.pairs
    ]
    assert ask(storage, "SELECT study, done, failed FROM studies ORDER BY study")[0] == ["grid", 14, 2]
    assert ask(storage, "SELECT count(*) FROM decisions") == [[0]]
    assert ask(storage, "SELECT DISTINCT config['lr'] AS lr FROM trials WHERE study = 'grid' ORDER BY lr") == [
        ["0.1"],
        ["0.2"],
    ]
    assert ask(storage, "SELECT count(*) FROM query('FROM trials')") == ask(storage, "SELECT count(*) FROM trials")


def test_decisions_are_the_candidates_of_a_ledger(tmp_path):
    book = Ledger(str(tmp_path), "speed").read()
    for entry in (
        Began({"metric": "accuracy"}, screening=4),
        Asked("wider", {"trainable": "m:train"}, "0" * 16, by="ada", why="more width"),
        Granted(1, 0, 0.025, (4, 5)),
        Decided(1, 0, "keep", "confirm", True, 8, 16, 0.1, 0.4, estimate=0.02, p=0.01),
        Asked("deeper", {"trainable": "m:train"}, "1" * 16),
    ):
        assert book.append(entry)
    query = (
        "SELECT number, candidate, verdict, kept, incumbent, estimate, level, asked_by FROM decisions ORDER BY number"
    )
    assert ask(str(tmp_path), query) == [
        [1, "wider", "keep", True, "incumbent", 0.02, 0.025, "ada"],
        [4, "deeper", None, None, "wider", None, None, ""],
    ]


def test_reports_are_rows_of_one_metric(storage, tmp_path):
    records = StudyRecords(str(tmp_path), "grid")
    drive_looks(dataclasses.replace(GRID), tmp_path, value)
    trial = sorted(records.finished())[0]
    records.write_metrics(trial, [{"step": s, "time": float(s), "accuracy": s / 10, "loss": 1.0} for s in (1, 2)])
    query = f"SELECT step, metric, value FROM reports WHERE trial_id = '{trial}' ORDER BY ALL"
    assert ask(str(tmp_path), query) == [[1, "accuracy", 0.1], [1, "loss", 1.0], [2, "accuracy", 0.2], [2, "loss", 1.0]]


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO trials SELECT * FROM trials",
        "WITH x AS (DELETE FROM trials RETURNING *) SELECT * FROM x",
        "COPY trials TO '{folder}/out.csv'",
        "ATTACH '{folder}/out.db'",
        "EXPORT DATABASE '{folder}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "PRAGMA enable_profiling",
        "SELECT 1; SELECT 2",
        "",
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM read_text('{folder}/secret.csv')",
        "FROM '{folder}/secret.csv'",
        "FROM glob('{folder}/*')",
        "SELECT * FROM query('FROM read_text(''{folder}/secret.csv'')')",
        "FROM storage",
        "FROM views",
        "FROM query('FROM tri' || 'als')",
        "SELECT * FROM nothing",
        "not SQL",
    ],
)
def test_a_query_reads_the_views_alone_and_changes_nothing(query, storage, tmp_path):
    (tmp_path / "secret.csv").write_text("word\nsecret\n")
    with pytest.raises(SpecError) as caught:
        ask(storage, query.format(folder=tmp_path))
    assert "\n" not in str(caught.value) and "secret\n" not in caught.value.rule
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize(
    ("query", "bounds", "rule"),
    [
        ("SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range % 7 = 3", 0.2, "0.2 s"),
        ("SELECT * FROM range(100000000000)", 60, "1,000 rows"),
        ("SELECT max(length(x)) FROM (SELECT list(repeat('x', 1000000)) AS x FROM range(10000))", 60, "0.25 GiB"),
    ],
)
@pytest.mark.slow
def test_a_query_is_bounded_in_time_rows_and_memory(query, bounds, rule, storage, monkeypatch):
    if "GiB" in rule:
        monkeypatch.setattr("contrasweep.results.query.MEMORY_GIB", 0.25)
    with pytest.raises(SpecError, match=rule):
        ask(storage, query, seconds=bounds, max_rows=1000)


@pytest.mark.parametrize(
    "query", ["SELECT 'infinity'::DATE", "SELECT '-infinity'::TIMESTAMP", "SELECT {'a': [DATE '290309-12-22']}"]
)
def test_a_date_that_python_cannot_hold_is_one_line_and_can_be_asked_for_as_text(query, storage):
    with pytest.raises(SpecError, match=r"QUERY, column .*: dates of an answer lie in the years 1 to 9999 .* VARCHAR"):
        ask(storage, query)
    ((text,),) = ask(storage, f"SELECT CAST(({query}) AS VARCHAR)")
    assert "infinity" in text or "290309-12-22" in text


def test_every_format_holds_the_same_rows(storage, tmp_path):
    query = "SELECT arm, metrics, seed FROM trials WHERE study <> 'toy-sweep' AND status = 'done' ORDER BY ALL"
    words = ("query", query, "--storage", storage)
    rows = json.loads(contrasweep(*words, "--json", folder=tmp_path).stdout)["rows"]
    assert len(rows) == 15 and rows[-1] == [HOSTILE, {HOSTILE: 0.5}, 0]
    contrasweep(*words, "--format", "parquet", "--output", "out.parquet", folder=tmp_path)
    assert plain_rows(pq.read_table(tmp_path / "out.parquet")) == rows
    text, csv = (contrasweep(*words, "--format", name, folder=tmp_path).stdout for name in ("text", "csv"))
    assert len(text.splitlines()) == 17 and len(csv.splitlines()) == 16
    assert contrasweep(*words, "--format", "xml", folder=tmp_path).returncode == 2


def test_what_would_be_a_formula_is_none_in_csv(storage, tmp_path):
    words = ("query", "SELECT '=1+1' AS \"=2\"", "--storage", storage, "--format", "csv")
    assert contrasweep(*words, folder=tmp_path).stdout == "'=2\n'=1+1\n"


def test_broken_files_are_left_out_and_counted(tmp_path):
    drive_looks(GRID, tmp_path, value)
    records = StudyRecords(str(tmp_path), "grid")
    records.store.write(records.key(sorted(records.finished())[0], "record.json"), b"\x00")
    words = ("query", "SELECT count(*) FROM trials", "--storage", str(tmp_path))
    shown = json.loads(contrasweep(*words, "--json", folder=tmp_path).stdout)
    assert (shown["rows"], shown["broken"]) == ([[15]], 1)


def test_an_empty_storage_has_every_view(tmp_path):
    for name, schema in SCHEMAS.items():
        found = run_query(f"FROM {name}", StorageViews(str(tmp_path)))
        assert found.num_rows == 0 and found.schema.names == schema.names
