"""Nested settings chosen by name: what is accepted, what is filled in, which errors stand where."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest
from folders import make_files
from refusals import refused

from contrasweep.canonical import digest
from contrasweep.components import Component, Table, parameters_class, signature_fields
from contrasweep.errors import SpecError
from contrasweep.imports import PARTS_GROUP, installed
from contrasweep.schema import OMIT_DEFAULT, checked, field_help, json_schema, resolved_config


class SGD:
    def __init__(
        self,
        weights: list[float],
        lr: float,
        *,
        weight_decay: Annotated[float, pydantic.Field(ge=0)] = 0.0,
        momentum: float = 0.9,
        nesterov: Annotated[bool, OMIT_DEFAULT] = False,
    ) -> None:
        self.given = (weights, lr, weight_decay, momentum, nesterov)


def adam(weights: list[float], lr: float, *, betas: tuple[float, float] = (0.9, 0.999)) -> Any:
    return weights, lr, betas


@checked
class Ready:
    rank: int
    """How many."""
    steps: int = 2


def outside(weights: list[float], lr: float, *, rho: float = 0.5) -> Any:
    return weights, lr, rho


OPTIMIZERS: Table[Any] = Table("optimizer", {"sgd": SGD, "adam": adam, "ready": Ready})


@checked
class Base:
    epochs: int = 1
    """How often the data
    are seen."""
    device: Annotated[str, OMIT_DEFAULT] = "auto"


@checked
class Settings(Base):
    optimizer: Component = OPTIMIZERS.setting("sgd", weight_decay=1e-4)
    """Takes the steps."""
    threads: int = 1


SGD_HERE = {"name": "sgd", "weight_decay": 1e-4, "momentum": 0.9}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, SGD_HERE),
        ({"optimizer": "sgd"}, SGD_HERE),
        ({"optimizer": {"momentum": 0.5}}, SGD_HERE | {"momentum": 0.5}),
        (
            {"optimizer": {"weight_decay": 0, "nesterov": True}},
            SGD_HERE | {"weight_decay": 0.0, "nesterov": True},
        ),
        ({"optimizer": "adam"}, {"name": "adam", "betas": [0.9, 0.999]}),
        (
            {"optimizer": {"name": "adam", "betas": [0.5, 0.9]}},
            {"name": "adam", "betas": [0.5, 0.9]},
        ),
        ({"optimizer": {"name": "ready", "rank": 3}}, {"name": "ready", "rank": 3, "steps": 2}),
        ({"optimizer": f"{__name__}:outside"}, {"name": f"{__name__}:outside", "rho": 0.5}),
    ],
)
def test_a_component_has_all_its_parameters_and_is_built_again_from_them(
    given: dict[str, Any], chosen: dict[str, Any]
) -> None:
    settings = Settings(**given)
    assert resolved_config(settings) == {"epochs": 1, "optimizer": chosen, "threads": 1}
    assert Settings(**resolved_config(settings)) == settings


def test_the_component_is_called_with_its_parameters() -> None:
    built = Settings(optimizer={"momentum": 0.5}).optimizer.build([1.0], 0.1)
    assert built.given == ([1.0], 0.1, 1e-4, 0.5, False)
    assert Settings(optimizer="adam").optimizer.build([], 1.0) == ([], 1.0, (0.9, 0.999))
    assert Settings(optimizer={"name": "ready", "rank": 3}).optimizer.settings == Ready(rank=3)


def test_a_table_gives_equal_components_for_the_same_values_and_nobody_changes_them() -> None:
    table: Table[Any] = Table("optimizer", {"sgd": SGD, "adam": adam})
    first = table.choose({"name": "sgd", "momentum": 0.5})
    assert table.choose({"name": "sgd", "momentum": 0.5}) == first
    assert (
        table.choose({"name": "sgd", "momentum": 0.5}, "", {"weight_decay": 0.1}).parameters[
            "weight_decay"
        ]
        == 0.1
    )
    assert "weight_decay" in first.to_plain() and first.parameters["weight_decay"] == 0.0
    assert table.choose({"name": "sgd", "nesterov": True}).settings.nesterov
    with refused(SpecError, "weight_decay"):  # a value that was accepted says nothing of another
        table.choose({"name": "sgd", "momentum": 0.5, "weight_decay": -1})
    table.choose({"name": "adam", "betas": (0.5, 0.9)}).to_plain()["betas"].append(7)
    assert table.choose({"name": "adam", "betas": (0.5, 0.9)}).to_plain() == {
        "name": "adam",
        "betas": [0.5, 0.9],
    }


def test_what_says_where_is_left_out_until_it_is_set() -> None:
    assert "device" not in resolved_config(Settings())
    assert resolved_config(Settings(device="cpu"))["device"] == "cpu"


def test_a_parameter_that_is_required_is_named_at_its_dotted_place() -> None:
    with refused(SpecError, begins="optimizer.rank: this field is required"):
        Settings(optimizer={"name": "ready"})


@pytest.mark.parametrize(
    ("given", "place"), [("lion", "optimizer"), ({"name": "lion"}, "optimizer.name")]
)
def test_a_part_of_two_packages_is_refused_at_the_place_of_its_name(
    given: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("one", "two"):
        folder = tmp_path / f"site-packages/{package}-1.dist-info"
        folder.mkdir(parents=True)
        make_files(
            folder,
            {
                "METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n",
                "entry_points.txt": f"[{PARTS_GROUP}]\noptimizers.lion = {package}:Lion\n",
            },
        )
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    installed.cache_clear()
    try:
        with refused(SpecError, f"{place}: two packages have a part of this name, got 'lion'"):
            Settings(optimizer=given)
    finally:
        installed.cache_clear()


def test_help_stands_at_the_field_and_reaches_the_schema() -> None:
    help_ = field_help(Settings)
    assert help_ == {
        "epochs": "How often the data are seen.",
        "device": "",
        "optimizer": "Takes the steps.",
        "threads": "",
    }
    properties = json_schema(Settings)["properties"]
    assert properties["epochs"]["description"] == "How often the data are seen."
    text, sgd, adam_, ready = properties["optimizer"]["anyOf"]
    assert text["examples"] == ["sgd", "adam", "ready"] and properties["optimizer"]["description"]
    assert set(sgd["properties"]) == {"name", "weight_decay", "momentum", "nesterov"}
    assert adam_["properties"]["name"] == {"const": "adam"}
    assert ready["properties"]["rank"]["description"] == "How many."


def test_parameters_without_plain_defaults_are_left_to_the_function() -> None:
    def function(x: int, y: int = 2, *, reduce: Any = sum, size: int = 3) -> None: ...

    cls = parameters_class("function", signature_fields(function, after=1), more=True)
    table: Table[Any] = Table("thing", {"function": function}, takes=lambda entry, given: cls)
    component = table.choose({"name": "function", "other": 1})
    assert component.to_plain() == {"name": "function", "y": 2, "size": 3, "other": 1}
    assert component.parameters == {"y": 2, "size": 3, "other": 1}


def test_a_partial_is_a_component_too() -> None:
    def function(x: int, *, size: int = 3) -> int:
        return x * size

    table: Table[Any] = Table("thing", {"twice": functools.partial(function, size=2)})
    assert table.choose("twice").build(4) == 8
    assert table.choose({"name": "twice", "size": 5}).build(4) == 20


def test_a_default_of_one_takes_a_fraction_unless_it_is_annotated_as_whole():
    def loss(embeddings, labels, margin=1, *, power: int = 2, hard=False, classes=(1, 2)):
        raise NotImplementedError

    parameters = parameters_class("loss", signature_fields(loss))
    assert [parameters(margin=value).margin for value in (1, 0.5, 2)] == [1, 0.5, 2]
    assert parameters(classes=(0.5, 1)).classes == (0.5, 1)
    one, same = (digest(vars(parameters(margin=value))) for value in (1, 1.0))
    assert one == same, "one trial"
    for wrong, said in (
        ({"power": 0.5}, "power: .*integer"),
        ({"margin": "far"}, "margin"),
        ({"hard": 0.5}, "hard"),
    ):
        with refused(SpecError, match=said):
            parameters(**wrong)


@checked
class Numbers:
    count: int = 1
    share: Annotated[float, pydantic.Field(ge=0)] = 0.5
    widths: tuple[int, ...] | None = None
    weights: Mapping[str, float | str] = pydantic.Field(default_factory=dict)
    ready: bool = False
    inner: Ready | None = None


@pytest.mark.parametrize(
    "given",
    [
        {"count": True},
        {"share": False},
        {"widths": [1, True]},
        {"weights": {"a": True}},
        {"ready": 1},
        {"inner": {"rank": True}},
    ],
)
def test_no_number_is_a_truth_value_nor_the_reverse(given: dict[str, Any]) -> None:
    with refused(SpecError, match=next(iter(given))):
        Numbers(**given)
