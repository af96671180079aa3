"""Which code a trial runs: its digest, its sources, and what differs between two states of it. Runs nothing of it."""

from contrasweep.code.difference import Change, Difference, difference
from contrasweep.code.snapshot import KEPT_SUFFIXES, TooLarge, pack, unpack
from contrasweep.code.version import (
    Code,
    CodeVersion,
    CurrentCode,
    code_of,
    differing_modules,
    digest_of_module,
    dotted_paths,
    installed_version,
)

__all__ = [
    "KEPT_SUFFIXES",
    "Change",
    "Code",
    "CodeVersion",
    "CurrentCode",
    "Difference",
    "TooLarge",
    "code_of",
    "difference",
    "differing_modules",
    "digest_of_module",
    "dotted_paths",
    "installed_version",
    "pack",
    "unpack",
]
