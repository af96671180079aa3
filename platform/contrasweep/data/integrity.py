"""Whether a file is what its manifest says."""

import hashlib
from pathlib import Path

from contrasweep.data.manifest import Shard
from contrasweep.errors import DataError


def check_shard(file: Path, shard: Shard, name: str) -> None:
    """`DataError` naming the object if `file` is not byte for byte what the manifest says of `shard`."""
    size = file.stat().st_size
    if size != shard.bytes:
        raise DataError(
            f"{name} has {size:,} bytes, its manifest says {shard.bytes:,}: it is truncated or was "
            "replaced; stage the dataset again"
        )
    if (digest := sha256(file)) != shard.sha256:
        raise DataError(
            f"{name} has SHA-256 {digest[:12]}, its manifest says {shard.sha256[:12]}: it is damaged; "
            "stage the dataset again"
        )


def sha256(file: Path) -> str:
    """The SHA-256 of a file's content, 64 hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
