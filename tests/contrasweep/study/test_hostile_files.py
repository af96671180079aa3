"""Whatever a study file holds, the answer is a plan or one line that names the place: no traceback, no hang."""

import tracemalloc

import pytest
import yaml
from command_line import contrasweep, refusal
from refusals import refused
from typer.main import get_command

from contrasweep import AblationGrid, Arm, SpecError, Sweep
from contrasweep.cli.app import app
from contrasweep.data.yaml_text import MAX_DEPTH, MAX_NODES, read_yaml
from contrasweep.imports import import_path
from contrasweep.study.file import load_study

BASE = "name: s\ndata: digits\nfolds: 2\narms:\n  a: {trainable: 'contrasweep.trainables.contrastive:train'}\n"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "a bomb of aliases": (BOMB, "holds too many values"),
    "an alias of itself": ("a: &a [*a]", "a value that contains it"),
    "a merge of itself": ("a: &a {<<: *a}", "a value that contains it"),
    "deep lists": ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    "deep mappings": ("a: " + "{a: " * 400 + "}" * 400, "nested too deeply"),
    "no such month": (
        BASE + "description: 2026-13-01",
        "not YAML; a value cannot be read: month must be in 1..12",
    ),
    "no number": (BASE + "alpha: !!int x", "not YAML; a value cannot be read"),
    "a number of 5000 digits": (BASE + "max_failures: " + "9" * 5000, "a value cannot be read"),
    "a number of 4000 bits": (BASE + "max_failures: 0x" + "f" * 1000, "at most 63 bits"),
    "a Python object": ("a: !!python/object/apply:os.system ['touch pwned']", "not YAML"),
    "a long type": (BASE + f"type: {'x' * 19_000}", "there is no such type of study"),
    "a long file": (BASE + "#" * 500_000, "the file is too long, got 500"),
    "a long value": (BASE + f"description: {'x' * 20_001}", "a value is too long"),
    "a long key": (BASE + f"{'x' * 100_000}: 1", "s.yaml: "),
    "a long name": (BASE.replace("name: s", f"name: {'x' * 15_000}"), "name: string should"),
    "a key that is a list": (BASE + "axes: {[1, 2]: [3]}", "s.yaml"),
    "a null byte": (BASE + 'description: "\\0\\e[2J"\nmetric: "a\\e[2J"', "printable characters"),
    "too many trials": (
        BASE + "seeds: " + str(list(range(20_000))) + "\naxes: {epochs: [1,2,3,4,5,6,7,8,9]}",
        "at most",
    ),
    "not UTF-8": (b"name: \xff\xfe", "it is no UTF-8"),
    "empty": ("", "the file holds no mapping"),
    "a list": ("[1]", "the file holds no mapping"),
}


def loaded(folder):
    return load_study(str(folder / "s.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_one_short_line(case, tmp_path):
    content, says = HOSTILE[case]
    (tmp_path / "s.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    done = contrasweep("plan", "s.yaml", folder=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("contrasweep: ") and says in done.stderr
    assert len(done.stderr.splitlines()) == 1 and len(done.stderr) < 3000
    assert done.stderr.strip().isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def test_what_python_may_give_and_no_file_is_one_line_too():
    config = {}
    config["itself"] = [config]
    with refused(SpecError, "Arm: a list or mapping contains itself"):
        Arm("toy:train", config)
    with refused(SpecError, f"STUDY: {NO_PATH}"):
        load_study("s\0.yaml")


NO_PATH = "this machine can have no such path"


def test_a_dataset_that_can_be_no_path_is_named_with_its_rule_and_place(tmp_path):
    (tmp_path / "s.yaml").write_text(BASE.replace("digits", r'"a\0b"'))
    named = rf"contrasweep: data: {NO_PATH}, got 'a\x00b'"
    assert refusal(tmp_path, "plan", "s.yaml").startswith(named)


def _with_storage(group, *words):
    """Each command that has --storage, with something for each of its arguments."""
    for name, command in getattr(group, "commands", {}).items():
        yield from _with_storage(command, *words, name)
    if any(option.name == "storage" for option in group.params):
        needed = [option for option in group.params if option.required]
        yield [
            *words,
            *(
                w
                for o in needed
                for w in (["x"] if o.param_type_name == "argument" else [o.opts[0], "x"])
            ),
        ]


@pytest.mark.parametrize("words", _with_storage(get_command(app)), ids=" ".join)
def test_a_storage_of_a_user_that_is_not_known_is_one_line_of_every_command(words, tmp_path):
    done = contrasweep(*words, "--storage", "~nosuch/x", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"contrasweep: --storage: {NO_PATH}, got '~nosuch/x'")
    assert len(done.stderr.splitlines()) == 1 and list(tmp_path.iterdir()) == []


def test_a_bomb_takes_no_memory():
    tracemalloc.start()
    with refused(SpecError):
        read_yaml(BOMB, "s.yaml")
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


@pytest.mark.parametrize("path", ["../../etc/passwd:x", "/etc/mine:f", "a b:f", ".mine:f"])
def test_a_path_of_a_file_is_no_dotted_name(path):
    with refused(SpecError, "the encoder's module is a dotted name"):
        import_path(path, "arms.a", "encoder")


@pytest.mark.slow
def test_what_is_counted_are_the_values_that_aliases_stand_for():
    assert read_yaml("a: &a [1, 2]\nb: [*a, *a]\nc: {<<: {d: 1}}", "x") == {
        "a": [1, 2],
        "b": [[1, 2]] * 2,
        "c": {"d": 1},
    }
    read_yaml(f"[{'1,' * (MAX_NODES - 10)}]", "x")
    read_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH, "x")
    assert read_yaml("1e-4", "x") == yaml.safe_load("0.0001")


def test_python_is_checked_as_files_are():
    arm = {"a": Arm("m:f")}
    with refused(SpecError, "a folder of the storage"):
        AblationGrid("datasets", arm, "d")
    with refused(SpecError, "column of every table"):
        Sweep("s", arm, "d", trials_per_arm=1, metric="fold")
    with refused(
        SpecError, match=r"at most 50,000 cells and 200,000 trials.*1,000,000,000,000 cells"
    ):
        AblationGrid("s", arm, "d", axes={axis: list(range(1000)) for axis in "pqrt"})
    assert (
        AblationGrid(
            "s", arm, "d", axes={"p": [1, 2]}, zipped=[{"q": [1, 2, 3], "r": [1, 2, 3]}]
        ).cell_count()
        == 6
    )


SEARCH = BASE.replace(
    "contrastive:train'", "contrastive:train', space: {lr: {type: float, low: 0, high: 1}}"
)
HUGE = {
    "folds": BASE.replace("folds: 2", "folds: 1_000_000_000_000"),
    "repeats": BASE + "repeats: 1_000_000_000_000",
    "replicates": BASE + "replicates: {first: 2, step: 1, most: 1_000_000_000_000}",
    "repeated replicates": BASE
    + "replicates: {first: 2, step: 1, most: 1_000_000_000_000, of: repeats}",
    "configurations": SEARCH + "type: sweep\ntrials_per_arm: 1_000_000_000_000",
    "a budget": SEARCH + "type: sweep\nbudget: {trials: 1_000_000_000_000}",
    "folds of a search": SEARCH.replace("folds: 2", "folds: 1_000_000_000_000")
    + "type: sweep\ntrials_per_arm: 2",
    "replicates of a search": SEARCH
    + "type: sweep\ntrials_per_arm: 2\nreplicates: {first: 2, step: 1, most: 1_000_000_000_000}",
}


@pytest.mark.parametrize("text", HUGE.values(), ids=list(HUGE))
def test_a_number_that_nobody_can_mean_is_refused_before_anything_is_counted_out(text, tmp_path):
    (tmp_path / "s.yaml").write_text(text)
    tracemalloc.start()
    with refused(SpecError, match=r"at most 50,000 cells and 200,000 trials.*000,000,000,000"):
        loaded(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("axes: {a: [1]}\nfolds: 2\naxes: {b: [1]}", "'axes'; it stands in line 1 and in line 3"),
        (
            "arms:\n  a: {config: {x: 1}}\n  'a': {config: {x: 2}}",
            "'a'; it stands in line 2 and in line 3",
        ),
        ("config: {x: 1, y: 2, x: 3}", "'x'; it stands in line 1 and in line 1"),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n  x: 3", "'x'; it stands in line 4 and in line 5"),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(text, where):
    with refused(SpecError, begins=f"s.yaml: a mapping has each key once, got {where}"):
        read_yaml(text, "s.yaml")


def test_a_time_of_day_is_a_text():
    assert read_yaml("[1:30, 1:30:00.5, 90]", "f") == ["1:30", "1:30:00.5", 90]


def test_a_key_beside_what_is_merged_replaces_it():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {<<: *a}\nd: {x: 1}"
    assert read_yaml(text, "s.yaml")["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "arms: {no: {trainable: contrastive}}",
            "got False; YAML reads no, off, yes and on as true or false: put a",
        ),
        ("arms: {a: {trainable: off}}", "got False; YAML reads no, off"),
        (
            "arms: {a: {trainable: contrastive, config: {on: 1}}}",
            "config.1: input should be a valid string, got True; YAML reads no",
        ),
        ("arms: {a: {command: [python, x.py, {lr}]}}", 'as a mapping: put them in quotes, "{lr}"'),
        (
            "arms: {a: {command: [python, x.py, {lr: [], n: }]}}",
            "command.2: input should be a valid string, got {'lr': [], 'n': None}",
        ),
    ],
)
def test_a_text_that_yaml_reads_as_another_value_is_asked_for_in_quotes(text, says, tmp_path):
    (tmp_path / "s.yaml").write_text(f"name: s\ndata: digits\n{text}\n")
    with refused(SpecError, says):
        loaded(tmp_path)


def test_a_file_with_a_byte_order_mark_is_read_and_seeds_go_on_from_those_that_it_names(tmp_path):
    growing = "replicates: {first: 2, step: 1, most: 3}\nseeds: [5, 6]"
    (tmp_path / "s.yaml").write_text(f"\ufeff{BASE}{growing}")
    study = loaded(tmp_path)
    assert (study.folds, study.all_seeds) == (2, [5, 6, 7])


def test_a_study_whose_module_lacks_a_package_of_a_shorter_name_says_which(tmp_path, monkeypatch):
    (tmp_path / "lacked_studies.py").write_text("import lacked\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with refused(
        SpecError, "module cannot be imported, got 'lacked_studies'; No module named 'lacked'"
    ):
        load_study("lacked_studies:STUDY")
    with refused(SpecError, "cannot be imported, got 'lacking.studies'; No module named"):
        load_study("lacking.studies:STUDY")
