"""How other programs name a seed and declare searched parameters: Ray Tune's and Optuna's objects, and their calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError

SEED = "((global|manual|random|rng)[-_]?)?seed|seed_everything"
"""Usual names of the setting that is the seed of a run, a pattern; that of a part, as `data_seed`, is none of them."""
TUNE = {
    **dict.fromkeys(("uniform", "loguniform", "quniform"), "float"),
    **dict.fromkeys(("randint", "lograndint", "qrandint"), "int"),
}
"""Ray Tune's functions of a range -> the kind of parameter that each is."""
OPTUNA = {
    "suggest_float": ("float", "low", "high"),
    "suggest_uniform": ("float", "low", "high"),
    "suggest_loguniform": ("float", "low", "high"),
    "suggest_discrete_uniform": ("float", "low", "high", "q"),
    "suggest_int": ("int", "low", "high", "step"),
    "suggest_categorical": ("choice", "options"),
}
"""Optuna's method -> the kind of parameter, then the names of the method's arguments after the parameter's own name."""


def range_fields(
    kind: str, low: Any, high: Any, step: Any = None, log: Any = False
) -> MutableConfig:
    """Return the fields of a `Float` (`kind` is `float`) or `Int` (`int`), as the file of a study writes them.

    A step of None, a step of 1 of an `int`, and `log` that is false are left out, because they are the defaults.
    """
    # Optuna names a step of 1 for a logarithmic range too, which takes no step here.
    fields: MutableConfig = {"type": kind, "low": low, "high": high}
    if log:
        fields["log"] = True
    elif step and not (kind == "int" and step == 1):
        fields["step"] = step
    return fields


def tune_fields(name: str, values: Sequence[Any]) -> MutableConfig:
    """Return our parameter's fields, as the file of a study writes them, for a call `tune.name(*values)` of Ray Tune.

    `values` are low, high and perhaps a step; of `choice` and `grid_search` a list of options. Raises `ValueError`
    where the function has no counterpart here.
    """
    if name in ("choice", "grid_search"):
        return {"type": "choice", "options": list(values[0])}
    if name not in TUNE:
        raise ValueError(f"tune.{name} has no counterpart")
    low, high, *rest = values
    # These two functions never draw their upper end; an `Int` does.
    if name in ("randint", "lograndint"):
        high -= 1
    step = rest[0] if rest else None
    return range_fields(TUNE[name], low, high, step, "log" in name)


def optuna_fields(name: str, values: Sequence[Any], keywords: Config) -> MutableConfig:
    """Return our parameter's fields, as the file of a study writes them, for a call of a method of Optuna's trial.

    The call is `trial.name("...", *values, **keywords)`, where `name` is a key of `OPTUNA`. The attributes of an Optuna
    distribution have the names of these arguments, so they may be given as `keywords`.
    """
    kind, *names = OPTUNA[name]
    # A call may give fewer values than the method has arguments.
    fields: MutableConfig = {**dict(zip(names, values, strict=False)), **keywords}
    if kind == "choice":
        # A list by position is `options`; Optuna's name for it is `choices`.
        return {"type": kind, "options": list(fields.get("options") or fields["choices"])}
    # `suggest_loguniform` is logarithmic by its name; a step is called `q` by `suggest_discrete_uniform`.
    log = fields.get("log", "log" in name)
    return range_fields(
        kind, fields["low"], fields["high"], fields.get("step", fields.get("q")), log
    )


def parameter(value: Any) -> Any:
    """Return a parameter as the file of a study writes it, from an object of Ray Tune's or Optuna's.

    `tune.loguniform(1e-4, 1)` gives {"type": "float", "low": 1e-4, "high": 1, "log": True}. Any other value is returned
    as it is. Neither package is imported: an object is known by the names of its module and class.

    Raises:
        SpecError: The object is one of Tune's without a counterpart, such as a normal distribution.
    """
    module = type(value).__module__
    kind = type(value).__name__
    if isinstance(value, Mapping) and list(value) == ["grid_search"]:
        return tune_fields("grid_search", [value["grid_search"]])
    if module == "optuna.distributions":
        # Optuna's older classes, such as `LogUniformDistribution`, are subclasses of these.
        names = {"FloatDistribution": "suggest_float", "IntDistribution": "suggest_int"}
        bases = (base.__name__ for base in type(value).__mro__)
        name = next((names[base] for base in bases if base in names), "suggest_categorical")
        return optuna_fields(name, [], vars(value))
    if module != "ray.tune.search.sample":
        return value
    if kind == "Categorical":
        return tune_fields("choice", [value.categories])
    sampler = value.get_sampler()
    ends = [value.lower, value.upper]
    # A sampler of steps holds the sampler of values that it rounds to multiples of its `q`.
    prefix = ""
    if hasattr(sampler, "q"):
        prefix = "q"
        ends.append(sampler.q)
        sampler = sampler.sampler
    # The name of the function of `tune` that made the object: a Float with a log sampler is `loguniform`, with a step
    # `qloguniform`. Any other sampler has no such function: its class is named in the error.
    scale = {"_Uniform": "", "_LogUniform": "log"}.get(type(sampler).__name__)
    range_name = {"Float": "uniform", "Integer": "randint"}.get(kind, kind)
    name = type(sampler).__name__
    if scale is not None:
        name = f"{prefix}{scale}{range_name}"
    try:
        return tune_fields(name, ends)
    except ValueError as error:
        raise SpecError(
            "this parameter of Ray Tune cannot be searched", value=value, hint=str(error)
        ) from None
