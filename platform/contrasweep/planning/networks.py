"""The function and the datasets that load the networks of a stored study.

A storage is not trusted: only code and addresses that are shipped or that the user has named are used.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from contrasweep.commands import COMMAND_PATH
from contrasweep.commands.functions import ADAPTERS, loader_path
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.data.resolving import resolve
from contrasweep.errors import DataError
from contrasweep.imports import import_from_here, import_path
from contrasweep.storage.record import Record
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.arm import methods
from contrasweep.study.trust import check_named


def datasets(document: StudyDocument, storage: str, named: Sequence[object]) -> dict[str, Manifest]:
    """Return the datasets of a stored study as they are staged here, by their names in its declaration.

    Args:
        document: The study's study.json.
        storage: The folder or address of the storage, where staged datasets are looked for.
        named: Texts that the user has given in the command, or a declared study as mappings and lists
            (`study.file.named_by`).

    Raises:
        SpecError: A dataset of the stored study is an address that is in none of `named`.
        DataError: A dataset is not staged.
    """
    spec = document.required_spec
    # The study's own dataset, then those of the axis `data` of a grid, each once.
    names = list(dict.fromkeys([spec["data"], *_on_axes(spec)]))
    _check_named(names, document, named)
    return {name: resolve(name, folds=spec.get("folds"), storage=storage) for name in names}


def _on_axes(grid: Config) -> Iterator[str]:
    """Yield the names of datasets that are values of a grid's axis `data`, also in zipped axes and sub-grids."""
    for axes in (grid.get("axes") or {}, *(grid.get("zipped") or ())):
        yield from axes.get("data", ())
    for inner in grid.get("subgrids") or ():
        yield from _on_axes(inner)


def data_of(record: Record, manifests: Mapping[str, Manifest]) -> Manifest:
    """Return the manifest, among `manifests` (by name), of the dataset that the record's trial was trained on.

    It is found by the dataset's digest, whatever its name. Raises `DataError` where none has this digest.
    """
    for manifest in manifests.values():
        if manifest.digest == record.data.digest:
            return manifest
    raise DataError(
        f"dataset {record.data.name!r} has other content here than when {record.study} was trained"
    )


def loader(document: StudyDocument, record: Record, named: Sequence[object]) -> Callable[..., Any]:
    """Import and return the function `load_model` that loads the network of the trial of `record`.

    `document` is the study.json of the trial's study, `named` what the user has given; see `datasets`.

    Raises:
        SpecError: The trial names code that is not shipped and that the user has not `named`, or there is no loader.
    """
    import_from_here()
    _check_named([record.trainable, record.config], document, named)
    return import_path(loader_path(record.trainable, record.config), "STUDY", "loader")  # type: ignore[no-any-return]


def _check_named(stored: object, document: StudyDocument, named: Sequence[object]) -> None:
    """Raise `SpecError` where `stored`, which was read from a storage, names code or an address that nobody has named.

    Allowed are the parts that contrasweep ships, and what the user has `named`: a storage alone must not choose code
    that runs. `document` is that of the study, for the hint.
    """
    # Shipped are methods, adapters, and the trainable of commands.
    allowed = [*methods().values(), *ADAPTERS.values(), COMMAND_PATH, *named]
    # The error points to the argument STUDY of the command, and ends the hint with what else can be given.
    check_named(
        stored,
        allowed,
        "STUDY",
        f"give the study, or the file or module:NAME that declares {document.name}, or ",
    )
