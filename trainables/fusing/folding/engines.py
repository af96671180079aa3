"""How a folded step is computed: the form of its convolutions, and whether it is compiled."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from contrasweep.errors import SpecError


@dataclass(frozen=True)
class Engine:
    """`grouped`: one grouped convolution for all members. `products`: batched matrix products of shifted views, the
    channels innermost in memory. `compiled`: the whole step by torch's inductor."""

    name: str
    form: Literal["grouped", "products"]
    compiled: bool = False


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine("grouped", "grouped"),
            Engine("products", "products"),
            Engine("grouped-compiled", "grouped", compiled=True),
            Engine("products-compiled", "products", compiled=True),
        )
    }
)


def engine_of(name: str | Engine) -> Engine:
    """The engine of this name; `SpecError` with the known ones if there is none."""
    if isinstance(name, Engine):
        return name
    if name not in ENGINES:
        raise SpecError("there is no such engine", place="engine", value=name, hint=", ".join(ENGINES))
    return ENGINES[name]
