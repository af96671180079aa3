"""Searched parameters as Ray Tune and Optuna declare them: their objects, and the same calls read from source."""

from collections.abc import Mapping, Sequence
from typing import Any

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError

TUNE = {
    **dict.fromkeys(("uniform", "loguniform", "quniform"), "float"),
    **dict.fromkeys(("randint", "lograndint", "qrandint"), "int"),
}
"""Ray Tune's functions of a range, and the kind of parameter that each is."""
OPTUNA = {
    "suggest_float": ("float", "low", "high"),
    "suggest_uniform": ("float", "low", "high"),
    "suggest_loguniform": ("float", "low", "high"),
    "suggest_discrete_uniform": ("float", "low", "high", "q"),
    "suggest_int": ("int", "low", "high", "step"),
    "suggest_categorical": ("choice", "options"),
}
"""Optuna's methods: the kind of parameter, and what stands after its name."""


def ranged(kind: str, low: Any, high: Any, step: Any = None, log: Any = False) -> MutableConfig:
    """Return the fields of a `Float` or `Int`."""
    step = None if log or (kind == "int" and step == 1) else step
    return {
        "type": kind,
        "low": low,
        "high": high,
        **({"step": step} if step else {}),
        **({"log": True} if log else {}),
    }


def tuned(name: str, values: Sequence[Any]) -> MutableConfig:
    """Return the fields of our parameter for a call of Ray Tune's function `name`; `ValueError` for an unknown one."""
    if name in ("choice", "grid_search"):
        return {"type": "choice", "options": list(values[0])}
    if name not in TUNE:
        raise ValueError(f"tune.{name} has no counterpart")
    low, high, *step = values
    high -= int(name in ("randint", "lograndint"))  # without its end
    return ranged(TUNE[name], low, high, step[0] if step else None, "log" in name)


def suggested(name: str, values: Sequence[Any], keywords: Config) -> MutableConfig:
    """Return the fields of our parameter for a call of Optuna's `trial.suggest_...`, whose name is `name`."""
    kind, *names = OPTUNA[name]
    fields: MutableConfig = {**dict(zip(names, values, strict=False)), **keywords}
    if kind == "choice":
        return {"type": kind, "options": list(fields.get("options") or fields["choices"])}
    log = fields.get("log", "log" in name)
    return ranged(kind, fields["low"], fields["high"], fields.get("step", fields.get("q")), log)


def parameter(value: Any) -> Any:
    """Return the fields of an object of Ray Tune's or Optuna's that declares a parameter; any other as it is."""
    module = type(value).__module__
    kind = type(value).__name__
    if isinstance(value, Mapping) and list(value) == ["grid_search"]:
        return tuned("grid_search", [value["grid_search"]])
    if module == "optuna.distributions":
        names = {"FloatDistribution": "suggest_float", "IntDistribution": "suggest_int"}
        return suggested(names.get(kind, "suggest_categorical"), [], vars(value))
    if module != "ray.tune.search.sample":
        return value
    if kind == "Categorical":
        return tuned("choice", [value.categories])
    sampler = value.get_sampler()
    step = []
    if hasattr(sampler, "q"):
        sampler, step = sampler.sampler, [sampler.q]
    scale = {"_Uniform": "", "_LogUniform": "log"}.get(type(sampler).__name__)
    name = {"Float": "uniform", "Integer": "randint"}.get(kind, kind)
    try:
        name = f"{'q' * len(step)}{scale}{name}" if scale is not None else type(sampler).__name__
        return tuned(name, [value.lower, value.upper, *step])
    except ValueError as error:
        raise SpecError(
            "this parameter of Ray Tune cannot be searched", value=value, hint=str(error)
        ) from None
