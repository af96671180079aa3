"""Checks that all machines run the same code of a study: the submitting machine, the driver, and every worker.

The driver writes the code of a trial to the storage before the trial starts. A worker compares that code with the code
that it imports. A job compares its code with the code that was submitted.
"""

import functools
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasweep.code import (
    CodeVersion,
    code_of,
    differing_modules,
    digest_of_module,
    dotted_paths,
    installed_version,
)
from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.storage.code_files import read_version
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import to_plain
from contrasweep.study.sweep import Study


class OtherCodeHere(ContrasweepError):
    """The code that this worker imports is not the code with which the driver has planned the study."""


@functools.cache
def checked_packages(storage: str, study: str, digest: str) -> Mapping[str, str]:
    """Return package name -> installed version, of the packages that the code `digest` of a study uses.

    Before that, the modules of the code are compared with those that this process imports: `OtherCodeHere` where one
    differs. {} where `digest` is "", or the storage does not have this code: then nothing is compared. A process
    compares each code once.
    """
    version = read_version(StudyRecords(storage, study), digest) if digest else None
    if version is None:
        return {}
    differing = differing_modules(version.modules)
    if differing:
        first = differing[0]
        raise OtherCodeHere(
            f"the worker on {socket.gethostname()} imports other code than the study runs: module {first} has digest "
            f"{_digest(first)}, the study's has {version.modules[first]}{_more(differing)}; give all hosts the same "
            f"code (contrasweep submit sends it), and do not edit it while the study runs"
        )
    versions = {name: installed_version(name) for name in version.distributions}
    return {name: installed for name, installed in versions.items() if installed}


def checked_function(
    storage: str, study: str, digest: str, load: Callable[[], Callable[..., Any]]
) -> tuple[Callable[..., Any], Mapping[str, str]]:
    """Return the trainable that `load()` imports, and the result of `checked_packages`, after a check of the code.

    Raises `OtherCodeHere` where the code in this process is not the code `digest` of the study.
    """
    # The code is checked before it is imported. Where it differs, it is checked again after the import, because the
    # trainable's module may itself add the right folder to `sys.path`.
    try:
        packages = checked_packages(storage, study, digest)
        return load(), packages
    except OtherCodeHere as other:
        try:
            function = load()
        except (ImportError, SpecError):
            raise other from None
        return function, checked_packages(storage, study, digest)


def code_of_study(study: Study) -> CodeVersion:
    """Return the code that a study uses: its trainables, and all that its settings name by a dotted path."""
    # The first trainable gives the commit. The trainables of all arms are among the dotted paths.
    trainables = [arm.trainable for arm in study.arms.values()]
    return code_of(trainables[0], sorted(set(dotted_paths(to_plain(study))))).version


def write_submitted(study: Study, file: Path) -> None:
    """Write into `file` the name of this host and the digest of each module of the study, for `check_submitted`."""
    modules = dict(code_of_study(study).modules)
    file.write_text(json.dumps({"host": socket.gethostname(), "modules": modules}))


def check_submitted(study: Study, file: Path) -> None:
    """Raise `ContrasweepError` where the code here is not the submitted code that `file` describes.

    The message names a module that differs. Raises `SpecError` for a file that `write_submitted` has not written.
    """
    try:
        content = json.loads(file.read_text())
        host = str(content["host"])
        modules = dict(content["modules"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            "this is no file of submitted code", place="--submitted-code", value=str(error)
        ) from None
    here = code_of_study(study).modules
    differing = [name for name in sorted({*modules, *here}) if modules.get(name) != here.get(name)]
    if not differing:
        return
    # A module that the study does not use here may exist all the same; then the message shows its digest.
    first = differing[0]
    raise ContrasweepError(
        f"{socket.gethostname()} has other code than was submitted from {host}: module {first} has digest "
        f"{here.get(first) or _digest(first)} here, {modules.get(first, 'none')} there{_more(differing)}; "
        f"submit from a folder that holds all of the study's code"
    )


def _digest(module: str) -> str:
    """Return the digest of a module's code on this machine, or words that say that there is no such module."""
    return digest_of_module(module) or "none (there is no such module)"


def _more(differing: Sequence[str]) -> str:
    """Return how many modules differ beside the first, as the end of a message: ` and 2 more modules differ`, or ""."""
    return f" and {len(differing) - 1} more modules differ" if len(differing) > 1 else ""
