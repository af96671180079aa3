"""Which installed distribution a module belongs to, and its version."""

import json
from functools import cache
from importlib import metadata
from pathlib import Path

from contrasweep.code.finder import SITE_FOLDERS


@cache
def installed_version(distribution: str) -> str:
    """The version of an installed distribution; empty where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def distribution_of(package: str, site_folder: str) -> str | None:
    """The distribution whose version says what `package` (or one-file module) in `site_folder` holds.

    None where none does: its files were put there by hand, or it was installed from a folder (`pip install .`), whose
    version stays the same while its code changes.
    """
    folder = Path(site_folder)
    own_name = package.partition(".")[0].replace("_", "-").lower()
    infos = sorted(
        (p for p in folder.glob("*-info") if p.suffix in (".dist-info", ".egg-info")),
        key=lambda p: p.name.split("-")[0].replace("_", "-").lower() != own_name,  # the likely one first
    )
    for info in infos:
        if _lists(info, package):
            return None if _from_a_folder(info) else _name(info)
    return None


def site_folder_of(file: str) -> str:
    """The folder of installed packages above a file."""
    return str(next(parent for parent in Path(file).parents if parent.name in SITE_FOLDERS))


def _lists(info: Path, package: str) -> bool:
    name, top = package.replace(".", "/").encode(), package.partition(".")[0].encode()
    for listing, marks in (("RECORD", (b"\n%b/" % name, b"\n%b." % name)), ("top_level.txt", (b"\n%b\n" % top,))):
        try:
            text = b"\n" + (info / listing).read_bytes().replace(b"\r\n", b"\n") + b"\n"
        except OSError:
            continue
        return any(mark in text for mark in marks)
    return False


def _from_a_folder(info: Path) -> bool:
    try:
        return "dir_info" in json.loads((info / "direct_url.json").read_bytes())
    except (OSError, ValueError):
        return False


def _name(info: Path) -> str:
    return str(metadata.PathDistribution(info).metadata["Name"])
