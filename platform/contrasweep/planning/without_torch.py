"""Whether a plan of a study may leave PyTorch out; see `contrasweep.left_out`."""

import os
from collections.abc import Iterator, Mapping

from contrasweep.left_out import OWN, WITH_TRAINING
from contrasweep.study.study import Study


def may_leave_out(study: "Study", kept: bool) -> bool:
    """Whether a plan of `study` is likely to need no PyTorch: all that it names is ours, counts are `kept`, and the
    command was not started anew."""
    ours = all(isinstance(arm.trainable, str) and arm.trainable.startswith(f"{OWN}.") for arm in study.arms.values())
    named = (vars(study).get("axes"), *((arm.config, arm.space) for arm in study.arms.values()))
    return kept and ours and WITH_TRAINING not in os.environ and not any(":" in text for text in _texts(named))


def _texts(value: object) -> Iterator[str]:
    """All text in nested values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif options := getattr(value, "options", None):
        yield from _texts(options)
