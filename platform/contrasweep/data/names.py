"""Names of datasets with parameters, such as `digits-lt?imbalance_factor=50`, and their importers."""

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
    """The name of a dataset with its parameters."""

    name: str  # short, or a dotted path
    settings: Config  # the parameters that are given, sorted by name

    @property
    def text(self) -> str:
        """The name as a study has it: `digits-lt?imbalance_factor=50`."""
        query = "&".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.name}?{query}" if query else self.name

    @property
    def folder(self) -> str:
        """The name of its folder below `datasets/`: `digits-lt-imbalance_factor-50`."""
        # Without `=`, which readers of Parquet folders take for a partition.
        parts = [self.name, *(f"{key}-{value}" for key, value in self.settings.items())]
        return "-".join(parts).replace("/", "_").replace(":", "-")

    def checked(self) -> Any:
        """Return the importer's settings object with these parameters, and defaults for the others.

        `SpecError`, with the dataset's name, for an unknown or wrong parameter; `DataError` for an unknown dataset.
        """
        try:
            return importer(self).settings(**self.settings)
        except SpecError as error:
            raise error.at(self.name) from None


def parse(text: str, settings: Config | None = None) -> Name:
    """Return the parts of `name?key=value&key=value`; values are read as YAML: 50 is a number, `true` a truth value.

    `settings` are further parameters; one in both has the value in `settings`. `SpecError` where a value is no YAML. It
    is not checked that there is such a dataset.
    """
    name, _, query = text.partition("?")
    parameters = {
        key: read_yaml(value, f"{name}.{key}", "a dataset's parameter is not YAML")
        for key, value in parse_qsl(query, keep_blank_values=True)
    }
    parameters |= dict(settings or {})
    return Name(name, dict(sorted(parameters.items())))


def importer(wanted: Name) -> Importer:
    """Return the importer of a dataset: a shipped one, one of an installed package, or one at a dotted path.

    `DataError`, with the known names, where there is no such dataset; `SpecError` where a dotted path has no importer.
    """
    from contrasweep.data.importers import DATASETS  # its modules import scikit-learn

    if wanted.name in DATASETS:
        return DATASETS[wanted.name]
    # The path of a dataset that an installed package names; any other name is returned as it is.
    path = path_of("datasets", wanted.name)
    if ":" in path:
        return user_importer(path)
    known_names = [*DATASETS, *installed("datasets")]
    raise DataError(
        f"there is no dataset {wanted.name!r}; {choose_from('datasets', known_names, wanted.name)}"
    )


def user_importer(path: str) -> Importer:
    """Return the importer at a dotted path; `SpecError` where there is none.

    At the path is an `Importer`, or a function `(source: Path, settings) -> Content`. If the function has settings, its
    attribute `settings` is their class.
    """
    import_from_here()
    target = import_path(path, "dataset", "dataset importer", also_allowed=Importer)
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
        """Call the user's function; any error that it raises becomes a `DataError` in one line."""
        try:
            content = target(source, settings)
        except DataError:
            raise
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise DataError(
                f"{path} cannot read {source} ({type(error).__name__}: {error})"
            ) from None
        if not isinstance(content, Content):
            raise DataError(
                f"{path} must give a contrasweep.data.content.Content, not {type(content).__name__}"
            )
        return content

    # The first line of the function's docstring describes the dataset.
    about = (inspect.getdoc(target) or path).splitlines()[0]
    settings = getattr(target, "settings", NoSettings)
    source = "what this importer reads"
    return Importer(
        read, about, licence="that of its owner", source=source, settings=settings, own=True
    )
