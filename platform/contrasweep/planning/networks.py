"""What loads the networks of a study: of code and data, what is shipped and what the user has named."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contrasweep.commands import PATH
from contrasweep.commands.functions import ADAPTERS, loader_path
from contrasweep.data.manifest import Manifest
from contrasweep.data.resolving import resolve
from contrasweep.errors import DataError
from contrasweep.imports import import_from_here, import_path
from contrasweep.storage.record import Record
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.arm import methods
from contrasweep.study.trust import check_named


def datasets(document: StudyDocument, storage: str, named: Sequence[object]) -> dict[str, Manifest]:
    """Return the datasets of a study as they are staged here, by their names in its declaration.

    Raises:
        SpecError: The storage names an address that the user has not `named`.
        DataError: One is not staged.
    """
    spec = document.whole
    names = list(dict.fromkeys([spec["data"], *(spec.get("axes") or {}).get("data", ())]))
    _check_named(names, document, named)
    return {name: resolve(name, folds=spec.get("folds"), storage=storage) for name in names}


def data_of(record: Record, manifests: Mapping[str, Manifest]) -> Manifest:
    """Return the manifest of a trial's dataset; `DataError` where none of `manifests` has its content."""
    for manifest in manifests.values():
        if manifest.digest == record.data.digest:
            return manifest
    raise DataError(
        f"dataset {record.data.name!r} has other content here than when {record.study} was trained"
    )


def loader(document: StudyDocument, record: Record, named: Sequence[object]) -> Callable[..., Any]:
    """Return the function `load_model` that loads the network of a trial.

    Raises:
        SpecError: The trial names code that is not shipped and that the user has not `named`, or there is no loader.
    """
    import_from_here()
    _check_named([record.trainable, record.config], document, named)
    return import_path(loader_path(record.trainable, record.config), "STUDY", "loader")  # type: ignore[no-any-return]


def _check_named(stored: object, document: StudyDocument, named: Sequence[object]) -> None:
    """Raise `SpecError` where a storage names what neither the user has named nor is shipped."""
    allowed = [*methods().values(), *ADAPTERS.values(), PATH, *named]
    check_named(
        stored,
        allowed,
        "STUDY",
        f"give the study, or the file or module:NAME that declares {document.name}",
    )
