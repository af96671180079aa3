"""Sweeps of other programs as a study: `contrasweep init --from FILE`. Files are read, never run.

W&B's `sweep.yaml`, SEML's experiments, Hydra's configuration with the Optuna sweeper; Python scripts with Optuna's
`suggest_*`, with a `param_space` of Ray Tune, or with flags of argparse.
"""

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrasweep.commands.functions import UNTIL
from contrasweep.config import Config, MutableConfig, lookup
from contrasweep.data.yaml_text import read_yaml
from contrasweep.errors import SpecError
from contrasweep.study import foreign
from contrasweep.study.file import as_study

Space = dict[str, MutableConfig]
"""Dotted key of a searched setting -> the fields of our parameter: `{"lr": {"type": "float", "low": .01, ...}}`."""
WANDB = {
    "${interpreter}": "python",
    "${args}": "{args:wandb}",
    "${args_no_boolean_flags}": "{args}",
    "${args_no_hyphens}": "{args:hydra}",
    "${args_json_file}": "{config}",
}
"""Words of W&B's commands, and ours."""
_ASHA = {"reduction_factor": ("reduction", 4), "grace_period": ("min_step", 1)}
EARLY_STOPPING: Mapping[str, tuple[str, Mapping[str, tuple[str, int]]]] = {
    "ASHAScheduler": ("asha", _ASHA),
    "AsyncHyperBandScheduler": ("asha", _ASHA),
    "HyperBandScheduler": ("halving", {"reduction_factor": ("reduction", 3)}),
    "SuccessiveHalvingPruner": (
        "asha",
        {"reduction_factor": ("reduction", 4), "min_resource": ("min_step", 1)},
    ),
    "MedianPruner": (
        "median",
        {"n_warmup_steps": ("grace_steps", 0), "n_startup_trials": ("min_trials", 5)},
    ),
}
"""Class of Ray Tune or Optuna -> our pruner, and a mapping: parameter -> (option of the pruner, class default)."""
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
"""Methods, samplers and search algorithms of the others -> our searcher."""
CALLS = {
    "create_study": "direction pruner sampler study_name",
    "optimize": "func n_trials",
    "run": "run_or_experiment name metric mode stop config num_samples resources_per_trial scheduler search_alg",
    "RunConfig": "name stop",
    "TuneConfig": "mode metric search_alg scheduler num_samples",
    "Tuner": "trainable param_space tune_config run_config",
}
"""Calls of Optuna and Ray Tune that declare a search, and their arguments that are read."""
WALKED = "config func param_space run_config run_or_experiment trainable tune_config"
"""Arguments of these calls that hold a further call, a mapping or a function, which is read as a node of its own."""
WRAPPERS = {
    **dict.fromkeys(("ConcurrencyLimiter", "Repeater"), ("searcher", "argument 1")),
    "OptunaSearch": ("sampler",),
}
"""Search algorithm of Ray Tune that only wraps another one -> names of the argument that holds the inner one."""
SPACES = ("param_space", "config")
"""Arguments of calls of Ray Tune that are the space."""
WITH_VALUE = ("store", "append", "extend")
ON_OR_OFF = "BooleanOptionalAction"
"""Actions of argparse whose flags take a value, and the one of a pair of flags, `--amp` and `--no-amp`."""
SHORTER = re.compile("smoke|test|debug|quick|short")
"""Words in the condition of `a if smoke_test else b`, where the search runs b."""
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, options: value in options,
    ast.NotIn: lambda value, options: value not in options,
}
"""Comparison in the condition of an `if` -> the function that tells whether it holds."""
MOST_VALUES = 10_000
"""Values of a parameter that a grid lists at most."""


class _ArmPart(NamedTuple):
    """What an arm alone fixes and searches."""

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
        search_seed: The field `search_seed` of the study; empty without one.
        pruner: The fields `pruner` and `pruner_options` of the study; empty without early stopping.
    """

    study: MutableConfig
    arm: MutableConfig = field(default_factory=dict)
    config: MutableConfig = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    arms: dict[str, _ArmPart] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    searcher: str = ""
    trials: int | None = None
    search_seed: MutableConfig = field(default_factory=dict)
    pruner: MutableConfig = field(default_factory=dict)

    def note_unread(self, fields: Config, read: str, place: str = "") -> None:
        """Note the fields that have no counterpart: all but those whose names are in `read`, with spaces between them.

        `place` goes before each name in the line, with its dot or colon: `seml.`.
        """
        self.left_out += [
            f"{place}{key}: {value}" for key, value in fields.items() if key not in read.split()
        ]

    def search_by(self, kind: str, place: str) -> None:
        """Take our searcher for the method, sampler or search algorithm `kind`: a word, a class or a dotted path.

        One without counterpart is noted in `left_out`, at `place`, and searched by `tpe`.
        """
        # optuna.samplers.TPESampler and tpe are one: the class's name without its last word.
        short = re.sub("(sampler|search|generator)$", "", kind.rpartition(".")[2].lower())
        if short not in SEARCHERS:
            self.left_out.append(f"{place}: {kind}; the search is by tpe")
        self.searcher = SEARCHERS.get(short, "tpe")

    def take_seed(self, seed: object) -> bool:
        """Take the seed of a sampler as that of the search, and return whether it can be.

        It cannot from 1000 on, where the seeds of confirmations are.
        """
        is_taken = type(seed) is int and 0 <= seed < 1000
        if is_taken:
            self.search_seed = {"search_seed": seed}
        return is_taken

    def study_fields(self) -> MutableConfig:
        """Return the study's fields: of a grid where all values are listed and all arms vary the same, else of a sweep.

        An arm's own settings take precedence over those of all arms.
        """
        axes = {name: _values(parameter) for name, parameter in self.space.items()}
        arms = self.arms or {"main": _ArmPart({}, {})}
        # A grid needs all values of all axes, and the same axes in all arms.
        arms_differ = any(part.space for part in arms.values())
        if self.searcher == "grid" and all(axes.values()) and not arms_differ:
            return self._grid(axes, {name: part.config for name, part in arms.items()})
        # A sweep. A setting that an arm fixes itself is not searched in it, and what it searches is not fixed.
        if self.trials is None:
            self.left_out.append(f"trials_per_arm: {PRESUMED_TRIALS} stands for what is not said")
        declared = {}
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
            "confirm_on": "all",
            "searcher": self.searcher,
            **self.search_seed,
            "trials_per_arm": self.trials or PRESUMED_TRIALS,
            **self.pruner,
            "arms": declared,
        }

    def _grid(self, axes: MutableConfig, arms: Mapping[str, MutableConfig]) -> MutableConfig:
        """Return the fields of a grid over `axes`, setting -> values; `arms` has what each arm alone fixes.

        A setting `seed` whose values are integers becomes the study's `seeds`, if the command can be given one. A
        pruner is noted in `left_out`.
        """
        # The seed is the trial's own and no setting: the command has to name it, before all other settings.
        command = self.arm.get("command", ())
        settings = next((word for word in command if word.startswith("{args")), None)
        seeds = axes.get("seed", ())
        if settings and seeds and all(isinstance(seed, int) for seed in seeds):
            if not any("{seed}" in word for word in command):
                words = ["seed={seed}"] if settings == "{args:hydra}" else ["--seed", "{seed}"]
                place = command.index(settings)
                command[place:place] = words
            self.study["seeds"] = axes.pop("seed")
        if self.pruner:
            self.left_out.append(
                f"early stopping: {self.pruner}: a grid trains all trials to their end"
            )
        declared = {
            name: self.arm | {"config": self.config | config} for name, config in arms.items()
        }
        return {**self.study, "arms": declared, "axes": axes}


def converted(file: Path) -> tuple[MutableConfig, list[str]]:
    """Return the fields of a study from a file of another program, and what of it has no counterpart.

    Raises `SpecError` for a file that holds no sweep, or that breaks the rules of its program.
    """
    try:
        return _converted(file)
    except SpecError:
        raise
    except OSError as error:
        raise SpecError(
            "this file cannot be read", place="--from", value=str(file), hint=error.strerror or ""
        ) from None
    # A text where a mapping is meant, a parameter without an end, no Python, ...
    except Exception as error:
        raise SpecError(
            "this file breaks a rule of the program that it is for",
            place="--from",
            value=str(file),
            hint=" ".join(f"{type(error).__name__}: {error}".split()),
        ) from None


def _converted(file: Path) -> tuple[MutableConfig, list[str]]:
    """Return the study's fields and what has no counterpart, as `converted` does.

    The file's suffix and keys tell which program it is for. Raises `SpecError` for a program that is not known here,
    and where the study breaks a rule of ours; `ValueError`, `KeyError` and others where the file breaks a rule of its
    program.
    """
    found = Found({"name": _name(file.stem) or "study", "data": "none"})
    text = file.read_text()
    is_script = file.suffix == ".py"
    content = None if is_script else read_yaml(text, str(file), "the file is not YAML")
    fields = content if isinstance(content, Mapping) else {}
    sweeper = lookup(fields, "hydra.sweeper")
    if is_script:
        _read_script(found, file, text)
    elif isinstance(sweeper, Mapping) and {"params", "search_space"} & set(sweeper):
        _read_hydra(found, file, fields, sweeper)
    elif "seml" in fields:
        _read_seml(found, file, fields)
    elif "parameters" in fields:
        _read_wandb(found, fields)
    else:
        hint = "W&B's sweep.yaml, SEML's yaml, Hydra's config with the Optuna sweeper, or a Python script"
        raise SpecError(
            "this file holds no sweep that is known", place="--from", value=str(file), hint=hint
        )
    study = found.study_fields()
    as_study(study)  # raises where it cannot be one
    return study, found.left_out


def _values(fields: MutableConfig) -> list[Any]:
    """Return all values of a parameter with these `fields`, in order.

    Empty where they cannot be listed: a range of real numbers, a logarithmic one, or more than `MOST_VALUES` integers.
    """
    if fields["type"] == "int" and not fields.get("log"):
        values = range(fields["low"], fields["high"] + 1, fields.get("step", 1))
        return list(values) if len(values) <= MOST_VALUES else []
    return list(fields.get("options", ()))


def _nested(block: Config, inner: str = "", *, leaf: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted name and value of each setting below `block`.

    Args:
        block: Nested settings.
        inner: The key below which a mapping may have its settings, as W&B's `parameters`; "": none.
        leaf: Keys, with spaces between them: a mapping with one of these and without `inner` is a value. So is what is
            no mapping, and an empty one.

    Example:
        {"net": {"parameters": {"dim": {"value": 8}}}} gives ("net.dim", {"value": 8}).
    """
    for name, value in block.items():
        keys = set(value) if isinstance(value, Mapping) else set()
        if inner in keys or (keys and not set(leaf.split()) & keys):
            yield from (
                (f"{name}.{key}", fields)
                for key, fields in _nested(value.get(inner, value), inner, leaf=leaf)
            )
        else:
            yield name, value


def _read_wandb(found: Found, content: Config) -> None:
    """Read a sweep of W&B, the `content` of its file, into `found`; what has no counterpart is noted there.

    Its program becomes a command that runs W&B offline, so that the metrics are read from its run.
    """
    metric = content.get("metric", {})
    found.study |= {
        "metric": metric.get("name", "accuracy"),
        "mode": str(metric.get("goal", "min"))[:3],
    }
    found.note_unread(metric, "goal name", "metric.")
    found.search_by(content.get("method", "random"), "method")
    found.trials = content.get("run_cap", found.trials)
    parameters = _nested(content["parameters"], "parameters", leaf="value values min distribution")
    for name, fields in parameters:
        _read_wandb_parameter(found, name, fields)
    found.pruner = _wandb_pruner(content.get("early_terminate", {}))
    read = "command method metric name parameters program run_cap"
    found.note_unread(content, f"{read} early_terminate" if found.pruner else read)
    # W&B's macros in the command become placeholders; its environment is set by the runner.
    macros = WANDB | {"${program}": content.get("program", "")}
    words = content.get("command", ["${interpreter}", "${program}", "${args}"])
    # `${envvar:NAME}` is a variable's value, `${args_json}` all settings as one word of JSON.
    found.left_out += [
        f"command: {word}" for word in words if word.startswith(("${envvar:", "${args_json}"))
    ]
    command = [macros.get(word, word) for word in words if word != "${env}"]
    # A script may take its settings from flags or from wandb.config. W&B's agent gives it both.
    start = ["env", "WANDB_MODE=offline", "WANDB_SWEEP_PARAM_PATH={config:wandb}"]
    found.arm = {"command": [*start, *command], "metrics": "wandb"}


def _wandb_pruner(stopping: Config) -> MutableConfig:
    """Return our `pruner` and `pruner_options` for W&B's `early_terminate`; empty where it has no counterpart."""
    # Hyperband that is not strict stops each run by itself, as ASHA without pauses does.
    if stopping.get("type") != "hyperband" or stopping.get("strict"):
        return {}
    reduction = stopping.get("eta", 3)
    # Hyperband names its first step, or its last one and the number of brackets, from which the first follows.
    first = stopping.get("min_iter") or max(1, stopping["max_iter"] // reduction ** stopping["s"])
    return {"pruner": "asha", "pruner_options": {"reduction": reduction, "min_step": first}}


def _read_wandb_parameter(found: Found, name: str, fields: Config) -> None:
    """Read the `fields` of one parameter of W&B: a value is fixed in `found`, values or a distribution are searched.

    A distribution without counterpart is noted as left out.
    """
    low: Any = fields.get("min")
    high: Any = fields.get("max")
    # W&B guesses the distribution from the ends where none is named.
    are_integers = isinstance(low, int) and isinstance(high, int)
    kind = fields.get("distribution", "int_uniform" if are_integers else "uniform")
    found.note_unread(fields, "distribution max min mu q sigma value values", f"{name}.")
    if "value" in fields:
        found.config[name] = fields["value"]
    elif "values" in fields:
        found.space[name] = {"type": "choice", "options": fields["values"]}
    elif kind in ("int_uniform", "uniform", "q_uniform", "log_uniform", "log_uniform_values"):
        # The ends of W&B's log_uniform are exponents of e; those of log_uniform_values are values.
        if kind == "log_uniform":
            low, high = math.exp(low), math.exp(high)
        step = fields.get("q", 1) if kind == "q_uniform" else None
        # A step that is an integer gives integers.
        is_whole = kind == "int_uniform" or (are_integers and isinstance(step, int))
        found.space[name] = foreign.range_fields(
            "int" if is_whole else "float", low, high, step, "log" in kind
        )
    else:
        found.left_out.append(f"{name}: {fields}")


def _read_seml(found: Found, file: Path, content: Config) -> None:
    """Read an experiment of SEML, the `content` of `file`, into `found`; what has no counterpart is noted there.

    Trials are as many as SEML would run: the values of the largest grid, times the samples that are drawn.
    """
    about = content["seml"]
    script = (
        file.parent / about.get("project_root_dir", ".") / about.get("executable", "main.py")
    ).resolve()
    found.study |= {"name": _name(about.get("name", "")) or found.study["name"], "metric": "result"}
    found.arm = {"command": ["python", _from_here(script), "with", "{args:hydra}", "seed={seed}"]}
    found.note_unread(about, "executable name project_root_dir", "seml.")
    if "slurm" in content:
        found.left_out.append(f"slurm: {content['slurm']}")
    # SEML has settings at the top of the file and in named blocks, each of which becomes an arm.
    top, top_points, samples = _seml_block(found, "", content)
    found.config, found.space = top
    points = top_points
    for name, block in content.items():
        if name not in ("seml", "slurm", "fixed", "grid", "random"):
            found.note_unread(block, "fixed grid random", f"{name}.")
            found.arms[name], block_points, block_samples = _seml_block(found, name, block)
            # The grid of the top is multiplied with that of each named block.
            points = max(points, top_points * block_points)
            samples = max(samples, block_samples)
    found.searcher = "random" if samples else "grid"
    found.trials = points * max(samples, 1)


def _seml_block(found: Found, name: str, block: Config) -> tuple[_ArmPart, int, int]:
    """Return what a block of SEML fixes and searches, the points of its grid, and the samples that it draws.

    `name` is "" for the top of the file. What has no counterpart is noted in `found`.
    """
    # A value is drawn, or listed in a grid; `samples` and `seed` are of the drawing and no settings.
    random = dict(block.get("random", {}))
    samples = random.pop("samples", 0)
    seed = random.pop("seed", None)
    if seed is not None:
        found.left_out.append(f"{name} random.seed: {seed}".strip())
    config = dict(_nested(block.get("fixed", {})))
    space = Space()
    points = 1
    listed = dict(_nested(block.get("grid", {}), "params", leaf="type"))
    drawn = dict(_nested(random, "params", leaf="type"))
    for key, fields in (listed | drawn).items():
        # Settings that vary together, or are named by `+`, have no counterpart.
        if "zip_id" in fields or "+" in key:
            found.left_out.append(f"{name} {key}: {fields}".strip())
            continue
        parameter = _seml_parameter(key, fields)
        space[key] = parameter
        if parameter["type"] == "choice" and key in listed:
            points *= len(parameter["options"])
    found.left_out += [
        f"{name} {key}: {config.pop(key)}".strip() for key in list(config) if "+" in key
    ]
    return _ArmPart(config, space), points, samples


def _seml_parameter(key: str, fields: Config) -> MutableConfig:
    """Return our parameter for the setting `key` of SEML with these `fields`.

    `ValueError` for a grid with more than `MOST_VALUES` values.
    """
    low: Any = fields.get("min")
    high: Any = fields.get("max")
    kind = fields["type"]
    if kind == "choice":
        return {"type": "choice", "options": fields["options"]}
    if kind == "randint":  # whose upper end is not drawn
        return foreign.range_fields("int", low, high - 1)
    is_log = kind == "loguniform"
    if kind in ("uniform", "loguniform") and "num" not in fields:
        return foreign.range_fields("float", low, high, log=is_log)
    # A grid over a range lists `num` values between its ends, or one each `step`.
    if (fields.get("num") or (high - low) / fields["step"]) > MOST_VALUES:
        raise ValueError(f"{key} has more than {MOST_VALUES} values")
    if "num" in fields:
        values = (np.geomspace if is_log else np.linspace)(low, high, fields["num"])
    else:
        values = np.arange(low, high, fields["step"])
    return {"type": "choice", "options": values.tolist()}


def _read_hydra(found: Found, file: Path, content: Config, sweeper: Config) -> None:
    """Read a configuration of Hydra with the Optuna sweeper into `found`; what has no counterpart is noted there.

    Args:
        found: What was found, which is filled here.
        file: The file of the configuration.
        content: The whole configuration.
        sweeper: Its part `hydra.sweeper`.
    """
    direction = sweeper.get("direction", "minimize")
    if isinstance(direction, list):
        found.left_out.append(f"direction: {direction}")
        direction = direction[0]
    found.study |= {
        "name": _name(sweeper.get("study_name") or "") or found.study["name"],
        "metric": content.get("optimized_metric", "objective"),
        "mode": str(direction)[:3],
    }
    # A part of Hydra may be chosen in the list of defaults, as by `- override hydra/sweeper/sampler: tpe`.
    overrides = MutableConfig()
    for entry in content.get("defaults", ()):
        if isinstance(entry, Mapping):
            overrides |= {key.rpartition("hydra/")[2]: value for key, value in entry.items()}
    sampler = sweeper.get("sampler", {})
    kind = sampler.get("_target_") or overrides.get("sweeper/sampler", "tpe")
    found.search_by(kind, "sampler")
    for part in ("launcher", "sweep"):
        if choice := content["hydra"].get(part) or overrides.get(part):
            found.left_out.append(f"hydra.{part}: {choice}")
    seed = "seed" if found.take_seed(sampler.get("seed")) else ""
    found.note_unread(sampler, f"_target_ {seed}", "hydra.sampler.")
    found.trials = sweeper.get("n_trials", found.trials)
    for name, text in (sweeper.get("params") or sweeper["search_space"]).items():
        try:
            found.space[name] = _hydra_parameter(text)
        except (SyntaxError, KeyError, ValueError, TypeError, IndexError):
            found.left_out.append(f"{name}: {text}")
    read = "_target_ direction n_trials params sampler search_space study_name"
    found.note_unread({key: value for key, value in sweeper.items() if value}, read)
    found.left_out.append(
        "what the function returns: name in metrics where the script prints or writes it"
    )
    found.arm = {"command": ["python", _hydra_script(file.stem), "{args:hydra}"]}


def _hydra_script(config_name: str) -> str:
    """Return the path of the script below the current folder that Hydra runs with this config, which is a guess.

    It is one that names the config, of these one with `train` in its name, of these the one with the shortest path.
    """
    files = [script for script in Path().rglob("*.py") if b"hydra.main(" in script.read_bytes()]
    # False sorts before True.
    files.sort(
        key=lambda script: (
            config_name.encode() not in script.read_bytes(),
            "train" not in script.name,
            len(script.parts),
        )
    )
    return str(files[0]) if files else "main.py"


def _hydra_parameter(text: Any) -> MutableConfig:
    """Return the parameter of a value of Hydra's `params`, or of a mapping of its older `search_space`.

    Raises `KeyError`, `SyntaxError`, `ValueError` and others where it has no counterpart.
    """
    if not isinstance(text, Mapping):
        text = str(text).strip()
        return _override_parameter(text, ast.parse(text, mode="eval").body)
    fields = {key: value for key, value in text.items() if key != "type"}
    names = {"categorical": "suggest_categorical", "int": "suggest_int", "float": "suggest_float"}
    return foreign.optuna_fields(names[text["type"]], [], fields)


def _override_parameter(text: str, node: ast.expr) -> MutableConfig:
    """Return the parameter of an override: `interval(0, 1)`, `range(1, 8, step=2)`, `int(tag(log, interval(1, 9)))`.

    `node` is a part of the parsed `text`. A list `[a, b]`, `choice(a, b)` or a single value is a choice. `ValueError`
    for any other function.
    """
    if not isinstance(node, ast.Call):
        options = [_plain(text, option) for option in getattr(node, "elts", [node])]
        return {"type": "choice", "options": options}
    name = ast.unparse(node.func)
    # `float`, `int` and `tag` wrap an override, their last argument: they set its type, or with `log` its scale.
    if name in ("float", "int"):
        return _override_parameter(text, node.args[-1]) | {"type": name}
    if name == "tag":
        is_log = "log" in map(ast.unparse, node.args[:-1])
        return _override_parameter(text, node.args[-1]) | ({"log": True} if is_log else {})
    arguments = [*node.args, *(word.value for word in node.keywords)]
    values = [_plain(text, argument) for argument in arguments]
    if name in ("interval", "range"):
        kind = "int" if all(isinstance(value, int) for value in values) else "float"
        return foreign.range_fields(kind, *values)
    if name != "choice":
        raise ValueError(name)
    return {"type": "choice", "options": values}


def _plain(text: str, node: ast.expr) -> Any:
    """Return the value of a part of the override `text`: `true` is True, `[a, b]` a list, `resnet-18` a text."""
    if isinstance(node, ast.List):
        return [_plain(text, inner) for inner in node.elts]
    if isinstance(node, ast.Dict):
        members = zip(filter(None, node.keys), node.values, strict=True)
        return {_plain(text, key): _plain(text, value) for key, value in members}
    try:
        return ast.literal_eval(node)
    except ValueError:
        word = ast.get_source_segment(text, node) or ""
        return {"true": True, "false": False, "null": None}.get(word.lower(), word)


class _Script:
    """A Python script that searches with Ray Tune or Optuna, or takes flags of argparse; parsed and never run.

    `read` is called with each node of `tree`, and adds what that node says.

    Attributes:
        tree: The parsed module.
        found: The space, the searcher and the pruner that were read, and what has no counterpart.
        search: What the calls that declare the search say, by our name: `metric`, `mode`, `resources`, `max_t` (the
            step at which the scheduler ends every trial) and others. Empty: no call declares a search.
        function: The function of the script that the search calls to train; "" where none was found.
        flags: Name of a flag -> its default.
        names: Name of a flag -> the flag, of those with one dash.
        is_tune: Whether the script calls Ray Tune.
        seed_words: The words of the command that pass the seed; empty where the script has no `--seed`.
        exits: Line that may end the function -> names of the parameters that it suggests behind that line.
    """

    def __init__(self, found: Found, text: str, file: Path) -> None:
        """Parse the `text` of the script `file`; `SyntaxError` where it is no Python."""
        self.tree = ast.parse(text, str(file))
        self.found = found
        self.search: MutableConfig = {}
        self.function = ""
        self.flags: MutableConfig = {}
        self.names: dict[str, str] = {}
        self.seed_words: list[str] = []
        self.exits: dict[int, dict[str, None]] = {}
        # Name -> assignments to it.
        self._assignments: dict[str, list[ast.Assign]] = {}
        nodes = list(ast.walk(self.tree))
        for node in nodes:
            if isinstance(node, ast.Assign):
                self._assignments.setdefault(ast.unparse(node.targets[0]), []).append(node)
        self._functions = {
            node.name for node in self.tree.body if isinstance(node, ast.FunctionDef)
        }
        self._parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
        # How often a name is set: by `=`, `+=`, `for`, `with`, and as a parameter of a function.
        self._times_set = Counter(
            getattr(node, "id", "") or getattr(node, "arg", "")
            for node in nodes
            if isinstance(node, ast.arg) or isinstance(getattr(node, "ctx", None), ast.Store)
        )
        _name_tune(nodes)
        self._calls = calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.is_tune = any(re.match(r"(ray\.)?tune\.", ast.unparse(call.func)) for call in calls)
        # The mapping that a call names as the space, else the first one that has calls of `tune`.
        mappings = [node for node in nodes if isinstance(node, ast.Dict) and _tune_calls(node)]
        words = [word for call in calls for word in call.keywords]
        named = [self._assigned(word.value) for word in words if word.arg in SPACES]
        self._space = next((node for node in [*named, *mappings] if node in mappings), None)
        self._strays = set(_tune_calls(self.tree))
        if self._space is not None:
            self._strays -= set(_tune_calls(self._space))

    def read(self, node: ast.AST) -> None:
        """Take what `node` says of a search: a space, a call that declares it, a parameter, a flag of the script.

        Nothing is taken of any other node. `ValueError` or `TypeError` where its values are not known without running
        the script.
        """
        if self._space is not None and node is self._space:
            _read_tune_space(self.found, self._space, self.value)
        if not isinstance(node, ast.Call):
            return
        if node in self._strays:  # it stands outside of the space
            raise ValueError(node)
        function = ast.unparse(node.func)
        trial, _, name = function.rpartition(".")
        # Many functions are called `run`, such as `asyncio.run`, which calls the script's `main`.
        declares_search = name in CALLS and (name != "run" or function.endswith("tune.run"))
        if declares_search:
            for key, argument in _arguments(node, CALLS[name].split()):
                try:
                    self._take_argument(name, key, argument)
                except (ValueError, TypeError):
                    text = f"{key}: {ast.unparse(self._assigned(argument))}"
                    if key in ("n_trials", "num_samples"):
                        text += f"; {PRESUMED_TRIALS} stand for it"
                        self.found.trials = PRESUMED_TRIALS
                    self.found.left_out.append(text)
        if name == "with_parameters":
            self.found.left_out.append(ast.unparse(node))
        elif name == "with_resources":
            self._take_resources(dict(_arguments(node, ("trainable", "resources")))["resources"])
        elif declares_search and name in ("Tuner", "optimize", "run"):
            self._take_function(node)
        elif name in foreign.OPTUNA:
            first, *rest = map(self.value, node.args)
            keywords = {word.arg: self.value(word.value) for word in node.keywords if word.arg}
            fields = foreign.optuna_fields(name, rest, keywords)
            when = self._condition(node, first, trial)
            known = dict(self.found.space.get(first, fields | {"when": when}))
            # Suggested at several places, it exists where the condition of any of them holds.
            before = known.pop("when", {})
            if known != fields:
                raise ValueError(first)
            when = {
                key: before[key] + [value for value in when[key] if value not in before[key]]
                for key in when.keys() & before.keys()
            }
            self.found.space[first] = fields | ({"when": when} if when else {})
        elif name == "add_argument":
            self._take_flag(node)
        elif name == "set_defaults":
            raise ValueError(name)

    def _condition(self, node: ast.AST, name: str, trial: str) -> MutableConfig:
        """Return the `when` of the parameter `name` that `node` suggests: what the `if`s above it demand.

        In a function that is given the `trial` at one place these are those above that place too. A condition that
        compares no parameter whose values are listed is noted: `name` is searched always then.
        """
        when: MutableConfig = {}
        helpers = set()
        while parent := self._parents.get(node):
            for line in _exits_before(node, parent):
                self.exits.setdefault(line, {})[name] = None
            test = getattr(parent, "test", None)
            if isinstance(parent, ast.If | ast.IfExp | ast.match_case) and node is not test:
                body = parent.body if isinstance(parent.body, list) else [parent.body]
                try:
                    key, values = self._compared(test, holds=node in body)
                    when[key] = [value for value in when.get(key, values) if value in values]
                except (AttributeError, KeyError, TypeError, ValueError):
                    line = getattr(node, "lineno", 0)
                    self.found.left_out.append(
                        f"{name}: the condition of line {line}; write `when`"
                    )
            node = parent
            if isinstance(node, ast.FunctionDef) and node not in helpers:
                helpers.add(node)  # it may call itself
                callers = [
                    call
                    for call in self._calls
                    if ast.unparse(call.func) == node.name and trial in map(ast.unparse, call.args)
                ]
                node = callers[0] if len(callers) == 1 else node
        return when

    def _compared(self, test: Any, *, holds: bool) -> tuple[str, list[Any]]:
        """Return the parameter that a condition compares, and those of its values with which it is as `holds` says.

        Raises `ValueError`, `KeyError` and others where `test` is no comparison of a parameter whose values are listed.
        """
        if isinstance(test, ast.UnaryOp):
            return self._compared(test.operand, holds=not holds)
        subject = test
        bound = None
        compare: Callable[[Any, Any], bool] = _is_true
        if isinstance(test, ast.Compare):
            subject = test.left
            [operation], [right] = test.ops, test.comparators
            bound = self.value(right)
            compare = COMPARISONS[type(operation)]
        suggestion: Any = self._assigned(subject)
        name = self.value(suggestion.args[0])
        values = [v for v in _values(self.found.space[name]) if compare(v, bound) == holds]
        if not values:
            raise ValueError(name)
        return name, values

    def value(self, node: ast.expr) -> Any:
        """Return the value of a literal, or of a name that is assigned once; `ValueError` for any other expression."""
        node = self._assigned(node)
        if isinstance(node, ast.IfExp) and SHORTER.search(ast.unparse(node.test)):
            node = node.orelse
        if isinstance(node, ast.Dict):
            return {
                self.value(key): self.value(inner)
                for key, inner in zip(node.keys, node.values, strict=True)
                if key
            }
        return ast.literal_eval(node)

    def _assigned(self, node: ast.expr) -> ast.expr:
        """Return what was assigned to `node`, if it is a name that is assigned once; else `node` itself.

        Only the value of such a name is known without running the script.
        """
        name = ast.unparse(node)
        assignments = self._assignments.get(name, [])
        is_known = len(assignments) == 1 and self._times_set[name] < 2
        return assignments[0].value if is_known else node

    def _take_argument(self, call: str, key: str, argument: ast.expr) -> None:
        """Take the argument `key` of the call `call` (of `CALLS`), which declares a search; None says nothing.

        `ValueError` or `TypeError` where it has no counterpart.
        """
        if ast.unparse(argument) == "None":
            return
        if key in ("sampler", "search_alg"):
            kind, arguments = self._class_and_arguments(key, argument)
            self.found.search_by(kind, key)
            self.search["searcher"] = kind
            seed = self._assigned(arguments.get("seed", argument))
            if isinstance(seed, ast.Constant) and self.found.take_seed(seed.value):
                del arguments["seed"]
            self._leave_out(key, arguments)
        elif key in ("scheduler", "pruner"):
            kind, arguments = self._class_and_arguments(key, argument)
            if kind not in EARLY_STOPPING:
                raise ValueError(kind)
            pruner, known = EARLY_STOPPING[kind]
            options = {}
            for parameter, (option, default) in known.items():
                options[option] = self.value(arguments.pop(parameter, ast.Constant(default)))
            self.found.pruner = {"pruner": pruner, "pruner_options": options}
            if pruner == "asha" and key == "scheduler":  # where Ray Tune ends each trial
                self.search.setdefault("max_t", 100)
            self._leave_out(key, arguments)
        elif key == "resources_per_trial":
            self._take_resources(argument)
        elif key not in CALLS[call].split():
            raise ValueError(key)
        elif key not in WALKED.split():
            self.search[key.removeprefix("study_")] = self.value(argument)

    def _class_and_arguments(self, place: str, node: ast.expr) -> tuple[str, dict[str, ast.expr]]:
        """Return the class of an object and its arguments: by keyword, and `argument 1`, `argument 2`, ... by place.

        `node` is the call that makes the object, or a name to which the call was assigned before. Where the object
        only wraps another one (`WRAPPERS`), class and arguments are those of the inner one; arguments of the wrapper
        are left out, at `place`. `metric`, `mode` and `max_t` are taken out, as the search's own.
        """
        # The last assignment above the use of the name counts.
        call = node
        for assignment in self._assignments.get(ast.unparse(node), []):
            if assignment.lineno < node.lineno:
                call = assignment.value
        arguments = {word.arg or "**": word.value for word in getattr(call, "keywords", ())}
        for number, part in enumerate(getattr(call, "args", ()), 1):
            arguments[f"argument {number}"] = part
        kind = ast.unparse(call).partition("(")[0].rpartition(".")[2]
        for key in ("metric", "mode", "max_t"):
            if isinstance(arguments.get(key), ast.Constant | ast.Name):
                self.search.setdefault(key, self.value(arguments.pop(key)))
        for key in WRAPPERS.get(kind, ()):
            if inner := arguments.pop(key, None):
                self._leave_out(f"{place}: {kind}", arguments)
                return self._class_and_arguments(place, inner)
        return kind, arguments

    def _leave_out(self, place: str, arguments: Mapping[str, ast.expr]) -> None:
        """Note arguments of a call, by name, that have no counterpart."""
        self.found.left_out += [
            f"{place}: {name}={ast.unparse(value)}" for name, value in arguments.items()
        ]

    def _take_resources(self, node: ast.expr) -> None:
        """Take the cores and GPUs of a trial, `{"cpu": 2, "gpu": 1}`; note any other resource."""
        resources = self.value(node)
        self.search["resources"] = {
            f"{key}s": resources[key] for key in ("cpu", "gpu") if resources.get(key)
        }
        self.found.note_unread(resources, "cpu gpu", "resources: ")

    def _take_function(self, call: ast.Call) -> None:
        """Take the function of the script that `call` names first, unless an earlier call has named one.

        It may stand in the call itself, or in what one of the call's names was assigned.
        """
        names = [part for part in ast.walk(call) if isinstance(part, ast.Name)]
        for top in [call, *map(self._assigned, names)]:
            for part in ast.walk(top):
                if isinstance(part, ast.Name) and part.id in self._functions:
                    self.function = self.function or part.id
                # A lambda or partial that gives the function more arguments has no counterpart.
                gives = isinstance(part, ast.Lambda) or (
                    isinstance(part, ast.Call) and ast.unparse(part.func).endswith("partial")
                )
                used = {name.id for name in ast.walk(part) if isinstance(name, ast.Name)}
                if gives and used & self._functions:
                    self.found.left_out.append(ast.unparse(part))

    def _take_flag(self, call: ast.Call) -> None:
        """Take a flag of argparse with its default; note one that the script needs and that has none."""
        words = {word.arg: word.value for word in call.keywords}
        # The long one of `-l, --learning-rate`.
        flag = max(map(self.value, call.args), key=len)
        name = flag.lstrip("-")
        action_text = ast.unparse(words.get("action", ast.Constant("store")))
        action = action_text.rpartition(".")[2].strip("'")
        default = self.value(words["default"]) if "default" in words else None
        # The default of any other action, such as store_true, is not what the flag passes.
        if action not in (*WITH_VALUE, ON_OR_OFF):
            default = False
        elif action == ON_OR_OFF and default:
            self.found.left_out.append(
                f"{flag}: {name} of false leaves the flag out; no-{name} of true passes --no-{name}"
            )
        elif default is True:  # the flag has a value
            default = "True"
        if flag == "--seed":
            self.seed_words = [flag, "{seed}"]
        elif flag[0] != "-" or ("required" in words and self.value(words["required"])):
            self.found.left_out.append(
                f"{flag}: the script needs it and has no default; add it to the command or to config"
            )
        elif default is not None:
            self.flags[name] = default
            if not flag.startswith("--"):
                self.names[name] = flag


def _is_true(value: Any, _: Any) -> bool:
    """Whether a condition such as `if nesterov:` holds, which compares with nothing."""
    return bool(value)


def _exits_before(node: ast.AST, parent: ast.AST) -> Iterator[int]:
    """Yield the lines of `return` and `raise` that stand before `node` in the block of `parent`, a statement."""
    for _, block in ast.iter_fields(parent) if isinstance(parent, ast.stmt) else ():
        for before in (
            block[: block.index(node)] if isinstance(block, list) and node in block else ()
        ):
            if not isinstance(before, ast.FunctionDef | ast.ClassDef):
                exits = (ast.Return, ast.Raise)
                yield from (part.lineno for part in ast.walk(before) if isinstance(part, exits))


def _name_tune(nodes: Sequence[ast.AST]) -> None:
    """Write names that a script has imported from Ray Tune as `tune.NAME`, whatever the script calls them."""
    imported = dict[str, str]()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            imported |= {part.asname or part.name: f"{module}{part.name}" for part in node.names}
    for node in nodes:
        if isinstance(node, ast.Name) and re.match(r"ray\.tune\b", imported.get(node.id, "")):
            node.id = imported[node.id].removeprefix("ray.")


def _tune_calls(node: ast.AST) -> list[ast.AST]:
    """Return the calls of Ray Tune in and below `node` that declare a parameter, such as `tune.choice([1, 2])`."""
    names = {f"tune.{name}" for name in (*foreign.TUNE, "choice", "grid_search")}
    inner = ast.walk(node)
    return [
        part for part in inner if isinstance(part, ast.Call) and ast.unparse(part.func) in names
    ]


def _arguments(call: ast.Call, names: Sequence[str]) -> list[tuple[str, ast.expr]]:
    """Return name and value of each argument of a call; those by place have the `names`, in order.

    A mapping that is unpacked has the name `**`.
    """
    placed = list(zip(names, call.args, strict=False))
    return placed + [(word.arg or "**", word.value) for word in call.keywords]


def _read_script(found: Found, file: Path, text: str) -> None:
    """Read the script `file`, with this `text`, that searches with Ray Tune or Optuna, or takes flags, into `found`.

    The script is parsed and never run. A search whose function is found becomes a `trainable`, any other script a
    command with its flags. `SyntaxError` where it is no Python.
    """
    script = _Script(found, text, file)
    # What the top of the module calls would run as soon as the study imports it.
    searches = r"\.(fit|optimize|run)\("
    functions = [part for part in script.tree.body if isinstance(part, ast.FunctionDef)]
    for function in functions:
        if re.search(searches, ast.unparse(function)):  # a call of it runs the search too
            searches += rf"|\b{function.name}\("
    for part in script.tree.body:
        runs = re.search(searches, ast.unparse(part))
        if runs and isinstance(part, ast.Assign | ast.Expr):
            line = f"line {part.lineno} runs as the module is imported"
            found.left_out.append(f'{line}; put it below `if __name__ == "__main__":`')
    for node in ast.walk(script.tree):
        try:
            script.read(node)
        except (ValueError, TypeError):
            found.left_out.append(f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)}")
    found.left_out += [
        f"line {line} may end the function before it suggests {', '.join(names)}; write `when` if a parameter decides"
        for line, names in script.exits.items()
    ]
    search = script.search
    # Optuna minimises where nothing else is said, Ray Tune maximises. The first three letters of "minimize", as Optuna
    # says it, are our word.
    usual = "min" if "optuna" in text and not script.is_tune else "max"
    found.study["mode"] = str(search.get("direction", search.get("mode", usual)))[:3]
    found.study["name"] = _name(search.get("name", "")) or found.study["name"]
    path = _from_here(file.resolve())
    if found.space and script.function:
        _as_trainable(script, path, text)
    else:
        _as_command(script, path)


def _as_trainable(script: _Script, path: str, text: str) -> None:
    """Let the study call the function that the script's search calls, in place of a command.

    `path` and `text` are those of the script. `SpecError` where it does not lie below the current folder.
    """
    found = script.found
    search = script.search
    if Path(path).is_absolute():
        raise SpecError(
            "a study imports the function of a script from below the current folder",
            place="--from",
            value=path,
            hint="go to the script's folder",
        )
    module = ".".join(Path(path).with_suffix("").parts)
    if script.is_tune:
        _read_tune_search(found, text, search)
        found.arm = {"trainable": f"tune:{module}:{script.function}"}
    else:
        # The only value of an objective that reports none on its way is its last, which nothing may prune.
        if found.pruner and ".report(" not in text:
            found.pruner = {}
            found.left_out.append("pruner: the objective reports no value before its last")
        found.study["metric"] = "objective"
        found.searcher = found.searcher or "tpe"
        found.arm = {"trainable": f"optuna:{module}:{script.function}"}
    found.trials = search.get("n_trials") or search.get("num_samples") or found.trials
    if search.get("resources"):
        found.arm["resources"] = search["resources"]


def _as_command(script: _Script, path: str) -> None:
    """Let the study run the script at `path` with its flags, and note what the user has to write."""
    found = script.found
    found.study["metric"] = script.search.get("metric", "accuracy")
    found.config |= script.flags
    found.searcher = "random" if found.space else "grid"
    found.arm = {"command": ["python", path, *script.seed_words, "{args}"]}
    if script.names:
        found.arm["names"] = script.names
    # The script does search, but a study can only import a function at the top of the file.
    if script.search or found.space:
        found.left_out.append(
            "trainable: no function at the top of this file is what Tuner, run or optimize calls"
        )
    # Flags have defaults, and no values to search.
    if not found.space:
        found.left_out.append("axes: a setting of config and its values, such as {lr: [0.1, 0.01]}")
    if "metric" not in script.search:
        found.left_out.append(
            "metric: name what the script reports; accuracy stands there as a guess"
        )


def _read_tune_search(found: Found, text: str, search: Config) -> None:
    """Read metric, searcher and end of trials of a search by Ray Tune, from what its calls say, into `found`.

    `text` is that of the whole script, `search` as in `_Script`.
    """
    found.study["metric"] = search.get("metric", "accuracy")
    found.searcher = found.searcher or "random"
    # A grid needs all values of every setting.
    if "grid_search(" in text and not all(map(_values, found.space.values())):
        found.left_out.append("tune.grid_search: its values are drawn at random, as ranges are")
    elif "grid_search(" in text:
        found.searcher = "grid"
        samples = search.get("num_samples", 1)
        if samples > 1:
            found.left_out.append(f"num_samples: {samples}; `seeds` repeats each point of a grid")
    stop = search.get("stop", {})
    last_step = {"training_iteration": search["max_t"]} if "max_t" in search else {}
    # A step in `stop` takes precedence over the one at which the scheduler ends every trial.
    if isinstance(stop, dict) and (stop or last_step):
        found.config[UNTIL] = last_step | stop


def _read_tune_space(
    found: Found, node: ast.Dict, value: Callable[[ast.expr], Any], prefix: str = ""
) -> None:
    """Read a `param_space` of Ray Tune, the mapping `node`, into the space and the config of `found`.

    `value` gives the value of a literal or a known name, or raises `ValueError`; what has none is noted as left out.
    `prefix` is the dotted key of a nested mapping, with a dot behind it.
    """
    for key, inner in zip(node.keys, node.values, strict=True):
        if key is None:
            found.left_out.append(f"**{ast.unparse(inner)}")
            continue
        name = f"{prefix}{value(key)}"
        if isinstance(inner, ast.Dict):
            _read_tune_space(found, inner, value, f"{name}.")
            continue
        try:
            if isinstance(inner, ast.Call) and ast.unparse(inner.func).startswith("tune."):
                function = ast.unparse(inner.func).removeprefix("tune.")
                # The base of a logarithm changes nothing in what is drawn.
                named = [word.value for word in inner.keywords if word.arg != "base"]
                values = [value(argument) for argument in inner.args + named]
                found.space[name] = foreign.tune_fields(function, values)
            else:
                found.config[name] = value(inner)
        except (ValueError, TypeError):
            found.left_out.append(f"{name}: {ast.unparse(inner)}")


def _name(text: str) -> str:
    """Return `text` as a name of a study: each run of other signs is a dash; "" where nothing is left."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-._")


def _from_here(path: Path) -> str:
    """Return a path as text: relative to the current folder where it lies below that, else as it is."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
