"""The trainable that an arm names: imported by its path, and its settings resolved for each config of the arm."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pydantic

from contrasweep.canonical import Config
from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.schema import resolved_config
from contrasweep.study.study import Arm


def trainable_path(arm: Arm) -> str:
    """The dotted path of an arm's trainable, which is part of its trials' identity."""
    if isinstance(arm.trainable, str):
        return arm.trainable
    return f"{arm.trainable.__module__}:{arm.trainable.__qualname__}"


def find_trainable(arm: Arm, place: str) -> Callable[..., Any]:
    """The arm's generator function; `SpecError` at `place` when its path leads nowhere."""
    return arm.trainable if callable(arm.trainable) else import_path(arm.trainable, place)


class SettingsOfArms:
    """The settings of a study's trials, built once for each config.

    A trainable's `settings` are built as `Settings(**config)`, so that a wrong key or value costs nothing. What a trial
    keeps is all of them, defaults too. A method `resolve(self, data: Manifest) -> Self` makes concrete what depends on
    the dataset, by its content and never by its name. A trainable without `settings` has the config as it is declared.
    """

    def __init__(self, arms: Mapping[str, Arm]) -> None:
        self.functions = {name: find_trainable(arm, f"arms.{name}.trainable") for name, arm in arms.items()}
        _check_names(arms, self.functions)
        self._built: dict[tuple[Any, str], Any] = {}
        self._resolved: dict[tuple[Any, str, str], Config] = {}

    def build(self, arm: str, config: Config, axes: Collection[str] = ()) -> Any:
        """The settings of `arm` under `config`, None where its trainable has none; `SpecError` where they are wrong,
        which names the one of `axes` that is, or the arm's config."""
        function = self.functions[arm]
        if (function, config.text) not in self._built:
            try:
                self._built[function, config.text] = _build(function, config)
            except SpecError as error:
                raise error.at(_place(error, arm, axes)) from None
        return self._built[function, config.text]

    def resolve(self, arm: str, config: Config, data: Manifest, function: Callable[..., Any] | None = None) -> Config:
        """The whole config of a trial of `arm` on `data`; of one whose trainable is `function`, where that is another
        than the arm's own, around it."""
        of = function or self.functions[arm]
        key = (of, config.text, data.digest)
        if key not in self._resolved:
            built = self.build(arm, config) if function is None else _build(of, config)
            try:
                self._resolved[key] = _resolve(built, config, data)
            except SpecError as error:
                raise error.at(f"arms.{arm}.config") from None
        return self._resolved[key]


def resolved(function: Callable[..., Any], config: Config, data: Manifest) -> Config:
    """The whole config of a trial of the trainable `function` on `data`."""
    return _resolve(_build(function, config), config, data)


def _check_names(arms: Mapping[str, Arm], functions: Mapping[str, Callable[..., Any]]) -> None:
    """One dotted path, one function: a trial knows its trainable by its path alone, so the second of two functions of
    one path (closures of one factory, lambdas) would never be trained."""
    first: dict[str, str] = {}
    for name, arm in arms.items():
        path = trainable_path(arm)
        other = first.setdefault(path, name)
        if functions[other] != functions[name]:
            raise SpecError(
                f"the trainables of arms {other!r} and {name!r} are two functions of one name",
                place=f"arms.{name}.trainable",
                value=path,
                hint="make what differs between them a setting in the arms' config, or give each a function of its "
                "own name",
            )


def _build(function: Callable[..., Any], config: Config) -> Any:
    settings = getattr(function, "settings", None)
    return None if settings is None else settings(**config)


def _resolve(settings: Any, config: Config, data: Manifest) -> Config:
    if callable(resolve := getattr(settings, "resolve", None)):
        settings = resolve(data)
    known = dataclasses.is_dataclass(settings) or isinstance(settings, pydantic.BaseModel)
    return Config(resolved_config(settings)) if known else config


def _place(error: SpecError, arm: str, axes: Collection[str]) -> str:
    """Whether an axis gave what is wrong, or the arm's config."""
    place = f"{error.place}."
    return "axes" if any(place.startswith(f"{axis}.") for axis in axes) else f"arms.{arm}.config"
