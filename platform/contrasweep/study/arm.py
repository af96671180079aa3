"""One method of a study: an arm."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import pydantic

from contrasweep import canonical
from contrasweep.cluster.packing import Footprint
from contrasweep.commands import COMMAND, COMMAND_PATH, OPTIONS
from contrasweep.commands.functions import ADAPTERS, FUNCTION_KEY
from contrasweep.commands.placeholders import Options
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError, check_known
from contrasweep.imports import import_path, installed, path_of
from contrasweep.schema import JsonSchema, checked
from contrasweep.study import dotted
from contrasweep.study import space as spaces
from contrasweep.study.space import Float, Parameter

LONGEST_NAME = 100
"""The most characters in the name of a study or an arm."""
Name = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME),
]
METHODS = "contrasweep.trainables:METHODS"
"""The dotted path of the shipped methods: short name -> dotted path."""


def methods() -> dict[str, str]:
    """Return the methods that an arm can name: short name -> dotted path, of this package and of installed ones.

    A shipped method takes precedence over one of another package with the same name. Raises `SpecError` where two
    packages have a method of the same name.
    """
    return {
        **{name: path_of("methods", name) for name in installed("methods")},
        **import_path(METHODS, also_allowed=dict),
    }


def _show_methods(schema: JsonSchema) -> None:
    """Put the methods of this installation into the JSON schema of `trainable`, for completion in editors."""
    schema["examples"] = [*methods(), "mypackage.method:train"]


@checked
class Start:
    """Trials of another study; the trials of an arm start from their checkpoints.

    They are trials on the same data and folds, or on other data. So no network has seen what its trial holds out.

    Args:
        study: The name of a study in the same storage.
        arm: Its arm.
        trial: `same`: the trial of the same seed and fold, and of the same values of axes that both studies have.
            `best`: of the trials of the same fold the one with the best value of that study's metric.

    Example:
        >>> import contrasweep as cs
        >>> cs.Arm("finetune", {"frozen": True}, start=cs.Start("pretrain", "ocl")).start.trial
        'same'
    """

    study: Name
    arm: Name
    trial: Literal["same", "best"] = "same"


@checked
class Arm:
    """One method of a study: a trainable, its settings, and what a trial of it needs.

    Args:
        trainable: The function that trains a trial; or its dotted path `package.module:function`; or the short name of
            a shipped method (`contrasweep list methods`); or `optuna:package.module:objective`,
            `tune:package.module:function`, for a function of Optuna's or Ray Tune's as it is.
        config: The fixed settings. Keys may be dotted: `optimizer.momentum` is the setting `momentum` in `optimizer`.
        space: What a `Sweep` searches: dotted setting -> `Float`, `Int` or `Choice`, or an object of Ray Tune's or
            Optuna's, such as `tune.loguniform(1e-4, 1e-1)`.
        start_points: Known good values of all searched settings, which the search of a `Sweep` tries first. They count
            in its budget.
        resources: What a trial needs of a host: `cpus`, `gpus` (a share or whole ones), `gpu_memory_gib`,
            `host_memory_gib`, `gpu_types`. Default: measured, else estimated from what the trainable says.
        start: The trials from whose checkpoints those of the arm start. Default: from new weights.
        command: In place of a trainable, the words of any program with `{placeholders}` for settings.
        metrics: Where the command leaves its metrics: patterns of its output, `"loss: {loss:f} acc: {accuracy:f}"`, and
            names of CSV, JSON, TensorBoard's or W&B's files in the trial's folder. Default: the lines that it appends
            to `CONTRASWEEP_METRICS`, else the files that it has left there, if they are of one kind.
        names: Setting -> the name that the command has for it, for `{args}`.
        code: Further files and folders of the project that the command reads: a change of them is noticed.

    Raises:
        SpecError: A trainable cannot be found, a setting is no plain value, or a setting is both fixed and searched.

    Example:
        >>> import contrasweep as cs
        >>> arm = cs.Arm("contrastive", {"loss": "supcon"}, {"loss.temperature": cs.Float(0.05, 0.5, log=True)})
        >>> arm.trainable
        'contrasweep.trainables.contrastive:train'
    """

    trainable: Annotated[
        str | Callable[..., Any], pydantic.Field(json_schema_extra=_show_methods)
    ] = ""
    config: MutableConfig = pydantic.Field(default_factory=dict)
    space: Mapping[str, Parameter] = pydantic.Field(default_factory=dict)
    start_points: list[MutableConfig] | None = None
    start: Start | None = None
    resources: Footprint | None = None
    command: list[str] | None = None
    metrics: str | list[str] | None = None
    names: Mapping[str, str] | None = None
    code: str | list[str] | None = None

    def __post_init__(self) -> None:
        # A checked class is frozen, so what is completed here is set by `object.__setattr__`.
        options = {
            name: getattr(self, name)
            for name in ("metrics", "names", "code")
            if getattr(self, name)
        }
        # A command becomes the trainable that runs commands; the fields of commands need one.
        if self.command is not None:
            self._run_command(self.command, options)
        elif options:
            raise SpecError(
                "only a command has this field",
                place=next(iter(options)),
                hint="an arm with `command`",
            )
        elif self.trainable == "":
            raise SpecError(
                "an arm has a trainable or a command",
                place="trainable",
                hint='for example trainable: "mypackage.method:train", or command: [python, train.py, --lr, "{lr}"]',
            )
        self._find_trainable()
        object.__setattr__(self, "config", dotted.expand(self.config, "config"))
        canonical.canonical(self.config, "config")  # raises where a value is no plain one
        spaces.check(self.space, self.config)
        self._check_fixed_or_searched()
        self._check_start_points()

    def _find_trainable(self) -> None:
        """Set `trainable` to a dotted path where it is a short name, or a path with an adapter before it.

        `contrastive` is a short name, and `optuna:package.module:f` has an adapter. A function stays as it is.
        """
        if not isinstance(self.trainable, str):
            # A trainable's name is part of its trials' identity.
            if not hasattr(self.trainable, "__qualname__"):
                rule = 'a partial, or an object that can be called, is given as its dotted path "module:name"'
                raise SpecError(rule, place="trainable", value=self.trainable)
            return
        # `optuna:package.module:function` is the adapter's trainable, with the function as a setting.
        prefix, _, called = self.trainable.partition(":")
        if prefix in ADAPTERS:
            object.__setattr__(self, "config", {FUNCTION_KEY: called, **self.config})
            object.__setattr__(self, "trainable", ADAPTERS[prefix])
        # Text without the colon of a dotted path is a short name.
        elif self.trainable.count(":") != 1:
            known_methods = methods()
            rule = "a trainable is a dotted path package.module:function, or the short name of a shipped method"
            check_known(self.trainable, "methods", known_methods, rule, place="trainable")
            object.__setattr__(self, "trainable", known_methods[self.trainable])

    def _check_fixed_or_searched(self) -> None:
        """Raise `SpecError` where the space searches a key that the config sets.

        Also where one of the two sets a plain value, and the other a key inside it.
        """
        fixed = dotted.leaves(self.config)
        for name, parameter in self.space.items():
            problem = dotted.clash(spaces.settings(name, parameter), fixed, name)
            if problem:
                # Where both set this very key, the rule says all.
                hint = "" if problem == dotted.SAME_KEY else f"the space and the config {problem}"
                raise SpecError(
                    "a key is either fixed or searched, not both",
                    place=f"space.{name}",
                    value=name,
                    hint=hint,
                )

    def _check_start_points(self) -> None:
        """Raise `SpecError` for a start point that does not lie in the space, or comes twice.

        Values of `Float` settings are kept as floats: 1 becomes 1.0.
        """
        points: list[MutableConfig] = []
        for i, declared in enumerate(self.start_points or []):
            # NumPy's numbers become Python's.
            point = canonical.Config(declared, f"start_points.{i}")
            whole_config = dotted.merge(self.config, dotted.expand(point, f"start_points.{i}"))
            if not spaces.fits(self.space, point, whole_config):
                searched = []
                for name, parameter in self.space.items():
                    if spaces.active(parameter.when, whole_config):
                        step = getattr(parameter, "step", None)
                        start = f" (from {parameter.value(0)} in steps of {step})" if step else ""
                        searched.append(name + start)
                raise SpecError(
                    "a start point has a value within its range for every searched setting, and nothing else",
                    place=f"start_points.{i}",
                    value=point,
                    hint=f"searched: {', '.join(searched)}",
                )
            if any(canonical.same(point, other) for other in points):
                raise SpecError(
                    "a start point is tried once", place=f"start_points.{i}", value=point
                )
            points.append(
                {
                    name: float(value) if isinstance(self.space[name], Float) else value
                    for name, value in point.items()
                }
            )
        if points:
            object.__setattr__(self, "start_points", points)

    def _run_command(self, words: list[str], options: MutableConfig) -> None:
        """Make this an arm that runs a command: set its trainable and its config.

        The config gets the `words` of the command and the `options`, which are the fields `metrics`, `names` and `code`
        that are set. The fields themselves become None. Raises `SpecError` where the arm has a trainable too, or an
        option is wrong.
        """
        if isinstance(self.config.get("resources"), Mapping):
            hint = "put `resources` beside `command`; in `config` they are settings of the command"
            raise SpecError(
                "a command's resources are a field of its arm", place="config.resources", hint=hint
            )
        for field, declared in (
            ("trainable", self.trainable),
            (f"config.{COMMAND}", self.config.get(COMMAND)),
        ):
            if declared:
                raise SpecError(
                    "an arm has a trainable or a command, not both", place=field, value=declared
                )
        object.__setattr__(self, "trainable", COMMAND_PATH)
        lists: MutableConfig = {
            name: [value] if isinstance(value, str) else value for name, value in options.items()
        }
        Options(**lists)  # raises where one of them is wrong
        config: MutableConfig = {COMMAND: words}
        if lists:
            config[OPTIONS] = lists
        object.__setattr__(self, "config", config | self.config)
        # The command and its options are settings now, so the fields are empty.
        for field in (COMMAND, *options):
            object.__setattr__(self, field, None)

    @property
    def path(self) -> str:
        """The dotted path `package.module:name` of the trainable, which is part of its trials' identity."""
        function = self.trainable
        if isinstance(function, str):
            return function
        return f"{function.__module__}:{function.__qualname__}"
