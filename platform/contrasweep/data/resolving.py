"""Finds the manifest for a study's name of its data: fast, and without writing where a plan must not write."""

import difflib
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
from contrasweep.errors import DataError, NotStagedError, SpecError
from contrasweep.imports import install_command
from contrasweep.shell import command_line
from contrasweep.storage.json_file import MAX_BYTES
from contrasweep.storage.store import open_store


def resolve(name: str, *, folds: int | None, storage: str, write: bool = False) -> Manifest:
    """Return the manifest of `name`, with `folds` folds (None: the dataset's own train and test split).

    `name` is a folder or s3:// address with a manifest, or a dataset's name with optional parameters. A name
    is looked for in `<storage>/datasets`, then in the folder CONTRASWEEP_DATA; a dataset that comes with the
    package is staged on demand: into the node's cache, and with `write` into the storage, where other nodes
    reach it. For `none`, data that programs bring, the manifest has no rows. The digest is the same either way.
    `NotStagedError` names the command that would stage it; `SpecError` if it cannot have so many folds.
    """
    manifest = find(name, storage=storage, write=write)
    if manifest.kind == NO_DATA:
        return manifest.with_folds(Folds(folds, NO_DATA) if folds else None)
    return with_folds(manifest, folds)


def find(name: str, *, storage: str, write: bool = False) -> Manifest:
    """Return the manifest of `name` as it was staged, whatever folds a study asks for; see `resolve`.

    Of `none` it is one without rows.
    """
    if name == NO_DATA:
        return Manifest(NO_DATA, "", NO_DATA, {})
    manifest = _read(name)
    return _by_name(parse(name), storage, write) if manifest is None else manifest


def storage_of(data: Manifest) -> str:
    """Return the storage that `data` lies in, so that `resolve` and `find` look for other datasets beside it."""
    # <storage>/datasets/<name>
    return data.uri.rstrip("/").rpartition("/")[0].removesuffix("/datasets")


def read_manifest(uri: str, place: str = "storage") -> Manifest | None:
    """Return the manifest of the dataset at `uri`, a folder or address; None where it has none.

    Raises `DataError` if it is broken, `StorageError` if it cannot be read, `SpecError` at `place` if there can be no
    such path.
    """
    store = open_store(uri, place=place)
    try:
        return Manifest.from_json(store.read(MANIFEST, MAX_BYTES), store.uri)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read(name: str) -> Manifest | None:
    """Return the manifest at the folder or address `name`; None for a plain name without one in the current folder.

    What can only be a path or an address (`s3://...`, `./...`, `/...`, `~...`) must hold a dataset: else `DataError`.
    """
    manifest = read_manifest(name, "data")
    if manifest is None and ("://" in name or name.startswith((".", "/", "~"))):
        raise DataError(
            f"{name} holds no staged dataset ({MANIFEST} is not there); stage one there with: "
            f"{command_line('data stage', 'NAME', to=name)}"
        )
    return manifest


def _by_name(wanted: Name, storage: str, write: bool) -> Manifest:
    """Return the manifest of a dataset that was staged, else of one that comes with the package.

    With `write` the latter is copied into the storage; else it stays in the node's cache.

    Raises `NotStagedError` with the command that stages it, and `DataError` where no such dataset is known.
    """
    places = [
        f"{base.rstrip('/')}/{wanted.folder}"
        for base in (f"{storage.rstrip('/')}/datasets", os.environ.get("CONTRASWEEP_DATA"))
        if base
    ]
    for place in places:
        if (manifest := read_manifest(place)) is not None:
            return manifest
    try:
        chosen = importer(wanted)
    except DataError as error:
        raise DataError(f"{error}; {_where_looked(wanted, storage, places)}") from None
    wanted.checked()
    # It needs published files, which only the user can name.
    if chosen.source:
        settings = [f"{key}={value}" for key, value in wanted.settings.items()]
        command = command_line("data stage", wanted.name, source="PATH", set=settings, to=places[0])
        looked = _where_looked(wanted, storage, places)
        raise NotStagedError(wanted.text, command, chosen.source, looked)
    try:
        bundled = _bundled(wanted)
    # A machine that only plans and submits lacks what stages datasets; a copy that another machine made will do.
    except ModuleNotFoundError as error:
        copies = [manifest for manifest in staged_in(storage) if manifest.name == wanted.text]
        if len(copies) == 1:
            return copies[0]
        raise DataError(
            f"dataset {wanted.text!r} is not staged, and to stage it here needs the package {error.name} "
            f"({install_command('all')}); {_where_looked(wanted, storage, places)}"
        ) from None
    return staging.copy(bundled, f"{places[0]}-{bundled.digest[:8]}") if write else bundled


def _bundled(wanted: Name) -> Manifest:
    """Return a dataset that comes with the package, staged once into this node's cache by each version of the package.

    `ModuleNotFoundError` where what stages it is not installed.
    """
    folder = cache_folder() / "bundled" / f"{wanted.folder}-{version('contrasweep')}"
    if (manifest := _whole(folder)) is not None:
        return manifest
    # Another process may have staged it while this one waited for the lock.
    with locked(f"bundled-{wanted.folder}"):
        return _whole(folder) or staging.stage(wanted.text, str(folder))


def _whole(folder: Path) -> Manifest | None:
    """Return the manifest in `folder` if its shards have the recorded sizes; else None, and other files are deleted.

    Digests are checked when shards are read.
    """
    manifest = read_manifest(str(folder))
    for shard in manifest.shards if manifest else ():
        file = folder / shard.file
        if file.is_symlink() or not file.is_file() or file.stat().st_size != shard.bytes:
            discard(file)  # staging would take what is there for the shard
            manifest = None
    return manifest


def _where_looked(wanted: Name, storage: str, places: Sequence[str]) -> str:
    """Return in words where a name was looked for, what is staged there, and which of these may have been meant."""
    names = sorted({manifest.name for manifest in staged_in(storage)})
    near = difflib.get_close_matches(wanted.name, names, n=1)
    meant = f"did you mean the staged {near[0]!r}? " if near else ""
    return f"{meant}looked in {' and '.join(places)}; staged there: {', '.join(names) or 'nothing'}"


def with_folds(manifest: Manifest, count: int | None) -> Manifest:
    """Return `manifest` with `count` folds (None: its own two splits); `SpecError` where it cannot have these.

    The rule and seed are those that it was staged with, by default stratified and 0.
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
    # Folds that the owner of the data has made are taken as they are, or not at all.
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
    """Return where `data stage` puts a dataset by default, and `resolve` looks for it: `<storage>/datasets/<folder>`.

    `name` may have parameters, and `settings` has further ones.
    """
    return f"{storage.rstrip('/')}/datasets/{parse(name, settings).folder}"


def staged_in(storage: str) -> list[Manifest]:
    """Return all datasets below `<storage>/datasets` and CONTRASWEEP_DATA, by name; `DataError` for a broken one."""
    bases = [f"{storage.rstrip('/')}/datasets", *filter(None, [os.environ.get("CONTRASWEEP_DATA")])]
    manifests = []
    for base in bases:
        store = open_store(base)
        for key in store.list():
            if Path(key).name == MANIFEST:
                uri = f"{store.uri.rstrip('/')}/{Path(key).parent.as_posix()}"
                manifests.append(Manifest.from_json(store.read(key, MAX_BYTES), uri))
    return sorted(manifests, key=lambda manifest: (manifest.name, manifest.uri))
