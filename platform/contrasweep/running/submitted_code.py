"""A study's code on its way to a cluster: what was submitted is what runs there, or nothing does."""

import json
import socket
from pathlib import Path

from contrasweep.code import CodeVersion, code_of, digest_of_module, dotted_paths
from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.study.file import to_plain
from contrasweep.study.study import Study


def code_of_study(study: Study) -> CodeVersion:
    """The code that the arms of a study reach, with what their configs, axes and spaces name by dotted path."""
    trainables = [arm.trainable for arm in study.arms.values()]
    return code_of(trainables[0], sorted(set(dotted_paths(to_plain(study))))).version


def write_submitted(study: Study, file: Path) -> None:
    """Keep what the code is here, for `check_submitted`."""
    version = code_of_study(study)
    content = {"host": socket.gethostname(), "digest": version.digest, "modules": dict(version.modules)}
    file.write_text(json.dumps(content))


def check_submitted(study: Study, file: Path) -> None:
    """Raises `ContrasweepError` where the code here is not what `file` says was submitted, which names a module that
    differs, and `SpecError` for a file that `write_submitted` has not written."""
    try:
        content = json.loads(file.read_text())
        host, digest, modules = str(content["host"]), str(content["digest"]), dict(content["modules"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError("this is no file of submitted code", place="--submitted-code", value=str(error)) from None
    here = code_of_study(study)
    if here.digest == digest:
        return
    names = sorted({*modules, *here.modules})
    differing = [name for name in names if modules.get(name) != here.modules.get(name)]
    first = differing[0]
    more = f" and {len(differing) - 1} more modules differ" if len(differing) > 1 else ""
    digest = here.modules.get(first) or digest_of_module(first) or "none (there is no such module)"
    raise ContrasweepError(
        f"{socket.gethostname()} has other code than was submitted from {host}: module {first} has digest {digest} "
        f"here, {modules.get(first, 'none')} there{more}; submit from a folder that holds all of the study's code"
    )
