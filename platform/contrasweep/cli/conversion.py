"""Sweeps of other programs as a study: `contrasweep init --from FILE`. Files are read, never run.

W&B's `sweep.yaml`, SEML's experiments, Hydra's configuration with the Optuna sweeper; Python scripts with Optuna's
`suggest_*`, with a `param_space` of Ray Tune, or with flags of argparse. Of a script, literals are read, and names that
are assigned once; all else is listed as without a counterpart.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrasweep.commands.functions import OBJECTIVE, STOP_KEY
from contrasweep.config import Config, MutableConfig, lookup
from contrasweep.data.yaml_text import read_yaml
from contrasweep.errors import SpecError
from contrasweep.study import foreign
from contrasweep.study.file import as_study

Space = dict[str, MutableConfig]
"""Dotted key of a searched setting -> the fields of our parameter: `{"lr": {"type": "float", "low": .01, ...}}`."""
WANDB_MACROS = {
    "${interpreter}": "python",
    "${args}": "{args:wandb}",
    "${args_no_boolean_flags}": "{args}",
    "${args_no_hyphens}": "{args:hydra}",
    "${args_json_file}": "{config}",
}
"""Word of a command of W&B's -> the word of ours that stands for the same."""
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
SEARCH_CALLS: Mapping[str, Sequence[str]] = {
    "create_study": (),
    "optimize": ("func", "n_trials"),
    "run": ("run_or_experiment",),
    "RunConfig": (),
    "TuneConfig": (),
    "Tuner": ("trainable",),
}
"""Calls of Optuna and Ray Tune that declare a search -> names of their arguments by place."""
READ_ARGS = ("direction", "metric", "mode", "n_trials", "name", "num_samples", "stop", "study_name")
"""Arguments of these calls whose values are read."""
FUNCTION_ARGUMENTS = ("func", "run_or_experiment", "trainable")
"""Arguments of these calls that name the function which trains."""
TUNE_PARAMETERS = (*foreign.TUNE, "choice", "grid_search")
"""Functions of `tune` that declare a parameter."""
ACTIONS_WITHOUT_VALUE = ("store_true", "store_false")
KNOWN_ACTIONS = (*ACTIONS_WITHOUT_VALUE, "store", "append", "extend")
"""Actions of argparse whose flags take no value, and all whose flags a study can pass."""
MOST_VALUES = 10_000
"""Values of a parameter that a grid lists at most."""


class _ArmPart(NamedTuple):
    """What an arm alone fixes (setting -> value) and searches."""

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
    arms: dict[str, _ArmPart] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    searcher: str = ""
    trials: int | None = None

    def note_unread(self, fields: Config, read: str, place: str = "") -> None:
        """Note in `left_out` the fields that have no counterpart: all but those whose names `read` lists.

        In `read` there are spaces between names. `place` goes before each name in the line, with its dot: `seml.`.
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

    def study_fields(self) -> MutableConfig:
        """Return the study's fields: of a grid where all values are listed and all arms vary the same, else of a sweep.

        An arm's own settings take precedence over those of all arms.
        """
        axes = {name: _all_values(parameter) for name, parameter in self.space.items()}
        arms = self.arms or {"main": _ArmPart({}, {})}
        # A grid needs all values of all axes, and the same axes in all arms.
        arms_differ = any(part.space for part in arms.values())
        if self.searcher == "grid" and all(axes.values()) and not arms_differ:
            return self._grid(axes, {name: part.config for name, part in arms.items()})
        # Everything else is a sweep.
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
            "confirm_on": "all",
            "searcher": self.searcher,
            "trials_per_arm": self.trials or PRESUMED_TRIALS,
            "arms": declared,
        }

    def _grid(self, axes: MutableConfig, arms: Mapping[str, MutableConfig]) -> MutableConfig:
        """Return the fields of a grid over `axes`, setting -> values; `arms` has what each arm alone fixes.

        A setting `seed` whose values are integers becomes the study's `seeds`, if the command can be given one.
        """
        # The seed is the trial's own and no setting: the command has to name it, before all other settings.
        command = self.arm.get("command", ())
        args_word = next((word for word in command if word.startswith("{args")), None)
        seeds = axes.get("seed", ())
        if args_word and seeds and all(isinstance(seed, int) for seed in seeds):
            if not any("{seed}" in word for word in command):
                words = ["seed={seed}"] if args_word == "{args:hydra}" else ["--seed", "{seed}"]
                place = command.index(args_word)
                command[place:place] = words
            self.study["seeds"] = axes.pop("seed")
        declared = {
            name: self.arm | {"config": self.config | config} for name, config in arms.items()
        }
        return {**self.study, "arms": declared, "axes": axes}


def converted(file: Path) -> tuple[MutableConfig, list[str]]:
    """Return the fields of a study from a file of another program, and what of it has no counterpart.

    Raises `SpecError` for a file that holds no sweep, that breaks the rules of its program, or of which no study can be
    made.
    """
    try:
        found = _read(file)
        study = found.study_fields()
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
    as_study(study)  # raises where it cannot be one
    return study, found.left_out


def _read(file: Path) -> Found:
    """Return what a file declares. Its suffix and keys tell which program it is for.

    `SpecError` for a program that is not known here; `ValueError`, `KeyError` and others where the file breaks a rule
    of its program.
    """
    found = Found({"name": _name(file.stem) or "study", "data": "none"})
    text = file.read_text()
    if file.suffix == ".py":
        _read_script(found, file, text)
        return found
    content = read_yaml(text, str(file))
    fields = content if isinstance(content, Mapping) else {}
    sweeper = lookup(fields, "hydra.sweeper")
    if isinstance(sweeper, Mapping) and "params" in sweeper:
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
    return found


def _all_values(fields: MutableConfig) -> list[Any]:
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
    found.note_unread(content, "command method metric name parameters program run_cap")
    # W&B's macros in the command become placeholders. `${env}`, which is `env` before the program, is added below.
    macros = WANDB_MACROS | {"${program}": content.get("program", "")}
    words = content.get("command", ["${interpreter}", "${program}", "${args}"])
    # `${envvar:NAME}` is a variable's value, `${args_json}` all settings as one word of JSON.
    found.left_out += [
        f"command: {word}" for word in words if word.startswith(("${envvar:", "${args_json}"))
    ]
    command = [macros.get(word, word) for word in words if word != "${env}"]
    # A script may take its settings from flags or from wandb.config. W&B's agent gives it both.
    start = ["env", "WANDB_MODE=offline", "WANDB_SWEEP_PARAM_PATH={config:wandb}"]
    found.arm = {"command": [*start, *command], "metrics": "wandb"}


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
    count = fields.get("num") or (high - low) / fields["step"]
    if count > MOST_VALUES:
        raise ValueError(f"{key} has more than {MOST_VALUES} values")
    if "num" in fields:
        spaced = np.geomspace if is_log else np.linspace
        values = spaced(low, high, count)
    else:
        values = np.arange(low, high, fields["step"])
    return {"type": "choice", "options": values.tolist()}


def _read_hydra(found: Found, file: Path, content: Config, sweeper: Config) -> None:
    """Read a configuration of Hydra with the Optuna sweeper into `found`; what has no counterpart is noted there.

    `content` is that of the whole `file`, `sweeper` its part `hydra.sweeper`.
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
    # A part of Hydra may be chosen in the list of defaults, as by `- override hydra/sweeper/sampler: tpe`: here
    # `sweeper/sampler` -> `tpe`.
    chosen = MutableConfig()
    for entry in content.get("defaults", ()):
        for key, value in entry.items() if isinstance(entry, Mapping) else ():
            if "hydra/" in key:
                chosen[key.rpartition("hydra/")[2]] = value
    sampler = sweeper.get("sampler", {})
    kind = sampler.get("_target_", chosen.get("sweeper/sampler", "tpe"))
    found.search_by(kind, "sampler")
    found.note_unread(sampler, "_target_", "hydra.sampler.")
    found.note_unread(content["hydra"] | chosen, "sweeper sweeper/sampler", "hydra.")
    found.trials = sweeper.get("n_trials", found.trials)
    for name, override in sweeper["params"].items():
        text = str(override).strip()
        try:
            found.space[name] = _override_parameter(text, ast.parse(text, mode="eval").body)
        except (SyntaxError, ValueError, TypeError, IndexError):
            found.left_out.append(f"{name}: {text}")
    read = "_target_ direction n_trials params sampler study_name"
    found.note_unread({key: value for key, value in sweeper.items() if value}, read)
    found.left_out.append(
        "what the function returns: name in metrics where the script prints or writes it"
    )
    # Of the scripts that use Hydra, one that names this config, and lies less deep, is meant.
    config_name = file.stem.encode()
    scripts = [script for script in Path().rglob("*.py") if b"hydra.main(" in script.read_bytes()]
    scripts.sort(key=lambda script: (config_name not in script.read_bytes(), len(script.parts)))
    script = str(scripts[0]) if scripts else "main.py"
    found.arm = {"command": ["python", script, "{args:hydra}"]}


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

    `read` is called with each call in `tree`, and adds what that call says.

    Attributes:
        tree: The parsed module.
        folder: The folder of its file.
        found: The space and the searcher that were read, and what has no counterpart.
        search: Argument -> value, for each of `READ_ARGS` that a call which declares the search has; `study_name` is
            called `name`.
        function: The function of the script that the search calls to train; "" where none was found.
        flags: Name of a flag, without its dashes -> its default.
        names: Name of a flag -> the flag, of those with one dash, `-lr`.
        is_tune: Whether the script calls Ray Tune.
        hydra: Where the script uses Hydra, what stands for its configuration in a message, its file if it has one; else
            "".
        seed_words: The words of the command that pass the seed; empty where the script has no `--seed`, and none of
            Hydra.
        spaces: All parts of the mappings that were read as a space of Ray Tune.
        suggested: Parameter of Optuna -> the first call that suggests it.
        doubtful: Parts of the script that a condition may leave out: below an `if`, or behind a first `return` or
            `raise`.
        tune_names: What the script has imported from `ray.tune`, by the names there.
        imports_search: Whether the script imports Ray or Optuna.
    """

    def __init__(self, found: Found, text: str, file: Path) -> None:
        """Parse the `text` of the script `file`; `SyntaxError` where it is no Python."""
        self.tree = ast.parse(text, str(file))
        self.folder = file.parent
        self.found = found
        self.search: MutableConfig = {}
        self.function = ""
        self.flags: MutableConfig = {}
        self.names: dict[str, str] = {}
        self.is_tune = False
        self.hydra = ""
        self.seed_words: list[str] = []
        self.spaces: set[ast.AST] = set()
        self.suggested: dict[str, ast.Call] = {}
        self.doubtful: set[ast.AST] = set()
        self.tune_names: set[str] = set()
        self.imports_search = False
        self._functions = {
            node.name for node in self.tree.body if isinstance(node, ast.FunctionDef)
        }
        self._assigned: dict[str, ast.expr] = {}  # name -> what is assigned to it
        nodes = list(ast.walk(self.tree))
        # How often a name is set: by `=`, `+=`, `for`, `with`, and as a parameter of a function.
        times_set = Counter[str]()
        for node in nodes:
            if isinstance(node, ast.arg):
                times_set[node.arg] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                times_set[node.id] += 1
        for node in nodes:
            # Only the value of a name that is set once is known without running the script.
            if isinstance(node, ast.Assign) and times_set[ast.unparse(node.targets[0])] == 1:
                self._assigned[ast.unparse(node.targets[0])] = node.value
            elif isinstance(node, ast.If | ast.IfExp | ast.Match):
                self.doubtful.update(ast.walk(node))
            elif isinstance(node, ast.FunctionDef):
                parts = list(ast.walk(node))
                ends = [part.lineno for part in parts if isinstance(part, ast.Return | ast.Raise)]
                first_end = min(ends, default=math.inf)
                # What stands behind the first of these may not be reached.
                for part in parts:
                    if getattr(part, "lineno", 0) > first_end:
                        self.doubtful.add(part)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or node.names[0].name
                self.imports_search |= module.partition(".")[0] in ("optuna", "ray")
                if module == "ray.tune":
                    self.tune_names |= {part.name for part in node.names if not part.asname}

    def read(self, call: ast.Call) -> None:
        """Take what a call says of a search: what declares it, a parameter, a flag of the script.

        Nothing is taken of any other call. `ValueError` or `TypeError` where its values are not known without running
        the script.
        """
        function = ast.unparse(call.func)
        name = function.rpartition(".")[2]
        # Many functions are called `run`, such as `asyncio.run`.
        if name in SEARCH_CALLS and (name != "run" or function.endswith("tune.run")):
            self.is_tune |= name in ("run", "Tuner")
            self._declare(call, SEARCH_CALLS[name])
        # Optuna's `suggest_...`, whose first argument is the parameter's name.
        elif name in foreign.OPTUNA:
            parameter, *rest = map(self.value, call.args)
            keywords = {word.arg: self.value(word.value) for word in call.keywords if word.arg}
            fields = foreign.optuna_fields(name, rest, keywords)
            # An earlier call may suggest it from another range.
            if self.found.space.setdefault(parameter, fields) != fields:
                raise ValueError(parameter)
            self.suggested.setdefault(parameter, call)
        elif name == "add_argument":
            self._take_flag(call)
        elif function == "hydra.main":
            self._take_configuration(call)
        # It changes defaults of flags that were read already.
        elif name == "set_defaults":
            raise ValueError(name)

    def value(self, node: ast.expr) -> Any:
        """Return the value of a literal, or of a name that is set once; `ValueError` for any other expression."""
        node = self._resolved(node)
        if isinstance(node, ast.Dict):
            return {
                self.value(key): self.value(inner)
                for key, inner in zip(node.keys, node.values, strict=True)
                if key
            }
        return ast.literal_eval(node)

    def _resolved(self, node: ast.expr) -> ast.expr:
        """Return what is assigned to `node`, if it is a name that is set once; else `node` itself."""
        return self._assigned.get(ast.unparse(node), node)

    def is_of_tune(self, function: str) -> bool:
        """Whether a function of the script, `tune.choice` or an imported `choice`, is one of Ray Tune's."""
        return function.startswith("tune.") or function in self.tune_names

    def _declare(self, call: ast.Call, places: Sequence[str]) -> None:
        """Take the arguments of a call that declares a search; one that is None is left out.

        `places` are the names of the arguments that are given by their place. What has no counterpart is noted.
        """
        arguments: dict[str, ast.expr] = {}
        for i, argument in enumerate(call.args):
            arguments[places[i] if i < len(places) else f"argument {i + 1}"] = argument
        for word in call.keywords:
            arguments[word.arg or "**"] = word.value
        for key, argument in arguments.items():
            node = self._resolved(argument)
            text = ast.unparse(node)
            if key in FUNCTION_ARGUMENTS:
                self._take_function(node)
            elif key in ("sampler", "search_alg") and isinstance(node, ast.Call):
                self.found.search_by(ast.unparse(node.func), key)
                if node.args or node.keywords:
                    self.found.left_out.append(f"{key}: the arguments of {text}")
            elif key in ("config", "param_space") and isinstance(node, ast.Dict):
                self.spaces.update(ast.walk(node))
                self._read_tune_space(node)
            elif key not in ("tune_config", "run_config") and text != "None":
                try:
                    if key not in READ_ARGS:
                        raise ValueError(key)
                    self.search[key.removeprefix("study_")] = self.value(argument)
                except (ValueError, TypeError):
                    self.found.left_out.append(f"{key}: {text}")

    def _take_function(self, node: ast.expr) -> None:
        """Take the function of the script that `node` is or calls, unless an earlier call has named one.

        What else `node` says, such as by `partial` or `tune.with_resources`, is noted.
        """
        names = _names_in(node)
        for name in list(names):
            if name in self._assigned:
                names += _names_in(self._assigned[name])
        function = next((name for name in names if name in self._functions), "")
        self.function = self.function or function
        if function and not isinstance(node, ast.Name):
            self.found.left_out.append(f"{ast.unparse(node)}: {function} alone is called")

    def _read_tune_space(self, node: ast.Dict, prefix: str = "") -> None:
        """Read a `param_space` of Ray Tune, the mapping `node`, into space and config; note what has no counterpart.

        `prefix` is the dotted key of a nested mapping, with a dot behind it.
        """
        for key, inner in zip(node.keys, node.values, strict=True):
            name = "**" if key is None else f"{prefix}{self.value(key)}"
            if isinstance(inner, ast.Dict):
                self._read_tune_space(inner, f"{name}.")
                continue
            function = ast.unparse(inner.func) if isinstance(inner, ast.Call) else ""
            try:
                if isinstance(inner, ast.Call) and self.is_of_tune(function):
                    # The base of a logarithm changes nothing in what is drawn.
                    named = [word.value for word in inner.keywords if word.arg != "base"]
                    values = [self.value(argument) for argument in inner.args + named]
                    drawn = foreign.tune_fields(function.removeprefix("tune."), values)
                    self.found.space[name] = drawn
                else:
                    self.found.config[name] = self.value(inner)
            except (ValueError, TypeError):
                self.found.left_out.append(f"{name}: {ast.unparse(inner)}")

    def _take_configuration(self, call: ast.Call) -> None:
        """Take the configuration that `hydra.main` names, and its `seed`, which becomes the trial's."""
        words = dict(zip(("config_path", "config_name"), call.args, strict=False))
        words |= {word.arg: word.value for word in call.keywords if word.arg}
        folder, name = (
            self.value(words[key]) if key in words else None
            for key in ("config_path", "config_name")
        )
        self.hydra = "its configuration"
        if name:
            file = Path(folder or "", f"{name.removesuffix('.yaml')}.yaml")
            self.hydra = str(file)
            place = self.folder / file
            if place.is_file() and "seed" in (read_yaml(place.read_text(), str(place)) or ()):
                self.seed_words = ["seed={seed}"]

    def _take_flag(self, call: ast.Call) -> None:
        """Take a flag of argparse with its default; note one that the user has to write."""
        words = {word.arg: word.value for word in call.keywords}
        # The long one of `-l, --learning-rate`: its name is that of the setting.
        flag = max(map(self.value, call.args), key=len)
        action = ast.unparse(words.get("action", ast.Constant("store"))).strip("'")
        default = self.value(words["default"]) if "default" in words else None
        # `{args}` passes a setting that is true as the flag alone, and one that is false not at all. So the default
        # True of a flag with a value becomes a text.
        if action in ACTIONS_WITHOUT_VALUE:
            default = False
        elif default is True:
            default = "True"
        is_required = "required" in words and self.value(words["required"])
        if flag == "--seed":
            self.seed_words = [flag, "{seed}"]
        elif flag[0] != "-" or is_required or action not in KNOWN_ACTIONS:
            self.found.left_out.append(
                f"{flag}: add it to the command, or to config with a value of its own"
            )
        elif default is not None:
            name = flag.lstrip("-")
            self.flags[name] = default
            if not flag.startswith("--"):
                self.names[name] = flag


def _names_in(node: ast.expr) -> list[str]:
    """Return the names that an expression has, in the order of `ast.walk`."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _read_script(found: Found, file: Path, text: str) -> None:
    """Read the script `file`, with this `text`, that searches with Ray Tune or Optuna, or takes flags, into `found`.

    The script is parsed and never run. A search whose function is found becomes a `trainable`, any other script a
    command with its flags. `SyntaxError` where it is no Python.
    """
    script = _Script(found, text, file)
    found.left_out += _run_by_import(script.tree)
    calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call)]
    for call in calls:
        try:
            script.read(call)
        except (ValueError, TypeError):
            found.left_out.append(f"line {call.lineno}: {ast.unparse(call)}")
    for call in calls:
        # A parameter that stands elsewhere, as in `space["y"] = tune.choice([2])`.
        function = ast.unparse(call.func)
        is_drawn = script.is_of_tune(function) and function.removeprefix("tune.") in TUNE_PARAMETERS
        if is_drawn and call not in script.spaces:
            found.left_out.append(f"line {call.lineno}: {ast.unparse(call)}")
    # Only the function that the search calls surely runs: what is suggested elsewhere may not be.
    always: set[ast.AST] = set()
    for part in script.tree.body:
        if getattr(part, "name", "") == script.function:
            always.update(ast.walk(part))
    for name, call in script.suggested.items():
        if call not in always or call in script.doubtful:
            found.left_out.append(
                f"{name}: line {call.lineno} may suggest it under a condition; write `when` if so"
            )
    # Without a direction Optuna minimises and Ray Tune maximises. The first three letters of Optuna's "minimize" are
    # our word.
    search = script.search
    default = "min" if "optuna" in text and not script.is_tune else "max"
    found.study["mode"] = str(search.get("direction", search.get("mode", default)))[:3]
    found.study["name"] = _name(search.get("name", "")) or found.study["name"]
    path = _from_here(file.resolve())
    if found.space and script.function:
        _as_trainable(script, path, text)
    else:
        _as_command(script, path)
    if not search.get("metric") and found.study["metric"] != OBJECTIVE:
        found.left_out.append(
            "metric: name what the script reports; accuracy stands there as a guess"
        )


def _run_by_import(tree: ast.Module) -> Iterator[str]:
    """Yield a sentence on each statement at the top of a script that runs the search when a study imports it."""
    searches = r"\.(fit|optimize|run)\("
    for statement in tree.body:
        runs = re.search(searches, ast.unparse(statement))
        if runs and isinstance(statement, ast.FunctionDef):  # a call of it runs the search too
            searches += rf"|\b{statement.name}\("
        elif runs and isinstance(statement, ast.Assign | ast.Expr):
            line = f"line {statement.lineno} runs as the module is imported"
            yield f'{line}; put it below `if __name__ == "__main__":`'


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
    found.trials = search.get("n_trials") or search.get("num_samples") or found.trials
    program = "tune" if script.is_tune else "optuna"
    module = ".".join(Path(path).with_suffix("").parts)
    found.arm = {"trainable": f"{program}:{module}:{script.function}"}
    if not script.is_tune:
        found.study["metric"] = OBJECTIVE
        found.searcher = found.searcher or "tpe"
        return
    found.study["metric"] = search.get("metric") or "accuracy"
    found.searcher = found.searcher or "random"
    if isinstance(search.get("stop"), dict):
        found.config[STOP_KEY] = search["stop"]
    if "grid_search(" not in text:
        return
    # A grid needs all values of every setting.
    if not all(map(_all_values, found.space.values())):
        found.left_out.append("tune.grid_search: its values are drawn at random, as ranges are")
    else:
        found.searcher = "grid"
        samples = search.get("num_samples", 1)
        if samples > 1:
            found.left_out.append(f"num_samples: {samples}; `seeds` repeats each point of a grid")


def _as_command(script: _Script, path: str) -> None:
    """Let the study run the script at `path` with its flags, and note what the user has to write."""
    found = script.found
    found.study["metric"] = script.search.get("metric") or "accuracy"
    found.config |= script.flags
    found.searcher = "random" if found.space else "grid"
    settings = "{args:hydra}" if script.hydra else "{args}"
    found.arm = {"command": ["python", path, *script.seed_words, settings]}
    if script.names:
        found.arm["names"] = script.names
    # The script does search, but a study can only import a function at the top of the file.
    if script.search or found.space or script.imports_search:
        found.left_out.append(
            "trainable: no function at the top of this file is what Tuner, run or optimize calls"
        )
    # Flags have defaults, and no values to search.
    if not found.space:
        if script.hydra:
            found.left_out.append(f"config: what trials set in {script.hydra}, by dotted names")
        elif not script.flags:
            found.left_out.append(
                "config: no flag of argparse is declared here; write the script's"
            )
        found.left_out.append("axes: a setting of config and its values, such as {lr: [0.1, 0.01]}")


def _name(text: str) -> str:
    """Return `text` as a name of a study: each run of other signs is a dash; "" where nothing is left."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-._")


def _from_here(path: Path) -> str:
    """Return a path as text: relative to the current folder where it lies below that, else as it is."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
