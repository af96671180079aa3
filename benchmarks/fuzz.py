"""Mutated study files, and storages whose files were damaged or forged, read through the shipped commands.

    python -m benchmarks.fuzz [--files 10000] [--readings 3000] [--seed 1] [--minutes N]

Each case follows from the seed and its number alone. What was counted is kept in results/fuzz.json after every 50
cases, so that an interrupted run goes on; results/fuzz.md is written from it. Counted are tracebacks, hangs (more than
5 s of processor time in one command), messages of more than one line or 3,000 characters, and tables that differ from
those of the undamaged study without a word.
"""

import argparse
import contextlib
import copy
import faulthandler
import functools
import importlib
import io
import json
import math
import os
import pkgutil
import platform
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from benchmarks.report import _leave
from typer.main import get_command

import contrasweep.search_spaces
from contrasweep import AblationGrid, Arm, Replicates, Sweep
from contrasweep.cli import app as application
from contrasweep.cli import main
from contrasweep.code import code_of
from contrasweep.planning import learned
from contrasweep.planning.planner import plan
from contrasweep.running.prepare import study_document
from contrasweep.storage.archive import archive_trials
from contrasweep.storage.code_files import accept, write_code
from contrasweep.storage.json_file import _HEADER, _digest
from contrasweep.storage.planned import write_planned
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import to_plain
from contrasweep.tracking.links import write_links
from contrasweep.tracking.mlflow.address import TrackingAddress

HANG_S = 5.0
STOPPED_S = 60
STUCK_S = 90
KEEP_EVERY = 50
TITLES = {"files": "mutated study files, `plan`", "readings": "readings of broken storages"}
LONGEST = 3000
ROOT = Path(__file__).parents[1]
READERS = (
    ("report", "--json"),
    ("report", "--format", "text"),
    ("report", "--format", "markdown"),
    ("report", "--format", "latex"),
    ("report", "--format", "csv"),
    ("report", "--format", "html"),
    ("compare", "supcon", "ocl"),
    ("code",),
    ("code", "--diff", "CODE", "CODE"),
    ("verify",),
    ("verify", "--repair"),
    ("status",),
    ("logs", "TRIAL"),
    ("remove", "--status", "failed", "--yes"),
    ("restore", "--yes"),
    ("run", "--tracking", "none", "--set", "budget_hours=1e-9"),
)
"""What reads a study; STUDY stands after the command's name. `run` goes on with it, up to where it would train."""


@dataclass
class Count:
    """Numbers of commands by outcome. `findings` are the first outcomes that must not happen."""

    commands: int = 0
    accepted: int = 0
    refused: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    seconds: float = 0.0  # of processor time
    dates: list[str] = field(default_factory=list)

    def note(self, kind: str, what: str) -> None:
        """Count one outcome that must not happen, of this `kind`; `what` describes it."""
        self.findings[kind] += 1
        if len(self.examples) < 40:
            self.examples.append(f"{kind}: {what}")


Keep = Callable[[Count], bool]
"""Keeps what was counted, and whether there is time for more."""


@dataclass(frozen=True)
class Outcome:
    """What a command printed, how it ended, and the traceback that it ended with, if any."""

    status: int
    stdout: str
    stderr: str
    seconds: float
    traceback: str = ""
    stopped: bool = False

    @property
    def hangs(self) -> bool:
        """Whether it took too long."""
        return self.stopped or self.seconds > HANG_S


class Stopped(BaseException):
    """Raised in a command that took too long."""


def command(*words: str) -> Outcome:
    """Run a command in this process and return its outcome."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.StringIO()
    status = 0
    failed = ""
    stopped = False
    places = list(sys.path)

    def stop(*_: object) -> None:
        raise Stopped

    signal.signal(signal.SIGALRM, stop)
    began = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        signal.alarm(STOPPED_S)
        # in C no alarm is heard
        faulthandler.dump_traceback_later(STUCK_S, exit=True, file=2)
        sys.argv = ["contrasweep", *words]
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Stopped:
            stopped = True
        except BaseException:
            failed = traceback.format_exc()
        finally:
            signal.alarm(0)
            faulthandler.cancel_dump_traceback_later()
            sys.path[:] = places
    printed = out.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    return Outcome(status, printed, err.getvalue(), time.process_time() - began, failed, stopped)


def judge(count: Count, outcome: Outcome, what: str) -> None:
    """Count an outcome, and note it if it must not happen."""
    count.commands += 1
    count.slowest_s = max(count.slowest_s, outcome.seconds)
    count.seconds += outcome.seconds
    if outcome.status == 2:
        count.refused += 1
    elif not (outcome.traceback or outcome.stopped):
        count.accepted += 1
    if outcome.traceback or "Traceback (most recent" in outcome.stderr:
        count.note("traceback", f"{what}\n{(outcome.traceback or outcome.stderr)[-1500:]}")
    if outcome.hangs:
        count.note("hang", f"{what}: {outcome.seconds:.1f} s")
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("contrasweep: ")]
    if outcome.status == 2 and (
        len(lines) != 1 or len(lines[0]) > LONGEST or not lines[0].isprintable()
    ):
        count.note(
            "message", f"{what}: {outcome.stderr[:300]!r} ({len(outcome.stderr)} characters)"
        )


NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**62, 10**30, 1e-300, 1e300, float("inf"), float("nan")),
    *(
        "",
        "x",
        "x" * 5000,
        "\0",
        "\x1b[2J",
        "../../etc/passwd",
        "a:b",
        ":x",
        ".a:b",
        "os:system",
        "toy",
        "ü\u202e",
    ),
    *([], [[]], [None], {}, {"": ""}, {"a": {"b": {"c": []}}}, {1: 2}, {None: None}),
    *(
        "seed",
        "fold",
        "arm",
        "trial_id",
        "status",
        "calibration",
        "metric",
        "self",
        "name",
        "loss.",
        ".loss",
        "a..b",
    ),
    *(
        "auto",
        "tpe",
        "asha",
        "grid",
        "max",
        "min",
        "test",
        "all",
        "nan",
        "<= 1",
        ">= x",
        "digits?x=1",
    ),
    *(
        {"low": 0, "high": 1},
        {"low": 1, "high": 0},
        {"low": 0, "high": 1, "step": 1e-300},
        {"options": []},
    ),
    *(
        {"low": 1e-300, "high": 1e300, "log": True},
        {"options": [1, 1]},
        {"first": 0, "step": 0, "most": 10**9},
    ),
)
NAMES = (
    "~nosuch/x",
    "~nosuch",
    "file://~nosuch/x",
    "nosuch://x/y",
    "~",
    "/",
    "//x",
    "../x",
    "a\nb",
    " ",
    "a?b?c",
    "?=",
)
"""Of datasets and storages."""
SETTINGS = (
    "[",
    "{a",
    "]",
    "'",
    '"',
    "*a",
    "&a [*a]",
    "!!int ''",
    "!!python/name:os.system",
    "@",
    "%25",
    "a: b: c",
    "|",
    "2026-13-01",
    "9" * 5000,
    ".inf",
    "%00",
    "%ud800",
    "[1]",
    "{k: v}",
    "50",
    "",
    "-1",
    "true",
    "~nosuch/x",
    "[" * 99,
)
TAGS = (
    "int",
    "float",
    "bool",
    "null",
    "timestamp",
    "binary",
    "set",
    "omap",
    "pairs",
    "str",
    "seq",
    "map",
    "merge",
    "value",
)
FIELDS = tuple(
    dict.fromkeys(f.name for kind in (AblationGrid, Sweep, Arm, Replicates) for f in fields(kind))
)


def mutated_tree(random_: random.Random, tree: Any) -> Any:
    """`tree` with one place changed: replaced, deleted, doubled, or another field added."""
    tree = copy.deepcopy(tree)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in (
            list(node)
            if isinstance(node, dict)
            else range(len(node))
            if isinstance(node, list)
            else ()
        ):
            places.append((node, key))
            walk(node[key])

    walk(tree)
    for _ in range(random_.choice((1, 1, 1, 2, 4))):
        node, key = random_.choice(places)
        with contextlib.suppress(KeyError, IndexError):  # an earlier change has taken it away
            what = random_.randrange(6)
            if what == 0:
                del node[key]
            elif what == 1 and isinstance(node, dict):
                node[random_.choice(FIELDS)] = random_.choice(NASTY)
            elif what == 2 and isinstance(node, dict):
                node[random_.choice((*FIELDS, *(n for n in NASTY if isinstance(n, str | int))))] = (
                    node.pop(key)
                )
            elif what == 3:
                node[key] = [node[key]] * random_.choice((1, 2, 50))
            else:
                node[key] = copy.deepcopy(random_.choice(NASTY))
    return tree


def dataset(random_: random.Random) -> str:
    """A random dataset name: one that does not exist, or a known one with parameters."""
    if random_.random() < 0.4:
        return random_.choice((*NAMES, "a\0b", "\ud800"))
    keys = random_.choices(
        ("imbalance_factor", "lists", "size", "name", "self", "", "x.y", "\0"),
        k=random_.choice((1, 1, 2)),
    )
    of = random_.choice(
        (
            "digits-lt",
            "digits-lt",
            "digits",
            "cifar10-lt",
            "imagenet-lt",
            "images",
            "nosuch",
            "os:system",
        )
    )
    return f"{of}?{'&'.join(f'{key}={random_.choice(SETTINGS)}' for key in keys)}"


def mutated_study(random_: random.Random, tree: Any) -> Any:
    """`tree` with another dataset, or with an axis of which one value is of another type, by itself or zipped."""
    tree = copy.deepcopy(tree)
    plain = (None, 5, 0.5, True, [], {"k": "v"}) if random_.random() < 0.5 else NASTY
    other = dataset(random_) if random_.random() < 0.4 else copy.deepcopy(random_.choice(plain))
    if random_.random() < 0.3:
        tree["data"] = other
        return tree
    key, known = random_.choice(
        (("data", "digits-lt"), ("data", "digits-lt"), ("epochs", 1), ("loss", "supcon"), ("x", 1))
    )
    axis = {key: random_.sample([known, other], 2)}
    where = random_.randrange(4)
    if where < 2:
        tree["axes"] = {**tree.get("axes", {}), **axis}
    elif where == 2:
        tree["zipped"] = [{**axis, random_.choice(("batch_size", "data", "seed")): [8, 16]}]
    else:
        tree["subgrids"] = [{"axes": axis}]
    return tree


def tagged(random_: random.Random, text: str) -> str:
    """YAML in which a value or key has a tag, with what it had or with another value."""
    places = [match.end() for match in re.finditer(r"^ *(?:- )?(?:[\w.-]+: )?", text, re.MULTILINE)]
    at = random_.choice(places)
    value = random_.choice(
        (
            "",
            "''",
            "x",
            "-",
            "0x",
            "0b",
            "1:",
            "2026-13-01",
            "[]",
            "{}",
            "[a]",
            "{a: }",
            "'\\0'",
            "+",
            "_",
        )
    )
    value = value if random_.random() < 0.7 else text[at:].partition("\n")[0]
    return f"{text[:at]}!!{random_.choice(TAGS)} {value}\n{text[at:].partition(chr(10))[2]}"


def mutated_text(random_: random.Random, text: str) -> str:
    """`text` with characters changed, lines doubled or moved, or YAML's own means put in."""
    inserts = (
        "&a ",
        "*a",
        "<<: *a",
        "!!int ",
        "!!python/name:os.system ",
        "- ",
        ": ",
        "{",
        "[",
        "'",
        '"',
        "\t",
        "|",
        "2026-13-01",
        "0x" + "f" * 400,
        "9" * 5000,
        "[" * 300,
        "{a: " * 300,
        "%YAML 9.9\n",
        "---\n",
        "\x00",
        "~",
    )
    for _ in range(random_.choice((1, 2, 5))):
        at = random_.randrange(len(text) + 1)
        what = random_.randrange(5)
        if what == 0:
            text = text[:at] + text[at + random_.choice((1, 1, 5, 50)) :]
        elif what == 1:
            text = (
                text[:at]
                + chr(random_.choice((random_.randrange(32, 127), random_.randrange(0x2FFF))))
                + text[at:]
            )
        elif what == 2:
            text = text[:at] + random_.choice(inserts) + text[at:]
        elif what == 3:
            lines = text.splitlines(keepends=True)
            random_.shuffle(lines)
            text = (
                "".join(lines[: random_.randrange(len(lines) + 1)])
                if random_.random() < 0.3
                else text + text[at:]
            )
        else:
            text = text.replace(
                random_.choice(FIELDS), random_.choice([str(n) for n in NASTY[:40]]), 1
            )
    return text


def fuzz_files(count: Count, number: int, seed: int, folder: Path, keep: Keep) -> None:
    """`contrasweep plan` on mutated study files, from the number that was counted so far on."""
    trees = corpus()
    none = str(folder / "none")
    file = folder / "study.yaml"
    while count.commands < number and keep(count):
        i = count.commands
        random_ = random.Random(f"files {seed} {i}")
        tree = random_.choice(trees)
        if random_.random() < 0.25:
            tree = {**tree, "data": "digits-lt"}  # of others, which are not staged, less is planned
        # What is mutated: the tree, the study, its text, or a tag in its text.
        kind = random_.random()
        if kind < 0.3:
            tree = mutated_tree(random_, tree)
        elif kind < 0.6:
            tree = mutated_study(random_, tree)
        text = yaml.safe_dump(tree, sort_keys=False, width=1000)
        if kind > 0.8:
            text = tagged(random_, text)
        elif kind > 0.6:
            text = mutated_text(random_, text)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        storage = random_.choice(NAMES) if random_.random() < 0.02 else none
        words = ["plan", str(file), "--storage", storage, *(["--json"] if i % 7 == 0 else [])]
        outcome = command(*words)
        if outcome.hangs:  # what is imported, or counted for a machine, once is no part
            outcome = command(*words)
        before = len(count.examples)
        judge(count, outcome, f"file {i} --storage {storage}")
        if len(count.examples) > before and len(text) < 3000:
            count.examples[-1] += f"\n{text}"


def corpus() -> list[Any]:
    """The studies of search_spaces, and what the pages and search_spaces show as YAML, completed to a study."""
    modules = [
        importlib.import_module(f"contrasweep.search_spaces.{of.name}")
        for of in pkgutil.iter_modules(contrasweep.search_spaces.__path__)
    ]
    studies = {
        study.name: study
        for of in modules
        for study in vars(of).values()
        if isinstance(study, AblationGrid | Sweep)
    }
    pages = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    shown = [file.read_text() for file in sorted((ROOT / "search_spaces").glob("*.yaml"))]
    shown += re.findall(r"```yaml\n(.*?)```", pages, re.DOTALL)
    least = {
        "name": "s",
        "data": "digits-lt",
        "arms": {"a": {"trainable": "contrasweep.trainables.contrastive:train"}},
    }
    return [
        *(
            {**to_plain(study), **({} if study.replicates else {"folds": 2})}
            for study in studies.values()
        ),
        *({**least, **yaml.safe_load(t)} for t in shown),
    ]


def fill(storage: str) -> StudyRecords:
    """A study of eight trials that has left every kind of file."""
    train = "contrasweep.trainables.contrastive:train"
    grid = AblationGrid(
        name="fuzzed",
        arms={loss: Arm(train, config={"loss": loss, "epochs": 12}) for loss in ("supcon", "ocl")},
        axes={"batch_size": [8, 16]},
        data="digits-lt",
        folds=2,
        metric="f1_macro",
    )
    planned = plan(grid, storage=storage)
    records = StudyRecords(storage, grid.name)
    records.claim(study_document(planned))
    write_planned(records, planned.to_frame())
    for trial in planned.trials:
        _leave(records, trial)
        records.store.write(records.key(trial.id, "artifacts/figure.png"), b"\x89PNG\r\n\x1a\n")
    write_code(records, code_of(train))
    accept(records, [("aa", "bb")])
    pages = {
        trial.id: f"http://mlflow:5000/#/experiments/1/runs/{i}"
        for i, trial in enumerate(planned.trials)
    }
    write_links(
        records, TrackingAddress("http://mlflow:5000"), "http://mlflow:5000/#/experiments/1", pages
    )
    learned.write(records, records.read(records.finished()).values())
    archive_trials(records, [planned.trials[-1].id], "an example")
    plain = to_plain(grid)
    Path(storage, "fuzzed.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
    return records


def damaged(random_: random.Random, data: bytes, others: list[bytes]) -> tuple[str, bytes | None]:
    """Damage a file's bytes at random: the kind of damage, and the new content (None: the file is deleted)."""
    at = random_.randrange(len(data)) if data else 0
    kinds: dict[str, Callable[[], bytes | None]] = {
        "flip": lambda: (
            data[:at] + bytes([data[at] ^ (1 << random_.randrange(8))]) + data[at + 1 :]
            if data
            else b"x"
        ),
        "truncate": lambda: data[:at],
        "empty": lambda: b"",
        "list": lambda: b"[]",
        "null": lambda: b"null",
        "mapping": lambda: b"{}",
        "zeros": lambda: bytes(len(data)),
        "utf-16": lambda: data.decode("utf-8", "replace").encode("utf-16"),
        "appended": lambda: data + data[at:],
        "cut out": lambda: data[: at // 2] + data[at:],
        "another file": lambda: random_.choice(others),
        "gone": lambda: None,
    }
    kind = random_.choice(list(kinds))
    return kind, kinds[kind]()


def forged(random_: random.Random, data: bytes) -> bytes | None:
    """A JSON file with one value changed and its digest made right again, as somebody with access to the storage could
    do.
    """
    header = _HEADER.match(data)
    if header is None:
        return None
    tree = mutated_tree(random_, json.loads(b"{" + data[header.end() :]))
    if not isinstance(tree, dict) or not tree:
        return None
    with contextlib.suppress(TypeError, ValueError):
        body = (
            json.dumps({str(k): v for k, v in tree.items()}, indent=1).removeprefix("{\n").encode()
        )
        return (
            b'{"format_version": %s, "digest": "%s",\n' % (header[1], _digest(body).encode()) + body
        )
    return None


def fuzz_readings(count: Count, number: int, seed: int, folder: Path, keep: Keep) -> None:
    """Every reader in turn on storages of which one or two files were damaged, or one forged; from the number that was
    counted so far on."""
    whole = folder / "whole"
    records = fill(str(whole))
    trial = sorted(records.finished())[0]
    code = next(
        key for key in records.store.list("fuzzed/code/") if key.endswith(".zip")
    ).rpartition("/")[2][:8]
    keys = [*records.store.list("fuzzed/"), *records.store.list("calibration/")]
    contents = {key: records.store.read(key) for key in keys}
    table = functools.partial(command, "report", "fuzzed", "--json", "--storage")
    calm = json.loads(table(str(whole)).stdout)
    while count.commands < number and keep(count):
        i = count.commands
        random_ = random.Random(f"readings {seed} {i}")
        storage = folder / "damaged"
        shutil.rmtree(storage, ignore_errors=True)
        shutil.copytree(whole, storage, copy_function=os.link)
        store = StudyRecords(str(storage), "fuzzed").store
        kinds = []
        is_forged = random_.random() < 0.3
        for key in random_.sample(keys, random_.choice((1, 1, 2))):
            kind, data = ("forged", forged(random_, contents[key])) if is_forged else ("", None)
            if data is None:
                is_forged = False
                kind, data = damaged(random_, contents[key], list(contents.values()))
            kinds.append(f"{kind} {key}")
            if data is None:
                store.delete(key)
            else:
                store.write(key, data)
        reader, *rest = READERS[i % len(READERS)]
        study = str(whole / "fuzzed.yaml") if reader == "run" else "fuzzed"
        words = [word.replace("TRIAL", trial[:8]).replace("CODE", code) for word in rest]
        output = ["--output", str(folder / "report.html")] if "html" in words else []
        outcome = command(reader, study, *words, "--storage", str(storage), *output)
        judge(count, outcome, f"reading {i}: {reader} {' '.join(words)} after {'; '.join(kinds)}")
        if (
            reader == "report"
            and "--json" in words
            and not is_forged
            and outcome.status != 2
            and not outcome.traceback
        ):
            shown = json.loads(outcome.stdout)
            noticed = shown["broken"] or shown["statuses"] != calm["statuses"]
            if shown["table"] != calm["table"] and not noticed:
                count.note("silently different table", "; ".join(kinds))


def table(counts: dict[str, dict[str, Count]]) -> str:
    """The file of results: `counts` by seed, then by what was counted."""
    every = [count for of in counts.values() for count in of.values()]
    dates = sorted({date for count in every for date in count.dates})
    kinds = ("traceback", "hang", "message", "silently different table")
    head = (
        f"# Hostile study files and broken storages\n\n{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, "
        f"{platform.machine()}, {os.cpu_count()} shared cores; `python -m benchmarks.fuzz --seed SEED`. A hang is more "
        f"than {HANG_S:.0f} s of processor time in one command, a message one of several lines, of more than "
        f"{LONGEST:,} characters or with characters that a terminal obeys. Three in ten readings are of a file that "
        "was forged with the right digest; a table of these may differ.\n\n"
        "| what | seed | commands | accepted | refused | tracebacks | hangs | messages | silently different tables | "
        f"slowest, s | processor s |\n{'|---' * 11}|\n"
    )
    rows = [
        f"| {TITLES[name]} | {seed} | {count.commands} | {count.accepted} | {count.refused} | "
        + " | ".join(str(count.findings[kind]) for kind in kinds)
        + f" | {count.slowest_s:.1f} | {count.seconds:.0f} |"
        for seed, of in counts.items()
        for name, count in of.items()
        if count.commands
    ]
    return head + "\n".join(rows) + "\n"


def read_counts(file: Path) -> dict[str, dict[str, Count]]:
    """Counts of earlier runs: seed -> name -> count."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    return {
        seed: {
            name: Count(**{**count, "findings": Counter(count["findings"])})
            for name, count in of.items()
        }
        for seed, of in kept.items()
    }


def run() -> int:
    """Run everything; exit status 1 where anything was noted that must not happen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--readings", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop then, with what was counted"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "fuzz.json"
    )
    options = parser.parse_args()
    until: float = time.monotonic() + 60 * options.minutes
    output = options.output.resolve()
    counts = read_counts(output)
    counted = counts.setdefault(str(options.seed), {"files": Count(), "readings": Count()})
    built = functools.partial(get_command(application.app).main, prog_name="contrasweep")
    application.app = built  # type: ignore[assignment]  # built once

    def write() -> None:
        kept = {
            seed: {name: vars(count) for name, count in of.items()} for seed, of in counts.items()
        }
        output.write_text(json.dumps(kept, indent=1))
        output.with_suffix(".md").write_text(table(counts))

    def keep(count: Count) -> bool:
        count.dates = sorted({*count.dates, str(date.today())})
        if count.commands % KEEP_EVERY == 0:
            write()
        return time.monotonic() < until

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, contextlib.chdir(folder):
        fuzz_readings(counted["readings"], options.readings, options.seed, Path(folder), keep)
        fuzz_files(counted["files"], options.files, options.seed, Path(folder), keep)
    write()
    print(table(counts))
    print("\n\n".join(example for count in counted.values() for example in count.examples))
    return int(any(count.findings for count in counted.values()))


if __name__ == "__main__":
    sys.exit(run())
