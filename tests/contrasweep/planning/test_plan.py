"""Planning: cells, pairing, de-duplication, identity."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import nowhere, train
from refusals import refused

from contrasweep import AblationGrid, Arm, SpecError, SubGrid
from contrasweep.canonical import Config, canonical, digest
from contrasweep.data.manifest import Folds
from contrasweep.planning import planner
from contrasweep.planning.grid import make_plan
from contrasweep.planning.networks import datasets
from contrasweep.running.prepare import study_document
from contrasweep.trial import Trial

DATA = nowhere(classes=("x", "y"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def plan(**fields):
    base = {
        "name": "s",
        "arms": {"a": Arm(train), "b": Arm(train, config={"x": 9})},
        "data": "d",
        "folds": 5,
    }
    return make_plan(AblationGrid(**base | fields), lambda name: DATA)


def test_settings_of_nested_subgrids_are_merged():
    inner = SubGrid(axes={"p": [7]}, config={"z": 2})
    planned = plan(subgrids=[SubGrid(arms=["b"], config={"w": 1}, subgrids=[inner])])
    assert dict(planned.cells[-1].trials[0].config) == {"x": 9, "w": 1, "z": 2, "p": 7}


@pytest.mark.parametrize(
    "asks",
    [{"mode": "min"}, {"metric": "f1_macro"}, {"seeds": [0, 1]}, {"axes": {"p": [1]}}],
    ids=repr,
)
def test_what_a_study_asks_is_in_the_digest_of_its_plan_and_what_it_says_is_not(asks):
    assert (
        plan(**asks).digest
        != plan().digest
        == plan(description="of digits", labels={"a": "A"}).digest
    )


TRIAL = Trial("s", "a", "m:f", {"x": 1}, DATA, fold=0, seed=0)


@pytest.mark.parametrize(
    "change",
    [
        {"arm": "b"},
        {"trainable": "m:g"},
        {"config": {"x": 2}},
        {"fold": 1},
        {"seed": 1},
        {"data": DATA.with_folds(Folds(4))},
    ],
)
def test_what_a_trial_is_changes_its_id(change):
    assert dataclasses.replace(TRIAL, **change).id != TRIAL.id


@pytest.mark.parametrize(
    "change",
    [
        {"study": "t"},
        {"config": {"x": 1.0}},
        {"data": dataclasses.replace(DATA, uri="s3://b/d", name="e")},
    ],
)
def test_where_a_trial_runs_does_not(change):
    assert dataclasses.replace(TRIAL, **change).id == TRIAL.id


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
@settings(max_examples=50)
def test_a_config_has_one_id_however_it_is_held(config):
    ids = {
        Trial("s", "a", "m:f", c, DATA).id
        for c in (config, Config(config), dict(reversed(config.items())), canonical(config))
    }
    assert len(ids) == 1


@given(JSON, JSON)
@settings(max_examples=50)
def test_digests_differ_where_values_do(a, b):
    assert (digest(a) == digest(b)) == (
        canonical(a) == canonical(b) and repr(canonical(a)) == repr(canonical(b))
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"folds": None}, "data: the dataset has no rows in split 'test'"),
        ({"axes": {"p": [object]}}, "a config value must be text, a number"),
        (
            {"axes": {"p": ["\ud800"]}},
            "axes.p[0]: a text must have a UTF-8 form, without lone surrogates, got '\\ud800'",
        ),
        ({"axes": {"p": [{"\ud800": 1}]}}, "axes.p[0]: a text must have a UTF-8 form"),
        ({"description": "\ud800"}, "description: a text must have a UTF-8 form"),
    ],
)
def test_a_wrong_study_is_refused_with_place_and_value(fields, says):
    with refused(SpecError, says):
        plan(**fields)


def test_the_datasets_of_a_stored_study_are_also_those_of_zipped_axes_and_of_sub_grids(storage):
    inner = SubGrid(subgrids=[SubGrid(axes={"data": ["digits", "digits-lt"]})])
    for fields in (
        {"zipped": [{"data": ["digits", "digits-lt"], "lr": [1, 2]}]},
        {"subgrids": [inner]},
    ):
        study = AblationGrid("s", {"a": Arm("toy:train")}, "digits", **fields)
        document = study_document(planner.plan(study))
        assert list(datasets(document, storage, [])) == ["digits", "digits-lt"]
