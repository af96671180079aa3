"""Every study of the family can be planned: its configs are settings, its spaces hold values that are."""

import pytest
from places import ROOT

from contrasweep.study import dotted
from contrasweep.study.grid import AblationGrid
from contrasweep.trainables.review_helpfulness import MODELS, Settings
from contrasweep.trainables.review_helpfulness.studies import claims
from contrasweep.trainables.review_helpfulness.studies import tables as studies

REPORTS = ROOT / "docs/claims"


def test_the_main_table_has_the_eight_models():
    assert list(studies.MAIN_TABLE.arms) == list(studies.MAIN_TABLE_SMALL.arms) == list(MODELS)
    assert len(MODELS) == 8


@pytest.mark.parametrize(
    "study", [value for value in vars(claims).values() if isinstance(value, AblationGrid)]
)
def test_reports_call_the_data_as_the_committed_ones_do(study):
    (file,) = REPORTS.glob(f"{study.name}*.md")
    synthetic = " (synthetic)" * ("SYNTHETIC" in study.data)
    assert file.read_text().startswith(
        f"**{file.stem} on {(study.labels or {})[study.data]}{synthetic}: {study.metric} "
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("u", [0.0, 0.5, 1.0])
def test_values_of_the_spaces_are_settings(model, u):
    point = {name: parameter.at(u) for name, parameter in studies.SPACES[model].items()}
    Settings(**dotted.merge(studies.SEARCH.arms[model].config, dotted.expand(point)))
