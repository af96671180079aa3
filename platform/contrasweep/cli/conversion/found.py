"""What a file of another program declares, as it is gathered while the file is read, and the study made of it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from contrasweep.config import Config, MutableConfig
from contrasweep.study.foreign import SEED

Space = dict[str, MutableConfig]
"""Dotted key of a searched setting -> the fields of our parameter: `{"lr": {"type": "float", "low": .01, ...}}`."""
PRESUMED_TRIALS = 20
"""Trials of a search whose source does not say how many it takes."""
SEARCHERS = {
    **dict.fromkeys(("bayes", "hyperopt", "optuna", "tpe"), "tpe"),
    **dict.fromkeys(("bayesopt", "gp"), "gp"),
    **dict.fromkeys(("bruteforce", "grid"), "grid"),
    **dict.fromkeys(("basicvariant", "random"), "random"),
    "cmaes": "cmaes",
    "nsgaii": "nsga2",
    "qmc": "quasi-random",
}
"""Method, sampler or search algorithm of another program -> our searcher."""
SEED_NAME = re.compile(SEED, re.IGNORECASE)
FOLD_NAME = re.compile("(cv_?)?fold", re.IGNORECASE)
GUESSED_METRIC = "metric: name what the script reports; accuracy stands there as a guess"
MOST_VALUES = 10_000
"""Values of a parameter that a grid lists at most."""


class ArmPart(NamedTuple):
    """What one arm of a file fixes by itself (`config`, setting -> value) and searches by itself (`space`)."""

    config: MutableConfig
    space: Space


@dataclass
class Found:
    """What a file declares, in our words, as it is gathered while the file is read.

    Attributes:
        study: Fields of the study, such as `name`, `metric` and `mode`.
        arm: Fields that all arms have, such as `command` or `trainable`.
        config: Settings that are fixed for all arms, by dotted key.
        space: Settings that are searched in all arms.
        arms: Arm -> what it alone fixes and searches; empty: there is one arm, `main`.
        left_out: A line, `PLACE: VALUE`, for each thing that has no counterpart and is left out, or that the user still
            has to write or to change.
        searcher: Our searcher; `grid` where all values are listed, "" as long as the file has not said.
        trials: Trials that the search may take for each arm; None where the source does not say.
    """

    study: MutableConfig
    arm: MutableConfig = field(default_factory=dict)
    config: MutableConfig = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    arms: dict[str, ArmPart] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    searcher: str = ""
    trials: int | None = None

    def note_unread(self, fields: Config, read: str, place: str = "") -> None:
        """Add a line to `left_out` for each of the `fields` that `read` does not name: nothing in a study is like it.

        `read` is one text with spaces between the names. `place` is put before each name in its line: `seml.`, for
        example.
        """
        self.left_out += [
            f"{place}{key}: {value}" for key, value in fields.items() if key not in read.split()
        ]

    def search_by(self, kind: str, place: str) -> None:
        """Set `searcher` to our searcher for `kind`, the name that the other program has for its own.

        The name is a word, a class or a dotted path. Where we have none like it, a line in `left_out` says so, with the
        name `place`, and the searcher is `tpe`.
        """
        # optuna.samplers.TPESampler and tpe are one: the class's name without its last word.
        short = re.sub("(sampler|search|generator)$", "", kind.rpartition(".")[2].lower())
        if short not in SEARCHERS:
            self.left_out.append(f"{place}: {kind}; the search is by tpe")
        self.searcher = SEARCHERS.get(short, "tpe")

    def study_fields(self) -> MutableConfig:
        """Return the fields of the study: of a grid, or of a sweep.

        It is a grid where all values of all settings are listed and all arms vary the same settings. An arm's own
        settings take precedence over those of all arms.
        """
        own_fields = self._take_seed_and_fold()
        axes = {name: all_values(parameter) for name, parameter in self.space.items()}
        arms = self.arms or {"main": ArmPart({}, {})}
        # A grid needs all values of all axes, and the same axes in all arms.
        arms_differ = any(part.space for part in arms.values())
        if self.searcher == "grid" and all(axes.values()) and not arms_differ:
            declared = {
                name: self.arm | {"config": self.config | part.config}
                for name, part in arms.items()
            }
            return {**self.study, **own_fields, "arms": declared, "axes": axes}
        # Everything else is a sweep.
        if seeds := own_fields.pop("seeds", None):
            self.left_out.append(f"seeds: {seeds}; a search has search_seed and confirm_seeds")
        if not own_fields:
            own_fields["confirm_on"] = "all"
        if self.trials is None:
            self.left_out.append(f"trials_per_arm: {PRESUMED_TRIALS} stands for what is not said")
        declared = {}
        # A setting that an arm fixes itself is not searched in it, and what it searches is not fixed.
        for name, (config, space) in arms.items():
            searched = {
                key: value for key, value in (self.space | space).items() if key not in config
            }
            fixed = {
                key: value for key, value in (self.config | config).items() if key not in searched
            }
            declared[name] = self.arm | {"config": fixed, "space": searched}
        return {
            "type": "sweep",
            **self.study,
            **own_fields,
            "searcher": self.searcher,
            "trials_per_arm": self.trials or PRESUMED_TRIALS,
            "arms": declared,
        }

    def _take_seed_and_fold(self) -> MutableConfig:
        """Return the fields `seeds` and `folds` of a grid for a seed and a fold, which are no settings any more.

        They are known by their names. Integers are seeds, and numbers from 0 are folds. The command, before all its
        settings, or else the config of a function gets `{seed}` or `{fold}`, for which each trial has a value. A
        command gets a single fold as it is.
        """
        fields: MutableConfig = {}
        command = self.arm.get("command", [])
        args_word = next((word for word in command if word.startswith("{args")), "")
        for kind, pattern in (("seed", SEED_NAME), ("fold", FOLD_NAME)):
            name = next(filter(pattern.fullmatch, (*self.space, *self.config)), "")
            if not name or (command and not args_word):
                continue
            fixed = [self.config[name]] if name in self.config else []
            values = fixed or all_values(self.space[name])
            word = f"{{{kind}}}"
            if kind == "seed" and all(isinstance(value, int) for value in values):
                fields["seeds"] = values
            elif kind == "fold" and len(values) == 1 and command:
                # A study of one fold has no folds: the command names it.
                word = str(values[0])
            elif kind == "fold" and len(values) > 1:
                if sorted(values) != [*range(len(values))]:
                    self.left_out.append(f"{name}: {values}; {{fold}} counts from 0")
                fields["folds"] = len(values)
            else:
                continue
            self.config.pop(name, None)
            self.space.pop(name, None)
            hydra_word = f"{name}={word}"
            if not command:
                self.config[name] = word
            elif not {hydra_word, f"--{name}"} & set(command):
                is_hydra = args_word == "{args:hydra}"
                words = [hydra_word] if is_hydra else [f"--{name}", word]
                place = command.index(args_word)
                command[place:place] = words
        return fields


def all_values(fields: MutableConfig) -> list[Any]:
    """Return all values of a parameter with these `fields`, in order.

    Empty where they cannot be listed: a range of real numbers, a logarithmic one, or more than `MOST_VALUES` integers.
    """
    if fields["type"] == "int" and not fields.get("log"):
        values = range(fields["low"], fields["high"] + 1, fields.get("step", 1))
        return list(values) if len(values) <= MOST_VALUES else []
    return list(fields.get("options", ()))


def study_name(text: str) -> str:
    """Return `text` as a name of a study: other signs become dashes, so that `My study!` is `My-study`.

    "" where nothing is left.
    """
    return re.sub(r"[^\w.-]+", "-", text).strip("-._")


def from_here(path: Path) -> str:
    """Return a path as text, relative to the current folder where it lies below that; any other is unchanged."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
