"""Spaces and studies: every point of every space is a trial that could run."""

import itertools
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep.errors import SpecError
from contrasweep.schema import validate
from contrasweep.search_spaces import quickstart, similarity_losses
from contrasweep.search_spaces.similarity_losses import (
    LOSSES,
    PAIRS,
    TEMPERATURE,
    space,
)
from contrasweep.study import dotted
from contrasweep.study.grid import AblationGrid
from contrasweep.study.space import active, sample
from contrasweep.trainables.contrastive.settings import Settings


@pytest.mark.parametrize(("loss", "similarity"), PAIRS)
@settings(max_examples=10)
@given(data=st.data())
def test_every_point_of_a_space_is_a_valid_trial(loss, similarity, data):
    parameters = space(loss, similarity)
    point = data.draw(st.lists(st.floats(0, 1), min_size=len(parameters), max_size=len(parameters)))
    config = sample(parameters, point)
    nested = dotted.expand(config)
    settings = Settings(**dotted.merge({"loss": {"name": loss, "similarity": similarity}}, nested))
    assert (settings.loss.name, settings.loss.parameters["similarity"]) == (loss, similarity)
    assert set(config) == {name for name, p in parameters.items() if active(p.when, nested)}


def test_one_study_has_every_pair_of_a_loss_and_a_similarity_that_can_be_built():
    arms = {
        arm: Settings(**dict(one.config))
        for arm, one in similarity_losses.SIMILARITY_BY_LOSS.arms.items()
    }
    for loss, similarity in itertools.product(LOSSES, TEMPERATURE):
        try:
            Settings(loss={"name": loss, "similarity": similarity})
        except SpecError:
            assert f"{loss}-{similarity}" not in arms
        else:
            assert arms[f"{loss}-{similarity}"].loss.parameters["similarity"] == similarity
    assert len(arms) == 44


def test_the_quickstart_is_thirty_trials_and_the_same_in_yaml():
    study = quickstart.STUDY
    assert len(list(study.cells())) * (study.folds or 1) * len(study.seeds) == 30
    text = Path(quickstart.__file__).with_suffix(".yaml").read_text()
    assert validate(AblationGrid, yaml.safe_load(text)) == study
