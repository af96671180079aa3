"""The study of a file of another program. Sweeps of W&B, SEML and Hydra are read here, Python scripts by `scripts`."""

import ast
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from contrasweep.cli.conversion.found import (
    GUESSED_METRIC,
    MOST_VALUES,
    ArmPart,
    Found,
    Space,
    from_here,
    study_name,
)
from contrasweep.cli.conversion.scripts import read_script
from contrasweep.config import Config, MutableConfig, lookup
from contrasweep.data.yaml_text import read_yaml
from contrasweep.errors import SpecError
from contrasweep.study import foreign
from contrasweep.study.file import as_study

WANDB_MACROS = {
    "${interpreter}": "python",
    "${args}": "{args:wandb}",
    "${args_no_boolean_flags}": "{args}",
    "${args_no_hyphens}": "{args:hydra}",
    "${args_json_file}": "{config}",
}
"""Word of a command of W&B's -> the word of ours that stands for the same."""


def converted(file: Path) -> tuple[MutableConfig, list[str]]:
    """Return the fields of a study from a file of another program, and lines on what in the file a study cannot have.

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
    """Return what a file of another program declares. The end of its name and its keys tell which program that is.

    `SpecError` for a program that is not known here; `ValueError`, `KeyError` and others where the file breaks a rule
    of its program.
    """
    found = Found({"name": study_name(file.stem) or "study", "data": "none"})
    text = file.read_text()
    if file.suffix == ".py":
        read_script(found, file, text)
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


def _nested(block: Config, inner: str = "", *, leaf: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each setting in the nested mapping `block`.

    Args:
        block: Nested settings.
        inner: A key, such as W&B's `parameters`, below which a mapping may have its settings; "": there is no such key.
        leaf: Keys, with spaces between them. A mapping with one of these keys, and without `inner`, is a value and not
            further settings. Empty mappings are values too.

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
    """Read a sweep of W&B (`content` is its file) into `found`; what a study cannot have is noted there.

    The program of the sweep becomes a command that runs W&B offline, so that the metrics are read from the files of its
    run.
    """
    metric = content.get("metric", {})
    found.study["metric"] = metric.get("name", "accuracy")
    if metric:
        # "minimize" and "maximize" begin with our words for `mode`. Without a goal W&B minimises.
        found.study["mode"] = str(metric.get("goal", "min"))[:3]
    else:
        found.left_out.append(GUESSED_METRIC)
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
    """Read one parameter of a sweep of W&B into `found`: one value is fixed, several or a distribution are searched.

    `fields` is what the sweep says of the parameter. A distribution that we do not have is noted as left out.
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
    """Read an experiment of SEML (`content` is its file) into `found`; what a study cannot have is noted there.

    The study has as many trials as SEML would run: the points of the largest grid, times the samples that are drawn.
    """
    about = content["seml"]
    script = (
        file.parent / about.get("project_root_dir", ".") / about.get("executable", "main.py")
    ).resolve()
    found.study |= {
        "name": study_name(about.get("name", "")) or found.study["name"],
        "metric": "result",
    }
    found.arm = {"command": ["python", from_here(script), "with", "{args:hydra}", "seed={seed}"]}
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


def _seml_block(found: Found, name: str, block: Config) -> tuple[ArmPart, int, int]:
    """Return what a block of SEML fixes and searches, the number of points of its grid, and the number of its samples.

    `name` is the name of the block; "" for the top of the file. What a study cannot have is noted in `found`.
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
    return ArmPart(config, space), points, samples


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
    # "minimize" and "maximize" begin with our words for `mode`.
    found.study |= {
        "name": study_name(sweeper.get("study_name") or "") or found.study["name"],
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
    """Return our parameter for an override of Hydra: `interval(0, 1)`, `range(1, 8, step=2)`, `int(interval(1, 9))`.

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
        # A word is no literal of Python, and neither are YAML's `true`, `false` and `null`.
        word = ast.get_source_segment(text, node) or ""
        return {"true": True, "false": False, "null": None}.get(word.lower(), word)
