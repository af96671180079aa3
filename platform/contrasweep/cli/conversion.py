"""Sweeps of other programs as a study: `contrasweep init --from FILE`. Files are read, never run.

W&B's `sweep.yaml`, SEML's experiments, Hydra's configuration with the Optuna sweeper; Python scripts with Optuna's
`suggest_*`, with a `param_space` of Ray Tune, or with flags of argparse.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from contrasweep.commands.functions import UNTIL
from contrasweep.config import Config, MutableConfig
from contrasweep.data.yaml_text import read_yaml
from contrasweep.errors import SpecError
from contrasweep.study import foreign
from contrasweep.study.file import as_study

Space = dict[str, MutableConfig]
"""Dotted key of a searched setting -> the fields of our parameter: `{"lr": {"type": "float", "low": .01, ...}}`."""
WANDB = {
    "${interpreter}": "python",
    "${args}": "{args}",
    "${args_no_boolean_flags}": "{args}",
    "${args_no_hyphens}": "{args:hydra}",
    "${args_json_file}": "{config}",
}
"""Words of W&B's commands, and ours."""
# Parameter of the class -> ours, and its default there.
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
"""Classes of Ray Tune and Optuna -> our pruner, and their parameter -> ours, with their default."""
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
"""Of these the arguments that are read where they stand in the script."""
WRAPPERS = {
    **dict.fromkeys(("ConcurrencyLimiter", "Repeater"), ("searcher", "argument 1")),
    "OptunaSearch": ("sampler",),
}
"""Search algorithms that hand over to another, and the argument that it is."""
ARGUMENTS = ("argparse", "sys.argv", "click", "fire", "absl", "hydra", "typer", "HfArgumentParser")
"""Words of a script that reads its command line."""

MOST_VALUES = 10_000
"""Values of a parameter that a grid lists at most."""


@dataclass
class Found:
    """What a file declares, in our words, as it is gathered while the file is read.

    Attributes:
        study: Fields of the study, such as `name`, `metric` and `mode`.
        arm: Fields that all arms have, such as `command` or `trainable`.
        config: Settings that are fixed for all arms, by dotted key.
        space: Settings that are searched in all arms.
        arms: Arm -> what it alone fixes and searches; empty: there is one arm, `main`.
        left: A line, `PLACE: VALUE`, for each thing that has no counterpart and is left out.
        searcher: Our searcher; `grid` where all values are listed, "" as long as the file has not said.
        trials: Trials that the search may take for each arm.
        pruner: The fields `pruner` and `pruner_options` of the study; empty without early stopping.
    """

    study: MutableConfig
    arm: MutableConfig = field(default_factory=dict)
    config: MutableConfig = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    arms: dict[str, tuple[MutableConfig, Space]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    searcher: str = ""
    trials: int = 20
    pruner: MutableConfig = field(default_factory=dict)

    def unread(self, fields: Config, read: str, place: str = "") -> None:
        """Note the fields that have no counterpart: all but those whose names are in `read`, with spaces between them.

        `place` goes before each name in the line, with its dot or colon: `seml.`.
        """
        self.left += [
            f"{place}{key}: {value}" for key, value in fields.items() if key not in read.split()
        ]

    def search_by(self, kind: str, place: str) -> None:
        """Take our searcher for the method, sampler or search algorithm `kind`: a word, a class or a dotted path.

        One without counterpart is noted in `left`, at `place`, and searched by `tpe`.
        """
        # optuna.samplers.TPESampler and tpe are one: the class's name without its last word.
        short = re.sub("(sampler|search|generator)$", "", kind.rpartition(".")[2].lower())
        if short not in SEARCHERS:
            self.left.append(f"{place}: {kind}; the search is by tpe")
        self.searcher = SEARCHERS.get(short, "tpe")

    def fields(self) -> MutableConfig:
        """Return the fields of the study: a grid where all values are listed and the arms vary the same, else a sweep.

        In a grid, a setting `seed` whose values are integers becomes the study's `seeds`, if the command can be given
        one. A pruner is then noted in `left`.
        """
        axes = {name: _values(fields) for name, fields in self.space.items()}
        arms = self.arms or {"main": ({}, {})}
        if (
            self.searcher == "grid"
            and all(axes.values())
            and not any(space for _, space in arms.values())
        ):
            # The seed is the trial's own and no setting: the command has to name it, before all other settings.
            command = self.arm.get("command", ())
            placed = next((word for word in command if word.startswith("{args")), None)
            if placed and all(isinstance(seed, int) for seed in axes.get("seed", [""])):
                if not any("{seed}" in word for word in command):
                    words = ["seed={seed}"] if placed == "{args:hydra}" else ["--seed", "{seed}"]
                    command[command.index(placed) : command.index(placed)] = words
                self.study["seeds"] = axes.pop("seed")
            if self.pruner:
                self.left.append(
                    f"early stopping: {self.pruner}: a grid trains all trials to their end"
                )
            declared = {
                name: self.arm | {"config": self.config | config}
                for name, (config, _) in arms.items()
            }
            return {**self.study, "arms": declared, "axes": axes}
        declared = {}
        for name, (config, space) in arms.items():  # what an arm says itself goes first
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
            "trials_per_arm": self.trials,
            **self.pruner,
            "arms": declared,
        }


def converted(file: Path) -> tuple[MutableConfig, list[str]]:
    """Return the fields of a study from a file of another program, and what of it has no counterpart.

    Raises `SpecError` for a file that holds no sweep, or that breaks the rules of its program.
    """
    try:
        return _converted(file)
    except SpecError:
        raise
    except Exception as error:  # a text where a mapping is meant, a parameter without an end, no Python, a folder, ...
        raise SpecError(
            "this file breaks a rule of the program that it is for",
            place="--from",
            value=str(file),
            hint=" ".join(f"{type(error).__name__}: {error}".split()),
        ) from None


def _converted(file: Path) -> tuple[MutableConfig, list[str]]:
    """Return the study's fields and what has no counterpart, as `converted` does.

    The program is told by the file's suffix and keys. Raises `SpecError` where it is none that is known, or the study
    breaks a rule of ours; `ValueError`, `KeyError` and others where a rule of the program is broken.
    """
    found = Found({"name": _name(file.stem) or "study", "data": "none"})
    text = file.read_text()
    content: Any = (
        {} if file.suffix == ".py" else read_yaml(text, str(file), "the file is not YAML")
    )
    hydra = content.get("hydra") if isinstance(content, Mapping) else None
    sweeper = hydra.get("sweeper") if isinstance(hydra, Mapping) else None
    if file.suffix == ".py":
        _of_python(found, file, text)
    elif isinstance(sweeper, Mapping) and {"params", "search_space"} & set(sweeper):
        _of_hydra(found, file, content, sweeper)
    elif isinstance(content, Mapping) and "seml" in content:
        _of_seml(found, file, content)
    elif isinstance(content, Mapping) and "parameters" in content:
        _of_wandb(found, file, content)
    else:
        hint = "W&B's sweep.yaml, SEML's yaml, Hydra's config with the Optuna sweeper, or a Python script"
        raise SpecError(
            "this file holds no sweep that is known", place="--from", value=str(file), hint=hint
        )
    study = found.fields()
    as_study(study)  # raises where it cannot be one
    return study, found.left


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
        leaf: Keys, with spaces between them: a mapping with one of these is a value. So is what is no mapping, and an
            empty one.

    Example:
        {"net": {"parameters": {"dim": {"value": 8}}}} gives ("net.dim", {"value": 8}).
    """
    for name, value in block.items():
        if isinstance(value, Mapping) and not set(leaf.split()) & set(value) and value:
            yield from (
                (f"{name}.{key}", fields)
                for key, fields in _nested(value.get(inner, value), inner, leaf=leaf)
            )
        else:
            yield name, value


def _of_wandb(found: Found, file: Path, content: Config) -> None:
    """Read a sweep of W&B, the `content` of `file`, into `found`; what has no counterpart is noted there.

    Its program becomes a command that runs W&B offline, so that the metrics are read from its run.
    """
    metric = content.get("metric", {})
    program = content.get("program", "")
    found.study |= {
        "metric": metric.get("name", "accuracy"),
        "mode": str(metric.get("goal", "min"))[:3],
    }
    found.unread(metric, "goal name", "metric.")
    found.search_by(content.get("method", "random"), "method")
    found.trials = content.get("run_cap", found.trials)
    for name, fields in _nested(
        content["parameters"], "parameters", leaf="value values min distribution"
    ):
        low = fields.get("min")
        high = fields.get("max")
        # W&B guesses the distribution from the ends where none is named.
        are_integers = isinstance(low, int) and isinstance(high, int)
        kind = fields.get("distribution", "int_uniform" if are_integers else "uniform")
        found.unread(fields, "distribution max min mu q sigma value values", f"{name}.")
        if "value" in fields:
            found.config[name] = fields["value"]
        elif "values" in fields:
            found.space[name] = {"type": "choice", "options": fields["values"]}
        elif kind in ("int_uniform", "uniform", "q_uniform", "log_uniform", "log_uniform_values"):
            # The ends of W&B's log_uniform are exponents of e; those of log_uniform_values are values.
            low, high = (math.exp(low), math.exp(high)) if kind == "log_uniform" else (low, high)
            step = fields.get("q", 1) if kind == "q_uniform" else None
            found.space[name] = foreign.ranged(
                "int" if kind == "int_uniform" else "float", low, high, step, "log" in kind
            )
        else:
            found.left.append(f"{name}: {fields}")
    stopping = dict(content.get("early_terminate", {}))
    # Hyperband that is not strict stops each run by itself, as ASHA without pauses does.
    if stopping.get("type") == "hyperband" and not stopping.get("strict"):
        reduction = stopping.get("eta", 3)
        # Hyperband names its first step, or its last one and the number of brackets, from which the first follows.
        first = stopping.get("min_iter") or max(
            1, stopping["max_iter"] // reduction ** stopping["s"]
        )
        found.pruner = {
            "pruner": "asha",
            "pruner_options": {"reduction": reduction, "min_step": first},
        }
        content = {key: value for key, value in content.items() if key != "early_terminate"}
    found.unread(content, "command method metric name parameters program run_cap")
    words = content.get("command", ["${interpreter}", "${program}", "${args}"])
    found.left += [
        f"command: {word}" for word in words if re.match(r"\$\{envvar:|\$\{args_json\}", word)
    ]
    # W&B's macros in the command become placeholders; its environment is set by the runner.
    words = [
        program if word == "${program}" else WANDB.get(word, word)
        for word in words
        if word != "${env}"
    ]
    variables = ["WANDB_MODE=offline"]
    script = file.parent / program
    # A script that reads no arguments has all its settings from wandb.config.
    if script.is_file() and not any(word in script.read_text() for word in ARGUMENTS):
        variables.append("WANDB_SWEEP_PARAM_PATH={config:wandb}")
        words.remove("{args}")
    found.arm = {"command": ["env", *variables, *words], "metrics": "wandb"}


def _of_seml(found: Found, file: Path, content: Config) -> None:
    """Read an experiment of SEML, the `content` of `file`, into `found`; what has no counterpart is noted there.

    Trials are as many as SEML would run: the values of the largest grid, times the samples that are drawn.
    """
    about = content["seml"]
    place = (
        file.parent / about.get("project_root_dir", ".") / about.get("executable", "main.py")
    ).resolve()
    found.study |= {"name": _name(about.get("name", "")) or found.study["name"], "metric": "result"}
    found.arm = {"command": ["python", _from_here(place), "with", "{args:hydra}", "seed={seed}"]}
    found.unread(about, "executable name project_root_dir", "seml.")
    if "slurm" in content:
        found.left.append(f"slurm: {content['slurm']}")
    sizes = list[int]()  # of the grids, that of the top first
    drawn = 0  # samples, of the block that draws most
    # SEML has settings at the top of the file and in named blocks; each block becomes an arm.
    for name, block in {"": content, **content}.items():
        if name in ("seml", "slurm", "fixed", "grid", "random"):
            continue
        if name:
            found.unread(block, "fixed grid random", f"{name}.")
        # A value is drawn, or listed in a grid; `samples` and `seed` are of the drawing and no settings.
        grid = block.get("grid", {})
        random = dict(block.get("random", {}))
        samples = random.pop("samples", 0)
        seed = random.pop("seed", None)
        if seed is not None:
            found.left.append(f"{name} random.seed: {seed}".strip())
        drawn = max(drawn, samples)
        config = dict(_nested(block.get("fixed", {})))
        space = Space()
        size = 1
        for key, fields in _nested({**grid, **random}, "params", leaf="type"):
            low = fields.get("min")
            high = fields.get("max")
            kind = fields["type"]
            # Settings that vary together, or are named by `+`, have no counterpart.
            if "zip_id" in fields or "+" in key:
                found.left.append(f"{name} {key}: {fields}".strip())
            elif kind == "randint":  # whose upper end is not drawn
                space[key] = foreign.ranged("int", low, high - 1)
            elif kind in ("uniform", "loguniform") and "num" not in fields:
                space[key] = foreign.ranged("float", low, high, log=kind == "loguniform")
            else:
                # A grid over a range lists `num` values between its ends, or one each `step`.
                if (
                    kind != "choice"
                    and (fields.get("num") or (high - low) / fields["step"]) > MOST_VALUES
                ):
                    raise ValueError(f"{key} has more than {MOST_VALUES} values")
                spread: Any = {"loguniform": np.geomspace, "uniform": np.linspace}.get(
                    kind, np.arange
                )
                options = (
                    fields.get("options")
                    or spread(low, high, fields.get("num", fields.get("step"))).tolist()
                )
                space[key] = {"type": "choice", "options": options}
                size *= len(options) if any(key.startswith(name) for name in grid) else 1
        found.left += [
            f"{name} {key}: {config.pop(key)}".strip() for key in list(config) if "+" in key
        ]
        # Each block's grid is multiplied with that of the top, which comes first.
        sizes.append(size * sizes[0] if sizes else size)
        if name:
            found.arms[name] = config, space
        else:
            found.config = config
            found.space = space
    found.searcher, found.trials = ("random", drawn * max(sizes)) if drawn else ("grid", max(sizes))


def _of_hydra(found: Found, file: Path, content: Config, sweeper: Config) -> None:
    """Read a configuration of Hydra with the Optuna sweeper into `found`; what has no counterpart is noted there.

    Args:
        found: Is filled.
        file: The file.
        content: All of it.
        sweeper: Its part `hydra.sweeper`.
    """
    direction = sweeper.get("direction", "minimize")
    if isinstance(direction, list):
        found.left.append(f"direction: {direction}")
        direction = direction[0]
    found.study |= {
        "name": _name(sweeper.get("study_name") or "") or found.study["name"],
        "metric": content.get("optimized_metric", "objective"),
        "mode": str(direction)[:3],
    }
    # A sampler may be chosen in the list of defaults, `- override hydra/sweeper/sampler: tpe`.
    defaults = [entry for entry in content.get("defaults", ()) if isinstance(entry, Mapping)]
    overrides = {
        key.rpartition("hydra/")[2]: value for entry in defaults for key, value in entry.items()
    }
    sampler = sweeper.get("sampler", {})
    kind = sampler.get("_target_") or overrides.get("sweeper/sampler", "tpe")
    found.search_by(kind, "sampler")
    unread = {key: content["hydra"].get(key) or overrides.get(key) for key in ("launcher", "sweep")}
    found.left += [f"hydra.{key}: {value}" for key, value in unread.items() if value]
    found.unread(sampler, "_target_", "hydra.sampler.")
    found.trials = sweeper.get("n_trials", found.trials)
    for name, text in (sweeper.get("params") or sweeper["search_space"]).items():
        try:
            found.space[name] = _of_override(ast.parse(str(text).strip(), mode="eval").body)
        except (SyntaxError, ValueError, TypeError, IndexError):
            found.left.append(f"{name}: {text}")
    read = "_target_ direction n_trials params sampler search_space study_name"
    found.unread({key: value for key, value in sweeper.items() if value}, read)
    found.left.append(
        "what the function returns: name in metrics where the script prints or writes it"
    )
    # The script is guessed: one that names this config, then one with `train` in its name, then the shortest path.
    files = [script for script in Path().rglob("*.py") if b"hydra.main(" in script.read_bytes()]
    files.sort(
        key=lambda script: (
            file.stem.encode() not in script.read_bytes(),
            "train" not in script.name,
            len(script.parts),
        )
    )
    found.arm = {"command": ["python", str(files[0]) if files else "main.py", "{args:hydra}"]}


def _of_override(node: ast.expr) -> MutableConfig:
    """Return the parameter of an override: `interval(0, 1)`, `range(1, 8, step=2)`, `int(tag(log, interval(1, 9)))`.

    A list `[a, b]`, `choice(a, b)` or a single value is a choice. `ValueError` for any other function.
    """
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    # These wrap another override, their last argument: they set its type, or with the tag `log` its scale.
    if isinstance(node, ast.Call) and name in ("float", "int", "tag"):
        fields = _of_override(node.args[-1])
        log = name == "tag" and "log" in map(ast.unparse, node.args[:-1])
        return fields | ({"log": True} if log else {} if name == "tag" else {"type": name})
    nodes = (
        [*node.args, *(word.value for word in node.keywords)] if isinstance(node, ast.Call) else []
    )
    values = [_plain(value) for value in nodes or getattr(node, "elts", [node])]
    if name in ("interval", "range"):
        return foreign.ranged(
            "int" if all(isinstance(value, int) for value in values) else "float", *values
        )
    if name not in ("", "choice"):
        raise ValueError(name)
    return {"type": "choice", "options": values}


def _plain(node: ast.expr) -> Any:
    """Return the value of a literal of Python, else of the text as YAML has it: `true` is True, `adam` a text."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return read_yaml(ast.unparse(node), "")


def _of_python(found: Found, file: Path, text: str) -> None:
    """Read the script `file`, with this `text`, that searches with Ray Tune or Optuna, or takes flags, into `found`.

    The script is parsed and never run. A search whose function is found becomes a `trainable`, any other script a
    command with its flags. `SyntaxError` where it is no Python.
    """
    tree = ast.parse(text, str(file))
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    # Of names that are assigned once, the value is known without running the script.
    often = Counter(ast.unparse(node.targets[0]) for node in assigned)
    named = {
        name: node.value for node in assigned if often[name := ast.unparse(node.targets[0])] == 1
    }
    # What is called below the top of the module would run as soon as the study imports it.
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for part in tree.body:
        runs = re.search(r"\.(fit|optimize|run)\(", ast.unparse(part))
        if runs and isinstance(part, ast.Assign | ast.Expr):
            line = f"line {part.lineno} runs as the module is imported"
            found.left.append(f'{line}; put it below `if __name__ == "__main__":`')

    def value(node: ast.expr) -> Any:
        """Return the value of a literal, or of a name that is assigned once; `ValueError` for any other expression."""
        node = named.get(ast.unparse(node), node)  # what was assigned to the name, if it is one
        # Of `a if smoke_test else b`, b is what the search runs.
        node = node.orelse if isinstance(node, ast.IfExp) else node
        if isinstance(node, ast.Dict):
            return {
                value(key): value(inner)
                for key, inner in zip(node.keys, node.values, strict=True)
                if key
            }
        return ast.literal_eval(node)

    def say(place: str, words: Mapping[str, ast.expr]) -> None:
        """Note arguments of a call, by name, that have no counterpart."""
        found.left.extend(f"{place}: {word}={ast.unparse(part)}" for word, part in words.items())

    def made(place: str, node: ast.expr) -> tuple[str, dict[str, ast.expr]]:
        """Return the class of an object and its arguments: by keyword, and `argument 1`, `argument 2`, ... by place.

        `node` is the call that makes it, or a name to which the call was assigned before. Where it only wraps another
        object (`WRAPPERS`), those of the inner one. `metric`, `mode` and `max_t` are taken out, as the search's own.
        """
        text = ast.unparse(node)
        before = [
            part.value
            for part in assigned
            if part.lineno < node.lineno and ast.unparse(part.targets[0]) == text
        ]
        call = [node, *before][-1]  # the last assignment counts
        words = {word.arg or "**": word.value for word in getattr(call, "keywords", ())}
        words |= {
            f"argument {number}": part for number, part in enumerate(getattr(call, "args", ()), 1)
        }
        kind = ast.unparse(call).partition("(")[0].rpartition(".")[2]
        for key in ("metric", "mode", "max_t"):
            if isinstance(words.get(key), ast.Constant | ast.Name):
                said.setdefault(key, value(words.pop(key)))
        for key in WRAPPERS.get(kind, ()):
            if inner := words.pop(key, None):
                say(f"{place}: {kind}", words)
                return made(place, inner)
        return kind, words

    def needs(node: ast.expr) -> None:
        """Take the cores and GPUs of a trial, `{"cpu": 2, "gpu": 1}`; note any other resource."""
        asked = value(node)
        said["resources"] = {f"{key}s": asked[key] for key in ("cpu", "gpu") if asked.get(key)}
        found.unread(asked, "cpu gpu", "resources: ")

    def read(name: str, key: str, inner: ast.expr) -> None:
        """Take the argument `key` with the value `inner` of the call `name` (of `CALLS`) that declares a search.

        `ValueError` where it has no counterpart.
        """
        if key in ("scheduler", "pruner", "sampler", "search_alg"):
            kind, words = made(key, inner)
            if key in ("sampler", "search_alg"):
                found.search_by(kind, key)
                said["searcher"] = kind
            elif kind not in EARLY_STOPPING:
                raise ValueError(kind)
            else:
                pruner, known = EARLY_STOPPING[kind]
                options = {
                    our: value(words.pop(their, ast.Constant(n)))
                    for their, (our, n) in known.items()
                }
                found.pruner = {"pruner": pruner, "pruner_options": options}
                if pruner == "asha" and key == "scheduler":  # where Ray Tune ends each trial
                    said.setdefault("max_t", 100)
            say(key, words)
        elif key == "resources_per_trial":
            needs(inner)
        elif key not in CALLS[name].split():
            raise ValueError(key)
        elif key not in WALKED.split():
            said[key.removeprefix("study_")] = value(inner)

    said: MutableConfig = {}  # of the search: metric, mode, number of trials, resources, ...
    trains = ""  # the function that the search calls
    seeded = []  # the words of the command that name the seed
    flags = MutableConfig()  # of argparse, with their defaults
    for node in ast.walk(tree):
        try:
            # The first mapping with calls of `tune` is the space; those within it are read with it.
            if isinstance(node, ast.Dict) and "tune." in ast.unparse(node) and not found.space:
                _of_tune(found, node, value)
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in CALLS and (name != "run" or ast.unparse(node.func) == "tune.run"):
                placed = zip(CALLS[name].split(), node.args, strict=False)
                for key, argument in [
                    *placed,
                    *((word.arg or "**", word.value) for word in node.keywords),
                ]:
                    try:
                        if ast.unparse(argument) != "None":
                            read(name, key, argument)
                    except (ValueError, TypeError):
                        found.left.append(
                            f"{key}: {ast.unparse(named.get(ast.unparse(argument), argument))}"
                        )
            # What else says something of the search: what its function needs, which one it is, a parameter, a flag.
            if name == "with_parameters":
                found.left.append(ast.unparse(node))
            elif name == "with_resources":
                needs([*node.args[1:], *(word.value for word in node.keywords)][0])
            elif name in ("Tuner", "optimize", "run"):
                # The function may stand in the call itself, or in what one of its names was assigned.
                names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
                nodes = [node, *(named[name] for name in names if name in named)]
                parts = [part for top in nodes for part in ast.walk(top)]
                inner = [
                    part.id for part in parts if isinstance(part, ast.Name) and part.id in functions
                ]
                trains = trains or (inner or [""])[0]
            elif name in foreign.OPTUNA:
                first, *rest = map(value, node.args)
                keywords = {word.arg: value(word.value) for word in node.keywords if word.arg}
                found.space[first] = foreign.suggested(name, rest, keywords)
            elif name == "add_argument":
                words = {word.arg: word.value for word in node.keywords}
                # Of `-l, --learning-rate` the long one.
                flag = max(map(value, node.args), key=len)
                # A flag with an action, such as store_true, is off where no default is named.
                default = (
                    value(words["default"])
                    if "default" in words
                    else False
                    if "action" in words
                    else None
                )
                if flag == "--seed":
                    seeded = [flag, "{seed}"]
                elif flag[0] != "-" or "required" in words:
                    found.left.append(
                        f"{flag}: the script needs it and has no default; add it to the command or to config"
                    )
                elif default is not None and flag[0] == "-":
                    flags[flag.lstrip("-")] = default
        except (ValueError, TypeError):
            found.left.append(f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)}")
    usual = "min" if "create_study" in text else "max"
    # Optuna minimises where nothing else is said, Ray Tune maximises.
    found.study["mode"] = str(said.get("direction", said.get("mode", usual)))[:3]
    found.study["name"] = _name(said.get("name", "")) or found.study["name"]
    if found.space and trains:
        kind, metric = (
            ("tune", said.get("metric", "accuracy")) if "tune." in text else ("optuna", "objective")
        )
        # A function to train with was found: it is called as it is, in place of a command.
        module = ".".join(Path(_from_here(file.resolve())).with_suffix("").parts)
        found.study["metric"] = metric
        found.searcher = found.searcher or ("random" if kind == "tune" else "tpe")
        if "tune.grid_search(" in text:
            found.searcher = "grid"
            if (times := said.get("num_samples", 1)) > 1:
                found.left.append(f"num_samples: {times}; `seeds` repeats each point of a grid")
        if (
            kind == "tune"
            and isinstance(stop := said.get("stop", {}), dict)
            and (stop or "max_t" in said)
        ):
            # `stop` of the search goes before the step at which the scheduler ends every trial.
            last = {"training_iteration": said["max_t"]} if "max_t" in said else {}
            found.config[UNTIL] = last | stop
        found.trials = int(said.get("n_trials") or said.get("num_samples") or found.trials)
        found.arm = {"trainable": f"{kind}:{module}:{trains}"}
        found.arm |= {"resources": said["resources"]} if said.get("resources") else {}
    else:
        if "metric" in said:
            found.study["metric"] = said["metric"]
        found.config = flags
        found.searcher = "random" if found.space else "grid"
        found.arm = {"command": ["python", _from_here(file.resolve()), *seeded, "{args}"]}
        if said:
            found.left.append(
                "trainable: no function at the top of this file is what Tuner, run or optimize calls"
            )
        found.left.append("axes: a setting of config and its values, such as {lr: [0.1, 0.01]}")


def _of_tune(found: Found, node: ast.Dict, value: Any, prefix: str = "") -> None:
    """Read a `param_space` of Ray Tune, the mapping `node`, into the space and the config of `found`.

    `value` gives the value of a literal or a known name, or raises `ValueError`; what has none is noted as left out.
    `prefix` is the dotted key of a nested mapping, with a dot behind it.
    """
    for key, inner in zip(node.keys, node.values, strict=True):
        if key is None:
            found.left.append(f"**{ast.unparse(inner)}")
            continue
        name = f"{prefix}{value(key)}"
        if isinstance(inner, ast.Dict):
            _of_tune(found, inner, value, f"{name}.")
            continue
        try:
            if isinstance(inner, ast.Call) and ast.unparse(inner.func).startswith("tune."):
                # The base of a logarithm changes nothing in what is drawn.
                words = [
                    *inner.args,
                    *(word.value for word in inner.keywords if word.arg != "base"),
                ]
                found.space[name] = foreign.tuned(ast.unparse(inner.func)[5:], [*map(value, words)])
            else:
                found.config[name] = value(inner)
        except (ValueError, TypeError):
            found.left.append(f"{name}: {ast.unparse(inner)}")


def _name(text: str) -> str:
    """Return `text` as a name of a study: each run of other signs is a dash; "" where nothing is left."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-._")


def _from_here(path: Path) -> str:
    """Return a path as text: relative to the current folder where it lies below that, else as it is."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
