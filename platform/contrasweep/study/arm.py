"""One method of a study: an arm."""

from collections.abc import Callable, Mapping
from typing import Any

import pydantic

from contrasweep.canonical import canonical
from contrasweep.cluster.footprint import Footprint
from contrasweep.commands import COMMAND, PATH
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError
from contrasweep.schema import checked
from contrasweep.study import dotted
from contrasweep.study import space as spaces
from contrasweep.study.cohort_choice import CohortChoice
from contrasweep.study.space import Parameter


@checked
class Arm:
    """One method: a trainable (dotted path `package.module:function`, or the function), its fixed settings,
    the space a Sweep searches, and what a trial of it needs (measured and refined by the platform).

    In place of a trainable it may have a `command`, the words of any program with `{placeholders}` for settings; this
    is short for the trainable that runs one (see `contrasweep.commands`), with the words in its config.

    `config` may have dotted keys, and is nested afterwards; the keys of `space` are dotted."""

    trainable: str | Callable[..., Any] = ""
    config: MutableConfig = pydantic.Field(default_factory=dict)
    space: Mapping[str, Parameter] = pydantic.Field(default_factory=dict)
    footprint: Footprint | None = None
    command: list[str] | None = None
    cohort: CohortChoice | None = None
    """Whether its trials are fused; default: as the study says."""

    def __post_init__(self) -> None:
        if self.command is not None:
            self._run_command(self.command)
        elif self.trainable == "":
            raise SpecError(
                "an arm has a trainable or a command",
                place="trainable",
                hint='for example trainable: "mypackage.method:train", or command: [python, train.py, --lr, "{lr}"]',
            )
        object.__setattr__(self, "config", dotted.expand(self.config, "config"))
        canonical(self.config, "config")
        spaces.check(self.space, self.config)
        for name, parameter in self.space.items():
            if problem := dotted.clash(spaces.settings(name, parameter), dotted.leaves(self.config)):
                hint = "" if problem == f"both set {name}" else f"the space and the config {problem}"
                raise SpecError(
                    "a key is either fixed or searched, not both", place=f"space.{name}", value=name, hint=hint
                )
        if isinstance(self.trainable, str) and self.trainable.count(":") != 1:
            raise SpecError(
                "a trainable is a dotted path package.module:function",
                place="trainable",
                value=self.trainable,
                hint="for example 'contrasweep.trainables.contrastive:train'",
            )

    def _run_command(self, words: list[str]) -> None:
        for field, given in (("trainable", self.trainable), (f"config.{COMMAND}", self.config.get(COMMAND))):
            if given:
                raise SpecError("an arm has a trainable or a command, not both", place=field, value=given)
        object.__setattr__(self, "trainable", PATH)
        object.__setattr__(self, "config", {COMMAND: words, **self.config})
        object.__setattr__(self, "command", None)
