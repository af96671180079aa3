"""Finds the manifest of a dataset by its name in a study: quickly, and without writing to the storage for a plan."""

import logging
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from contrasweep.data import folds as fold_rules
from contrasweep.data import staging
from contrasweep.data.cache import cache_folder, discard, locked
from contrasweep.data.manifest import MANIFEST, NO_DATA, Folds, Manifest
from contrasweep.data.names import Name, importer, parse
from contrasweep.defaults import STORAGE
from contrasweep.errors import (
    DataError,
    NotStagedError,
    PackageMissingError,
    SpecError,
    choose_from,
)
from contrasweep.shell import command_line
from contrasweep.storage.json_file import MAX_BYTES
from contrasweep.storage.store import open_store

log = logging.getLogger(__name__)


def resolve(name: str, *, folds: int | None = None, storage: str, write: bool = False) -> Manifest:
    """Return the manifest of the dataset `name`.

    Args:
        name: A folder or s3:// address with a manifest; or a dataset's name, perhaps with parameters. A name is looked
            for in `<storage>/datasets`, then in the folder CONTRASWEEP_DATA. `none` means that programs bring their own
            data; its manifest has no rows.
        folds: The number of folds; None: the dataset's own train and test split.
        storage: The folder or address of the storage.
        write: A dataset that comes with the package is staged in the node's cache. With `write` it is copied to the
            storage too, where other nodes reach it. Its digest is the same.

    Raises:
        NotStagedError: The dataset is not staged; the error has the command that stages it.
        DataError: There is no such dataset, or it is broken.
        SpecError: The dataset cannot have so many folds.
    """
    manifest = find(name, storage=storage, write=write)
    if manifest.kind == NO_DATA:
        return manifest.with_folds(Folds(folds, NO_DATA) if folds else None)
    return with_folds(manifest, folds)


def find(name: str, *, storage: str, write: bool = False) -> Manifest:
    """Return the manifest of the dataset `name` with the folds that it was staged with; a study may ask for others.

    The arguments, and the errors but `SpecError` on folds, are those of `resolve`.
    """
    if name == NO_DATA:
        return Manifest(NO_DATA, "", NO_DATA, {})
    manifest = _read(name)
    return _by_name(parse(name), storage, write) if manifest is None else manifest


def storage_of(data: Manifest) -> str:
    """Return the folder or address of the storage that a staged dataset is in: its `uri` without `/datasets/<name>`.

    `resolve` and `find` look there for other datasets.
    """
    # The dataset is at <storage>/datasets/<name>.
    return data.uri.rstrip("/").rpartition("/")[0].removesuffix("/datasets")


def read_manifest(uri: str, place: str = "storage") -> Manifest | None:
    """Return the manifest of the dataset at `uri`, a folder or address; None where there is none.

    Raises `DataError` if the manifest is broken, `StorageError` if it cannot be read, and `SpecError` at `place` if
    this machine can have no such path.
    """
    store = open_store(uri, place=place)
    try:
        return Manifest.from_json(store.read(MANIFEST, MAX_BYTES), store.uri)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read(name: str) -> Manifest | None:
    """Return the manifest at the folder or address `name`; None where there is none and `name` may be a dataset's name.

    `DataError` where there is none and `name` can only be a path or an address: `s3://...`, `./...`, `/...`, `~...`.
    """
    manifest = read_manifest(name, "data")
    if manifest is None and ("://" in name or name.startswith((".", "/", "~"))):
        raise DataError(
            f"{name} holds no staged dataset ({MANIFEST} is not there); stage one there with: "
            f"{command_line('data stage', 'NAME', to=name)}"
        )
    return manifest


def _by_name(wanted: Name, storage: str, write: bool) -> Manifest:
    """Return the manifest of the dataset `wanted`: as it was staged, else as it comes with the package.

    `storage`, `write` and the errors are those of `resolve`.
    """
    # The first place is in the storage.
    places = [f"{base.rstrip('/')}/{wanted.folder}" for base in _bases(storage)]
    for place in places:
        manifest = read_manifest(place)
        if manifest is not None:
            return manifest
    try:
        chosen = importer(wanted)
    except DataError as error:
        raise DataError(f"{error}; {_where_looked(wanted, storage, places)}") from None
    wanted.checked()
    # The dataset is made from published files, which only the user can name.
    if chosen.source:
        settings = [f"{key}={value}" for key, value in wanted.settings.items()]
        command = command_line("data stage", wanted.name, source="PATH", set=settings, to=places[0])
        looked = _where_looked(wanted, storage, places)
        raise NotStagedError(wanted.text, command, chosen.source, looked)
    try:
        bundled = _bundled(wanted)
    except PackageMissingError as error:
        # A machine that only plans and submits lacks packages that stage datasets. It takes the copy that another
        # machine has made.
        copies = [manifest for manifest in staged_in(storage) if manifest.name == wanted.text]
        if len(copies) == 1:
            return copies[0]
        command = command_line("data stage", wanted.text, to=places[0])
        raise PackageMissingError(wanted.text, error.package, command) from None
    if not write:
        return bundled
    # Another version of the package may bring other data of this name: the digest gives each its own folder.
    return staging.copy(bundled, f"{places[0]}-{bundled.digest[:8]}")


def _bundled(wanted: Name) -> Manifest:
    """Return a dataset that comes with the package; each version of the package stages it once in the node's cache.

    `PackageMissingError` where a package that stages it is not installed.
    """
    folder = cache_folder() / "bundled" / f"{wanted.folder}-{version('contrasweep')}"
    manifest = _if_whole(folder)
    if manifest is not None:
        return manifest
    with locked(f"bundled-{wanted.folder}"):
        # Another process may have staged it while this one waited for the lock.
        return _if_whole(folder) or staging.stage(wanted.text, str(folder))


def _if_whole(folder: Path) -> Manifest | None:
    """Return the manifest in `folder` if all shards are there and have the sizes that it states; else None.

    A shard that is no plain file of its size is deleted, so that staging can write it anew. Digests are not checked
    here, but when shards are read.
    """
    manifest = read_manifest(str(folder))
    for shard in manifest.shards if manifest else ():
        file = folder / shard.file
        if file.is_symlink() or not file.is_file() or file.stat().st_size != shard.bytes:
            discard(file)
            manifest = None
    return manifest


def _where_looked(wanted: Name, storage: str, places: Sequence[str]) -> str:
    """Return in words where a name was looked for, what is staged there, and which name may have been meant."""
    names = {manifest.name for manifest in staged_in(storage)}
    staged = choose_from("staged datasets", names, wanted.name)
    return f"looked in {' and '.join(places)}; {staged}"


def with_folds(manifest: Manifest, count: int | None) -> Manifest:
    """Return `manifest` with `count` folds (None: its own train and test split); `SpecError` where it cannot have them.

    Rule and seed are those that the dataset was staged with; without any, they are `stratified` and 0.
    """
    staged = manifest.folds
    if count is None:
        if not manifest.rows("test") and manifest.labelled:
            hint = f"folds={staged.count}" if staged else "folds=5"
            raise SpecError(
                f"dataset {manifest.name!r} has no test split of its own",
                place="folds",
                value=None,
                hint=f"hold out folds of it instead, with {hint}",
            )
        return manifest.with_folds(None)
    # Folds that the owner of the data has made are never changed.
    if staged and staged.rule == "given" and staged.count != count:
        raise SpecError(
            f"dataset {manifest.name!r} comes with {staged.count} folds of its own, which are never changed",
            place="folds",
            value=count,
            hint=f"use folds={staged.count}",
        )
    folds = Folds(count, staged.rule, staged.seed) if staged else Folds(count)
    fold_rules.check(folds, manifest.rows("train"), manifest.counts.get("train", {}).get("groups"))
    return manifest.with_folds(folds)


def default_place(
    name: str, settings: dict[str, object] | None = None, storage: str = STORAGE
) -> str:
    """Return the place to which `data stage` writes a dataset by default: `<storage>/datasets/<folder>`.

    `resolve` looks for the dataset there. `name` may have parameters; `settings` has further ones.
    """
    return f"{storage.rstrip('/')}/datasets/{parse(name, settings).folder}"


def staged_in(storage: str) -> list[Manifest]:
    """Return all datasets below `<storage>/datasets` and CONTRASWEEP_DATA, sorted by name.

    Broken manifests, and those of other programs, are left out with a warning.
    """
    manifests = []
    for base in _bases(storage):
        store = open_store(base)
        for key in store.list():
            if Path(key).name == MANIFEST:
                uri = f"{store.uri.rstrip('/')}/{Path(key).parent.as_posix()}"
                try:
                    manifests.append(Manifest.from_json(store.read(key, MAX_BYTES), uri))
                except DataError as error:
                    log.warning("%s", error)
    return sorted(manifests, key=lambda manifest: (manifest.name, manifest.uri))


def _bases(storage: str) -> list[str]:
    """Return the folders or addresses that datasets are looked for in: the storage's, and CONTRASWEEP_DATA if set."""
    bases = [f"{storage.rstrip('/')}/datasets", os.environ.get("CONTRASWEEP_DATA")]
    return [base for base in bases if base]
