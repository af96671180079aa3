"""The code of a run's trials: kept in the storage before a trial starts, and compared with what a worker imports."""

import functools
import socket
from collections.abc import Callable, Mapping

from contrasweep.code import CodeVersion, CurrentCode, differing_modules, digest_of_module, installed_version
from contrasweep.errors import ContrasweepError
from contrasweep.storage.code_files import read_version, write_code
from contrasweep.storage.record import CodeRef
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial


class OtherCodeHere(ContrasweepError):
    """A worker would run other code than the driver planned with."""


class StudyCode:
    """The driver's side: gives each trial its code, whose sources are kept when it is first met."""

    def __init__(self, records: StudyRecords, current: CurrentCode, on_message: Callable[[str], object]) -> None:
        self.records, self.current, self.on_message = records, current, on_message
        self._kept: set[str] = set()

    def of(self, trial: Trial) -> CodeRef:
        """The code of `trial`, which the storage has from now on."""
        code = self.current.of(trial.trainable, trial.config)
        version = code.version
        if version.digest not in self._kept:
            if said := write_code(self.records, code):
                self.on_message(said)
            self._kept.add(version.digest)
        return CodeRef(version.digest, version.commit, version.dirty)


@functools.cache
def checked_packages(storage: str, study: str, digest: str) -> Mapping[str, str]:
    """The worker's side, once for a process and code: the versions that the code's distributions have here. Raises
    `OtherCodeHere` where a module of the code is another one here."""
    version = read_version(StudyRecords(storage, study), digest) if digest else None
    if version is None:
        return {}
    _check(version)
    return {name: here for name in version.distributions if (here := installed_version(name))}


def _check(version: CodeVersion) -> None:
    if not (differing := differing_modules(version.modules)):
        return
    first = differing[0]
    here = digest_of_module(first) or "none (there is no such module)"
    more = f" and {len(differing) - 1} more modules differ" if len(differing) > 1 else ""
    raise OtherCodeHere(
        f"the worker on {socket.gethostname()} imports other code than the study runs: module {first} has digest "
        f"{here}, the study's has {version.modules[first]}{more}; give all hosts the same code (contrasweep submit "
        f"sends it), and do not edit it while the study runs"
    )
