"""Where torch's inductor keeps what it compiled: beside the cache of datasets, so that a graph is compiled once for all
processes of a node and for later runs."""

import os

from contrasweep.data.cache import cache_folder

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def share_compiled() -> None:
    """Have this process and its children keep compiled graphs there, unless the variable says where."""
    os.environ.setdefault(VARIABLE, str(cache_folder() / "inductor"))
