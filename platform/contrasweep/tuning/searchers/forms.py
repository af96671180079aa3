"""Parameters as Optuna holds them."""

from typing import Any

from contrasweep import canonical
from contrasweep.study.space import Choice, Float, Int
from contrasweep.tuning.searchers.finite import levels


def distribution(parameter: Float | Int | Choice) -> Any:
    """Optuna's form: choices and steps as indices, which need not be plain values nor divide the range."""
    from optuna import distributions

    if isinstance(parameter, Choice):
        return distributions.CategoricalDistribution(list(range(len(parameter.options))))
    if parameter.step is not None:
        return distributions.IntDistribution(0, (levels(parameter) or 1) - 1)
    kind = distributions.IntDistribution if isinstance(parameter, Int) else distributions.FloatDistribution
    return kind(parameter.low, parameter.high, log=parameter.log)


def suggest(trial: Any, name: str, parameter: Float | Int | Choice) -> Any:
    """The value that an Optuna trial suggests, in our form."""
    form = distribution(parameter)
    if isinstance(parameter, Choice):
        return parameter.options[trial.suggest_categorical(name, form.choices)]
    whole = isinstance(parameter, Int) or parameter.step is not None
    value = (trial.suggest_int if whole else trial.suggest_float)(name, form.low, form.high, log=form.log)
    return parameter.low + parameter.step * value if parameter.step is not None else value


def coordinate(parameter: Float | Int | Choice, value: Any) -> Any:
    """The value in Optuna's form."""
    if isinstance(parameter, Choice):
        texts = [canonical.dumps(option) for option in parameter.options]
        return texts.index(canonical.dumps(value))
    if parameter.step is not None:
        return round((value - parameter.low) / parameter.step)
    return int(value) if isinstance(parameter, Int) else float(value)
