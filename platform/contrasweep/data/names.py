"""Dataset names with parameters, `digits-lt?imbalance_factor=50`, and the importer each one means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import yaml

from contrasweep.data.content import Importer
from contrasweep.errors import DataError, SpecError, choose_from


@dataclass(frozen=True)
class Name:
    """A dataset and its parameters, only those given, sorted by name."""

    name: str
    settings: Mapping[str, Any]

    @property
    def text(self) -> str:
        """How it is written in a study."""
        query = "&".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.name}?{query}" if query else self.name

    @property
    def folder(self) -> str:
        """The folder's name below `datasets/`; no `=`, which readers of Parquet folders take for a partition."""
        return "-".join([self.name, *(f"{key}-{value}" for key, value in self.settings.items())]).replace("/", "_")

    def checked(self) -> Any:
        """The importer's settings object; `SpecError` naming the dataset on an unknown or wrong one."""
        try:
            return importer(self).settings(**self.settings)
        except SpecError as error:
            raise error.at(self.name) from None


def parse(text: str, settings: Mapping[str, Any] | None = None) -> Name:
    """Read `name?key=value&key=value`; values are read as YAML, so 50 is a number and `true` a truth value."""
    name, _, query = text.partition("?")
    settings_in_name = {key: yaml.safe_load(value) for key, value in parse_qsl(query, keep_blank_values=True)}
    return Name(name, dict(sorted((settings_in_name | dict(settings or {})).items())))


def importer(wanted: Name) -> Importer:
    """The dataset's importer; `DataError` listing the known ones."""
    from contrasweep.data.importers import DATASETS  # its modules import scikit-learn

    if wanted.name not in DATASETS:
        raise DataError(f"there is no dataset {wanted.name!r}; {choose_from('datasets', list(DATASETS), wanted.name)}")
    return DATASETS[wanted.name]
