"""Dotted keys: nested settings by one name each, in configs, axes, spaces, conditions, frozen bases and `--set`."""

import dataclasses

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import nowhere, train
from refusals import refused
from sweeps import drive, record_of, sweep

from contrasweep import AblationGrid, Arm, Campaign, Choice, Float, SpecError, SubGrid
from contrasweep.planning.grid import make_plan
from contrasweep.schema import checked, validate
from contrasweep.study import dotted
from contrasweep.study.file import load_study, to_plain, with_commands, with_sets
from contrasweep.study.space import active, drawn_from, sample

DATA = nowhere()
NAMES = st.sampled_from("abc")
TEXTS = st.recursive(
    st.sampled_from("xyz"), lambda inner: st.dictionaries(NAMES, inner, min_size=1), max_leaves=6
)
VALUES = st.one_of(
    st.integers(),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.lists(st.integers(), max_size=2),
)
NESTED = st.dictionaries(
    NAMES,
    st.recursive(VALUES, lambda inner: st.dictionaries(NAMES, inner), max_leaves=6),
    max_size=3,
)
COMPONENTS = st.dictionaries(NAMES, TEXTS, max_size=3)


@pytest.mark.slow
@given(NESTED)
def test_dotted_and_nested_keys_are_one_config(config):
    assert dotted.expand(dotted.flatten(config)) == config
    assert dotted.expand(config) == config


@pytest.mark.slow
@given(NESTED)
def test_a_config_is_got_by_the_keys_it_is_flattened_to(config):
    for key, value in dotted.flatten(config).items():
        assert dotted.lookup(config, key) == value
        assert dotted.lookup(config, f"{key}.nowhere") is None


@pytest.mark.slow
@given(NESTED, NESTED)
def test_what_is_merged_last_holds(below, above):
    merged = dotted.merge(below, above)
    assert all(
        dotted.holds(dotted.lookup(merged, key), value)
        for key, value in dotted.flatten(above).items()
    )
    assert dotted.merge(above, above) == above
    assert dotted.merge({}, above) == dotted.merge(above, {}) == above


@pytest.mark.slow
@given(COMPONENTS, COMPONENTS, COMPONENTS)
@settings(max_examples=300)
def test_components_merge_in_any_grouping(a, b, c):
    assert (
        dotted.merge(dotted.merge(a, b), c)
        == dotted.merge(a, dotted.merge(b, c))
        == dotted.merge(a, b, c)
    )


@pytest.mark.slow
@given(NESTED, NESTED)
def test_configs_that_do_not_clash_merge_in_any_order(a, b):
    empty = {} in [*dotted.flatten(a).values(), *dotted.flatten(b).values()]  # sets nothing
    if not empty and not dotted.clash(dotted.leaves(a), dotted.leaves(b)):
        assert dotted.merge(a, b) == dotted.merge(b, a)


def test_the_text_of_a_component_is_its_name():
    assert dotted.expand({"loss": "ocl", "loss.temperature": 0.2}) == {
        "loss": {"name": "ocl", "temperature": 0.2}
    }
    assert dotted.expand({"loss.temperature": 0.2, "loss": "ocl"}) == {
        "loss": {"temperature": 0.2, "name": "ocl"}
    }
    assert dotted.merge({"loss": {"name": "ocl", "m": 1}}, {"loss": "dcl"}) == {
        "loss": {"name": "dcl", "m": 1}
    }
    assert dotted.merge({"loss": "ocl"}, {"loss": "dcl"}) == {"loss": "dcl"}
    assert dotted.lookup({"loss": "ocl"}, "loss.name") == "ocl"


def plan(**fields):
    base = {
        "name": "s",
        "arms": {"a": Arm(train, config={"loss": "ocl"}), "b": Arm(train)},
        "data": "d",
        "folds": 5,
    }
    return make_plan(AblationGrid(**base | fields), lambda name: DATA)


def test_axes_zips_and_subgrids_set_inside_a_component():
    """Without `settings`, too: a trainable of the user's own gets its nested config."""
    planned = plan(
        axes={"loss.temperature": [0.1, 0.2]},
        zipped=[{"head.dim": [8, 16], "head.depth": [1, 2]}],
        subgrids=[SubGrid(arms=["a"], config={"head.dim": 4}, axes={"loss.margin": [1, 2]})],
    )
    first = planned.cells[0]
    last = planned.cells[-1]
    assert first.trials[0].config == {
        "head": {"depth": 1, "dim": 8},
        "loss": {"name": "ocl", "temperature": 0.1},
    }
    assert last.trials[0].config == {"loss": {"name": "ocl", "margin": 2}, "head": {"dim": 4}}
    assert list(planned.to_frame().columns) == [
        "trial_id",
        "arm",
        "loss.temperature",
        "head.dim",
        "head.depth",
        "loss.margin",
        "fold",
        "seed",
    ]
    assert (first.axes["head.dim"], last.axes["head.dim"]) == (8, 4)


def test_what_is_searched_is_not_fixed_too():
    with refused(SpecError, r"fixed or searched, not both, got 'loss.m'"):
        Arm(train, config={"loss": {"m": 1}}, space={"loss.m": Float(0, 1)})
    with refused(SpecError, r"two searched keys both set loss.m"):
        Arm(train, space={"loss.m": Float(0, 1), "loss": Choice([{"name": "ocl", "m": 2}])})
    assert Arm(train, config={"loss": "ocl"}, space={"loss.m": Float(0, 1)}).config == {
        "loss": "ocl"
    }


def test_a_condition_looks_inside_components():
    space = {
        "loss.m": Float(0, 1, when={"loss": ["ocl", "dcl"]}),
        "loss": Choice(["ocl", "supcon"]),
    }
    fixed = {"head": {"name": "mlp", "dim": 8}}
    assert sample(space, [0.5, 0.1], fixed) == {"loss": "ocl", "loss.m": 0.5}
    assert sample(space, [0.5, 0.9], fixed) == {"loss": "supcon"}
    assert active({"head": "mlp", "head.dim": [4, 8]}, fixed) and not active({"head.dim": 4}, fixed)
    whole = {"loss": {"name": "ocl", "m": 0.5, "soft": True}, **fixed}
    assert drawn_from(space, whole) == {"loss.m": 0.5, "loss": "ocl"}
    assert drawn_from(space, {"loss": {"name": "supcon", "m": 0.5}}) == {"loss": "supcon"}
    with refused(SpecError, match=r"head.depth.*known keys: head.dim, head.name, lr"):
        Arm(train, config=fixed, space={"lr": Float(0, 1, when={"head.depth": 1})})


def nested_value(trial):
    return (
        1 - abs(trial.config["opt"]["lr"] - 0.1) - 0.1 * (trial.config["opt"].get("name") == "slow")
    )


def test_a_search_draws_inside_components(tmp_path):
    space = {
        "opt": Choice(["slow", "fast"]),
        "opt.lr": Float(0.01, 1.0, log=True, when={"head.dim": 4}),
    }
    arms = {
        "base": Arm(f"{__name__}:train", config={"head.dim": 4}, space=space),
        "more": Arm(
            f"{__name__}:train", {"head": "mlp", "opt.lr": 0.1}, {"head.depth": Choice([1, 2, 3])}
        ),
    }

    def record(trial, notes, status):
        return record_of(trial, notes, status, metrics={"accuracy": nested_value(trial)})

    study = sweep(arms=arms, searcher="random", trials_per_arm=3)
    ended, confirmed = drive(study, tmp_path, record=record)
    best = confirmed[-1].best
    assert set(best["base"]) == {"head", "opt"} and set(best["base"]["opt"]) == {"name", "lr"}
    assert best["more"]["head"]["name"] == "mlp"
    assert {t.config["head"]["depth"] for t, _ in ended if t.arm == "more"} <= {1, 2, 3}


def test_arms_that_a_loop_makes_of_one_mapping_keep_their_settings():
    config = {"loss": {"name": "ocl"}, "betas": [0.9]}
    arms = []
    for number in (1, 2):
        config["loss"]["margin"] = config["betas"][0] = number
        arms.append(Arm("m:f", config))
    assert [arm.config["loss"]["margin"] for arm in arms] == [1, 2]
    assert [arm.config["betas"] for arm in arms] == [[1], [2]]


SHARED = {"loss": "ocl", "head.dim": 4, "kind": {"name": "x", "p": 1}}
STUDY_FILE = {
    "name": "s",
    "data": "d",
    # The file has an anchor and an alias for the config.
    "arms": {name: {"trainable": "m:f", "config": SHARED} for name in ("a.1", "b")},
    "axes": {"opt.lr": [0.1]},
    "zipped": [{"batch.size": [1, 2]}],
}


@pytest.mark.parametrize(
    ("sets", "at", "value"),
    [
        (["arms.a.1.config.loss.temperature=.2"], "loss", {"name": "ocl", "temperature": 0.2}),
        (["arms.a.1.config.loss=dcl"], "loss", "dcl"),
        (["arms.a.1.config.head.dim=8"], "head", {"dim": 8}),
        (["arms.a.1.config.head.depth=2"], "head", {"dim": 4, "depth": 2}),
        (["arms.a.1.config.kind=y"], "kind", {"name": "y", "p": 1}),
        (["arms.a.1.config.kind={name: y}"], "kind", {"name": "y"}),
        (["arms.a.1.config.new.of.all=1"], "new", {"of": {"all": 1}}),
    ],
)
@pytest.mark.parametrize("first", ["file", "object"])
def test_set_reaches_inside_components(tmp_path, monkeypatch, sets, at, value, first):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(STUDY_FILE))
    name = str(path)
    if first == "object":
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / f"declared_{abs(hash(tuple(sets)))}.py").write_text(
            f"from contrasweep.study.file import load_study\nSTUDY = load_study({name!r})\n"
        )
        name = f"declared_{abs(hash(tuple(sets)))}:STUDY"
    arms = load_study(name, sets).arms
    assert arms["a.1"].config[at] == value
    assert arms["b"] == load_study(str(path)).arms["b"]


def test_set_reaches_the_command_of_an_object_of_a_module():
    changed = ["incumbent.command.1=new.py", "incumbent.metrics=loss.csv"]
    command = lambda script, metrics: Arm(  # noqa: E731
        command=["python", script, "{lr}"], config={"lr": 1}, metrics=metrics, code=__file__
    )
    first = Campaign("c", command("old.py", "acc.csv"), "digits-lt")
    fields = with_sets(with_commands(to_plain(first)), changed)
    assert validate(Campaign, fields).incumbent == command("new.py", "loss.csv")
    study = AblationGrid("s", {"a": first.incumbent}, "digits-lt")
    fields = with_sets(with_commands(to_plain(study)), [f"arms.a.{changed[0][10:]}"])
    assert validate(AblationGrid, fields).arms["a"] == command("new.py", "acc.csv")


def test_set_adds_and_changes_dotted_axes(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(STUDY_FILE))
    loaded = load_study(
        str(path),
        [
            "axes.opt.lr=[1, 2]",
            "axes.loss.m=[3]",
            "zipped.0.batch.kind=[a, b]",
            "labels.opt.lr=rate",
        ],
    )
    assert loaded.labels == {"opt.lr": "rate"}
    assert loaded.axes == {"opt.lr": [1, 2], "loss.m": [3]}
    assert loaded.zipped == [{"batch.size": [1, 2], "batch.kind": ["a", "b"]}]
    with refused(SpecError, "a plain value has no fields"):
        load_study(str(path), ["name.first=x"])
    for index in ("4", "²"):
        says = rf"--set zipped.{index}.x: there is no such place in the study, got '{index}'"
        with refused(SpecError, match=says):
            load_study(str(path), [f"zipped.{index}.x=1"])


@checked
@dataclasses.dataclass(frozen=True)
class Inner:
    number: int = 1
    switch: bool = True
    either: int | bool | None = None


@checked
@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()


def test_a_wrong_value_is_told_all_types_of_its_field_and_none_of_its_neighbour_s():
    with refused(
        SpecError,
        match=r"^inner\.either: input should be a valid integer.*, or .*valid boolean.*'q'$",
    ):
        validate(Outer, {"inner": {"either": "q"}})
    with refused(
        SpecError, match=r"^inner\.number: input should be a valid integer, [a-z ]*, got 'q'$"
    ):
        validate(Outer, {"inner": {"number": "q", "switch": "q"}})


@pytest.mark.parametrize("order", [1, -1])
def test_a_set_goes_to_the_longest_key_that_the_study_has(order):
    config = dict([("optimizer", {"name": "sgd"}), ("optimizer.lr", 0.1)][::order])
    changed = with_sets({"arms": {"a": {"config": config}}}, ["arms.a.config.optimizer.lr=0.5"])
    assert changed["arms"]["a"]["config"] == {"optimizer": {"name": "sgd"}, "optimizer.lr": 0.5}
