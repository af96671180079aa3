"""Python scripts as studies: searches of Optuna or Ray Tune, and flags of argparse.

A script is parsed and never run. Literals are read, and names that are assigned once; all else is listed as without a
counterpart.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasweep.cli.conversion.found import (
    FOLD_NAME,
    GUESSED_METRIC,
    SEED_NAME,
    Found,
    all_values,
    from_here,
    study_name,
)
from contrasweep.commands.functions import OBJECTIVE, STOP_KEY
from contrasweep.commands.placeholders import TRIAL_NAMES
from contrasweep.config import MutableConfig
from contrasweep.data.yaml_text import read_yaml
from contrasweep.errors import SpecError
from contrasweep.study import foreign

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
ACTIONS_WITHOUT_VALUE = {"store_true": True, "store_false": False}
KNOWN_ACTIONS = (*ACTIONS_WITHOUT_VALUE, "store", "append", "extend")
"""Actions of argparse whose flags take no value -> what the flag gives; all actions whose flags `{args}` can pass."""


class _Script:
    """A Python script that searches with Ray Tune or Optuna, or takes flags of argparse; parsed and never run.

    `read` is called with each call in `tree`, and adds what that call says.

    Attributes:
        tree: The parsed module.
        calls: All calls in it.
        folder: The folder of its file.
        found: The space and the searcher that were read, and what has no counterpart.
        search: Argument -> value, for each of `READ_ARGS` that a call which declares the search has; `study_name` is
            called `name`.
        functions: Name -> function, of those at the top of the script.
        function: The name of the function that the search calls to train; "" where none was found.
        flags: Name of a flag, without its dashes -> its default.
        unset: The flags that have no default.
        names: Name of a flag -> the flag as it is written, for flags with one dash: `lr` -> `-lr`.
        is_tune: Whether the script calls Ray Tune.
        hydra: What messages call the configuration of a script that uses Hydra: its file, or `its configuration`; ""
            for a script without Hydra.
        placed_words: The words of the command that pass the seed, where a flag or a setting of Hydra has a `SEED_NAME`,
            and the flags of argparse's `BooleanOptionalAction`: `{args}` passes neither.
        spaces: The mappings that were read as a space of Ray Tune, with all nodes in them.
        suggested: Parameter of Optuna -> the first call that suggests it.
        doubtful: Nodes of the script that may not be run: below an `if`, or behind a first `return` or `raise`.
        tune_names: The names that the script has imported from `ray.tune`, such as `choice`.
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
        self.unset: list[str] = []
        self.names: dict[str, str] = {}
        self.is_tune = False
        self.hydra = ""
        self.placed_words: list[str] = []
        self.spaces: set[ast.AST] = set()
        self.suggested: dict[str, ast.Call] = {}
        self.doubtful: set[ast.AST] = set()
        self.tune_names: set[str] = set()
        self.imports_search = False
        self.functions = {
            node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)
        }
        self._assigned: dict[str, ast.expr] = {}  # name -> what is assigned to it
        self._defaults: MutableConfig = {}  # destination of a flag -> the default that `set_defaults` gives it
        nodes = list(ast.walk(self.tree))
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        # What `set_defaults` says counts for the flags before it too.
        self.calls.sort(key=lambda call: _method(call) != "set_defaults")
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

    def read_calls(self, read: Callable[[ast.Call], None]) -> None:
        """Read each of `calls`; one that `read` cannot read goes to `left_out`."""
        for call in self.calls:
            try:
                read(call)
            except (ValueError, TypeError):
                self.found.left_out.append(f"line {call.lineno}: {ast.unparse(call)}")

    def read_flag(self, call: ast.Call) -> None:
        """Read a call of argparse if it declares a flag or sets defaults of flags, as `read` does."""
        name = _method(call)
        if name == "add_argument":
            self._take_flag(call)
        elif name == "set_defaults":
            for word in call.keywords:
                value = self.value(word.value)
                self._defaults |= {word.arg: value} if word.arg else value
        # It has flags behind a word of the command.
        elif name == "add_parser":
            raise ValueError(name)

    def read(self, call: ast.Call) -> None:
        """Read one call of the script: it may declare a search, a parameter or a flag. Any other call is passed over.

        `ValueError` or `TypeError` where the values in the call are not known without running the script.
        """
        function = ast.unparse(call.func)
        name = _method(call)
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
        elif function == "hydra.main":
            self._take_configuration(call)
        else:
            self.read_flag(call)

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
        """Return what is assigned to the name `node`, if it is set once; any other expression is returned itself."""
        return self._assigned.get(ast.unparse(node), node)

    def tune_function(self, call: ast.Call) -> str:
        """Return the name of the function of Ray Tune that a call calls; "" where it calls another function.

        It is `choice` for a call of `tune.choice`, and of `choice` where the script imports that from `ray.tune`.
        """
        function = ast.unparse(call.func)
        is_of_tune = function.startswith("tune.") or function in self.tune_names
        return function.removeprefix("tune.") if is_of_tune else ""

    def _declare(self, call: ast.Call, places: Sequence[str]) -> None:
        """Read the arguments of a call that declares a search, such as `tune.run`; those that are None are passed over.

        `places` are the names of its arguments without a name, in order. Those that a study cannot have go to
        `left_out`.
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
                    # `study_name` and `name` mean the same.
                    self.search[key.removeprefix("study_")] = self.value(argument)
                except (ValueError, TypeError):
                    self.found.left_out.append(f"{key}: {text}")

    def _take_function(self, node: ast.expr) -> None:
        """Set `function` to the function of the script that the expression `node` names, unless it was set before.

        The expression may be more than a name, such as `partial(train, lr=1)`. What else it says goes to `left_out`.
        """
        names = _names_in(node)
        for name in list(names):
            if name in self._assigned:
                names += _names_in(self._assigned[name])
        function = next((name for name in names if name in self.functions), "")
        self.function = self.function or function
        if function and not isinstance(node, ast.Name):
            self.found.left_out.append(f"{ast.unparse(node)}: {function} alone is called")

    def _read_tune_space(self, node: ast.Dict, prefix: str = "") -> None:
        """Read a mapping of Ray Tune, the `param_space`: what is drawn goes to the space, a fixed value to the config.

        What a study cannot have goes to `left_out`. `node` is the mapping; `prefix` is the dotted key of a nested one,
        with a dot at its end.
        """
        for key, inner in zip(node.keys, node.values, strict=True):
            # `**other` in a mapping is an entry without a key.
            name = "**" if key is None else f"{prefix}{self.value(key)}"
            if isinstance(inner, ast.Dict):
                self._read_tune_space(inner, f"{name}.")
                continue
            function = self.tune_function(inner) if isinstance(inner, ast.Call) else ""
            try:
                if isinstance(inner, ast.Call) and function:
                    # The base of a logarithm changes nothing in what is drawn.
                    named = [word.value for word in inner.keywords if word.arg != "base"]
                    values = [self.value(argument) for argument in inner.args + named]
                    self.found.space[name] = foreign.tune_fields(function, values)
                else:
                    self.found.config[name] = self.value(inner)
            except (ValueError, TypeError):
                self.found.left_out.append(f"{name}: {ast.unparse(inner)}")

    def _take_configuration(self, call: ast.Call) -> None:
        """Read a call of `hydra.main`: the name of the configuration, and the seed in it, which becomes the trial's."""
        self.hydra = "its configuration"
        words = dict(zip(("config_path", "config_name"), call.args, strict=False))
        words |= {word.arg: word.value for word in call.keywords if word.arg}
        folder, name = (
            self.value(words[key]) if key in words else None
            for key in ("config_path", "config_name")
        )
        if name:
            file = Path(folder or "", f"{str(name).removesuffix('.yaml')}.yaml")
            self.hydra = str(file)
            place = self.folder / file
            settings: Any = None
            if place.is_file():
                settings = read_yaml(place.read_text(), str(place))
            self.placed_words = [
                f"{key}={{seed}}" for key in settings or () if SEED_NAME.fullmatch(str(key))
            ]

    def _take_flag(self, call: ast.Call) -> None:
        """Read a call of argparse's `add_argument`: a flag with a default becomes a setting.

        A flag for the seed gets the trial's seed. A flag that the study cannot pass by itself, such as one that is
        required, goes to `left_out`, and so does one that changes nothing.
        """
        words = {word.arg: word.value for word in call.keywords}
        # The long one of `-l, --learning-rate`: its name is that of the setting.
        flag = max(map(self.value, call.args), key=len)
        name = flag.lstrip("-")
        action = ast.unparse(words.get("action", ast.Constant("store"))).strip("'")
        default = self.value(words["default"]) if "default" in words else None
        dest = self.value(words["dest"]) if "dest" in words else name.replace("-", "_")
        default = self._defaults.get(dest, default)
        # A setting that changes nothing would be recorded, and compared, as if it did.
        if ACTIONS_WITHOUT_VALUE.get(action) is default is not None:
            self.found.left_out.append(f"{flag}: {default} with this flag and without it")
            return
        if ast.unparse(words.get("type", ast.Constant(""))) == "bool":
            self.found.left_out.append(f"{flag}: type=bool takes each text as true, False too")
            return
        # `{args}` passes a setting that is true as the flag alone, and one that is false not at all.
        if action in ACTIONS_WITHOUT_VALUE:
            default = False
        is_required = "required" in words and self.value(words["required"])
        if SEED_NAME.fullmatch(name):
            self.placed_words += [flag, "{seed}"]
        elif FOLD_NAME.fullmatch(name):
            self.found.left_out.append(f"{flag}: add {flag} {{fold}} to the command, and folds: 5")
        elif (
            action.endswith("BooleanOptionalAction")
            and default is not None
            and name not in TRIAL_NAMES
        ):
            # `{args}` has no way to say the second of `--amp` and `--no-amp`, so that the setting is the whole flag.
            self.flags[name] = flag if default else f"--no-{name}"
            self.placed_words.append(f"{{{name}}}")
        elif flag[0] != "-" or is_required or action not in KNOWN_ACTIONS or flag == "--args":
            self.found.left_out.append(
                f"{flag}: add it to the command, or to config with a value of its own"
            )
        elif default is None:
            self.unset.append(flag)
        else:
            # A flag with a value needs a text: true would be the flag alone.
            self.flags[name] = "True" if default is True else default
            if not flag.startswith("--"):
                self.names[name] = flag


def _method(call: ast.Call) -> str:
    """Return the last part of what a call calls: `add_argument` for `parser.add_argument(...)`."""
    return ast.unparse(call.func).rpartition(".")[2]


def _names_in(node: ast.expr) -> list[str]:
    """Return the names in an expression, in the order of `ast.walk`: `partial` and `train` of `partial(train)`."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def read_script(found: Found, file: Path, text: str) -> None:
    """Read a script that searches with Ray Tune or Optuna, or takes flags of argparse, and add to `found` what it says.

    `text` is the content of `file`. The script is parsed and never run. A search whose function is found becomes a
    `trainable`, any other script a command with its flags. `SyntaxError` where the text is no Python.
    """
    script = _Script(found, text, file)
    found.left_out += _run_by_import(script.tree)
    script.read_calls(script.read)
    # Many projects declare the flags in a module beside the script.
    if not (script.search or script.flags or script.unset or script.hydra or found.space):
        _take_flags_of_modules(script)
    for call in script.calls:
        # A parameter that stands elsewhere, as in `space["y"] = tune.choice([2])`.
        if script.tune_function(call) in TUNE_PARAMETERS and call not in script.spaces:
            found.left_out.append(f"line {call.lineno}: {ast.unparse(call)}")
    # Only the function that the search calls surely runs: what is suggested elsewhere may not be.
    always = set(ast.walk(script.functions[script.function])) if script.function else ()
    for name, call in script.suggested.items():
        if call not in always or call in script.doubtful:
            found.left_out.append(
                f"{name}: line {call.lineno} may suggest it under a condition; write `when` if so"
            )
    search = script.search
    # Without a direction Optuna minimises.
    is_optuna = "optuna" in text and not script.is_tune and bool(search or found.space)
    mode = search.get("direction", search.get("mode", "min" if is_optuna else ""))
    if mode:
        # The first three letters of Optuna's "minimize" are our word.
        found.study["mode"] = str(mode)[:3]
    found.study["name"] = study_name(search.get("name", "")) or found.study["name"]
    path = from_here(file.resolve())
    if found.space and script.function:
        _as_trainable(script, path, text)
    else:
        _as_command(script, path)
    if not search.get("metric") and found.study["metric"] != OBJECTIVE:
        found.left_out.append(GUESSED_METRIC)


def _take_flags_of_modules(script: _Script) -> None:
    """Give a script without flags those that a module declares which it imports from its folder: `from opts import p`.

    It is the first module with flags; a line in `left_out` names its file.
    """
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        # `from training import params` may import a module or a package, `training.params` or `training`.
        package = getattr(node, "module", None)
        names = [f"{package}.{alias.name}" if package else alias.name for alias in node.names]
        for name in filter(None, (*names, package)):
            file = script.folder / f"{name.replace('.', '/')}.py"
            try:
                module = _Script(script.found, file.read_text(), file)
            except (OSError, ValueError, SyntaxError):  # no file of the project, or none of Python
                continue
            module.read_calls(module.read_flag)
            if module.flags or module.unset or module.placed_words:
                script.flags, script.unset, script.names = module.flags, module.unset, module.names
                script.placed_words = module.placed_words
                script.found.left_out.append(f"config: its flags are those of {from_here(file)}")
                return


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
    """Set the arm of the study to the function that the script's search calls, with the settings of the search.

    `path` and `text` are those of the script. `SpecError` where it does not lie below the current folder, as a study
    imports it from there.
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
    if not all(map(all_values, found.space.values())):
        found.left_out.append("tune.grid_search: its values are drawn at random, as ranges are")
    else:
        found.searcher = "grid"
        samples = search.get("num_samples", 1)
        if samples > 1:
            found.left_out.append(f"num_samples: {samples}; `seeds` repeats each point of a grid")


def _as_command(script: _Script, path: str) -> None:
    """Set the arm of the study to a command that runs the script with its flags; note what the user has to add."""
    found = script.found
    found.study["metric"] = script.search.get("metric") or "accuracy"
    found.config |= script.flags
    found.searcher = "random" if found.space else "grid"
    settings = "{args:hydra}" if script.hydra else "{args}"
    found.arm = {"command": ["python", path, *script.placed_words, settings]}
    if script.names:
        found.arm["names"] = script.names
    # The script does search, but a study can only import a function at the top of the file.
    if script.search or found.space or script.imports_search:
        found.left_out.append(
            "trainable: no function at the top of this file is what Tuner, run or optimize calls"
        )
    if script.unset:
        flags = ", ".join(script.unset)
        found.left_out.append(f"{flags}: no default; write what the script needs into config")
    # Flags have defaults, and no values to search.
    if not found.space:
        if script.hydra:
            found.left_out.append(f"config: what trials set in {script.hydra}, by dotted names")
        elif not script.flags:
            found.left_out.append(
                "config: no flag of argparse is declared here; write the script's"
            )
        found.left_out.append("axes: a setting of config and its values, such as {lr: [0.1, 0.01]}")
