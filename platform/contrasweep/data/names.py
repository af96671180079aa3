"""Dataset names with parameters, `digits-lt?imbalance_factor=50`, and the importer each one means."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from contrasweep.config import Config
from contrasweep.data.content import Content, Importer, NoSettings
from contrasweep.data.yaml_text import read_yaml
from contrasweep.errors import DataError, SpecError, choose_from
from contrasweep.imports import import_from_here, import_path, installed, path_of


@dataclass(frozen=True)
class Name:
    """The name of a dataset, short or dotted, and its given parameters, sorted by name."""

    name: str
    settings: Config

    @property
    def text(self) -> str:
        """Return the name as a study has it: `digits-lt?imbalance_factor=50`."""
        query = "&".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.name}?{query}" if query else self.name

    @property
    def folder(self) -> str:
        """Return the folder's name below `datasets/`: `digits-lt-imbalance_factor-50`.

        It has no `=`, which readers of Parquet folders take for a partition.
        """
        return (
            "-".join([self.name, *(f"{key}-{value}" for key, value in self.settings.items())])
            .replace("/", "_")
            .replace(":", "-")
        )

    def checked(self) -> Any:
        """Return the importer's settings object with these parameters, defaults for the others.

        `SpecError` naming the dataset on an unknown or wrong parameter, `DataError` for an unknown dataset.
        """
        try:
            return importer(self).settings(**self.settings)
        except SpecError as error:
            raise error.at(self.name) from None


def parse(text: str, settings: Config | None = None) -> Name:
    """Return the name in `name?key=value&key=value`; values are read as YAML: 50 is a number, `true` a truth value.

    `settings` are further parameters, which win. `SpecError` where a value is no YAML; whether there is such a dataset
    is not looked at.
    """
    name, _, query = text.partition("?")
    settings_in_name = {
        key: read_yaml(value, f"{name}.{key}", "a dataset's parameter is not YAML")
        for key, value in parse_qsl(query, keep_blank_values=True)
    }
    return Name(name, dict(sorted((settings_in_name | dict(settings or {})).items())))


def importer(wanted: Name) -> Importer:
    """Return the importer of a shipped dataset, of one of an installed package, or at the dotted path.

    `DataError` lists the known ones where there is none; `SpecError` where a dotted path leads to none.
    """
    from contrasweep.data.importers import DATASETS  # its modules import scikit-learn

    if wanted.name in DATASETS:
        return DATASETS[wanted.name]
    if ":" in (path := path_of("datasets", wanted.name)):
        return own_importer(path)
    known_names = [*DATASETS, *installed("datasets")]
    raise DataError(
        f"there is no dataset {wanted.name!r}; {choose_from('datasets', known_names, wanted.name)}"
    )


def own_importer(path: str) -> Importer:
    """Return the importer at a dotted path; `SpecError` where nothing is there.

    It is an `Importer`, or a function `(source: Path, settings) -> Content`. An attribute `settings` of the function
    is the class of its settings.
    """
    import_from_here()
    target = import_path(path, "dataset", "dataset importer", of=Importer)
    if isinstance(target, Importer):
        return target
    try:
        inspect.signature(target).bind("source", "settings")
    except TypeError as error:
        hint = f"{error}; declare it as def read(source, settings) -> Content"
        raise SpecError(
            "an importer takes a source and settings", place="dataset", value=path, hint=hint
        ) from None

    def read(source: Path, settings: Any) -> Content:
        """Call the user's function; whatever it raises becomes a `DataError` in one line."""
        try:
            content = target(source, settings)
        except DataError:
            raise
        except (Exception, SystemExit) as error:  # someone else's code
            raise DataError(
                f"{path} cannot read {source} ({type(error).__name__}: {error})"
            ) from None
        if not isinstance(content, Content):
            raise DataError(
                f"{path} must give a contrasweep.data.content.Content, not {type(content).__name__}"
            )
        return content

    # The first line of its docstring says what it is.
    about = (inspect.getdoc(target) or path).splitlines()[0]
    settings = getattr(target, "settings", NoSettings)
    return Importer(
        read, about, "that of its owner", "what this importer reads", settings, own=True
    )
