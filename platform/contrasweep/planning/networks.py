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
    """Return the datasets of a stored study as they are staged here, by their names in its declaration.

    Args:
        document: The study's study.json.
        storage: The folder or address of the storage, where staged datasets are looked for.
        named: What the user has given: texts such as names and addresses of the command, or a declared study as
            mappings and lists (`study.file.named_by`). An address must stand in one of them.

    Raises:
        SpecError: The storage names an address that the user has not `named`.
        DataError: One is not staged.
    """
    spec = document.whole
    # The study's own dataset, then those of the axis `data` of a grid, each once.
    names = list(dict.fromkeys([spec["data"], *(spec.get("axes") or {}).get("data", ())]))
    _check_named(names, document, named)
    return {name: resolve(name, folds=spec.get("folds"), storage=storage) for name in names}


def data_of(record: Record, manifests: Mapping[str, Manifest]) -> Manifest:
    """Return the manifest of a trial's dataset, of `manifests` by name; `DataError` where none has its content.

    It is found by the digest, whatever its name.
    """
    for manifest in manifests.values():
        if manifest.digest == record.data.digest:
            return manifest
    raise DataError(
        f"dataset {record.data.name!r} has other content here than when {record.study} was trained"
    )


def loader(document: StudyDocument, record: Record, named: Sequence[object]) -> Callable[..., Any]:
    """Return the function `load_model` that loads the network of the trial of `record`, imported.

    `document` is its study's study.json, `named` what the user has given; see `datasets`.

    Raises:
        SpecError: The trial names code that is not shipped and that the user has not `named`, or there is no loader.
    """
    import_from_here()
    _check_named([record.trainable, record.config], document, named)
    return import_path(loader_path(record.trainable, record.config), "STUDY", "loader")  # type: ignore[no-any-return]


def _check_named(stored: object, document: StudyDocument, named: Sequence[object]) -> None:
    """Raise `SpecError` where the values `stored` of a storage name code or an address that may not be used.

    What is shipped may be, and what the user has `named`; see `trust.check_named`.
    """
    allowed = [*methods().values(), *ADAPTERS.values(), PATH, *named]
    check_named(
        stored,
        allowed,
        "STUDY",
        f"give the study, or the file or module:NAME that declares {document.name}",
    )
