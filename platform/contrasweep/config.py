"""Settings by name, as a user gives them: what every module means by a config.

Their names and values are the user's (a trial's settings, the options of a component, the values of a table's axes, a
study file as read), so no type of ours can list them; whoever builds a component checks them against its fields.
What we define ourselves has a type of its own instead.
"""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
"""Settings that are read: setting -> plain value, nested where a component has settings of its own."""

MutableConfig = dict[str, Any]
"""The same while its owner fills or merges it."""

NAME = "name"
"""The field that a component's name fills."""


def lookup(config: Config, key: str, default: Any = None) -> Any:
    """Return the setting at a dotted key of a nested config; `default` where the config does not have it."""
    value: Any = config
    for name in key.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        # A component without parameters, such as "sgd", has the setting `name`, which is "sgd" itself.
        elif not (isinstance(value, str) and name == NAME):
            return default
    return value


def name_of(value: Any) -> Any:
    """Return the name of a component that is written as a mapping: "sgd" for `{"name": "sgd", "lr": 1}`.

    A mapping without a name is returned unchanged, as is any other value.
    """
    return value.get(NAME, value) if isinstance(value, Mapping) else value


def flatten(config: Config) -> MutableConfig:
    """Return every setting of a nested config by its dotted key; an empty mapping is a setting too."""
    flat: MutableConfig = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= {f"{key}.{inner}": setting for inner, setting in flatten(value).items()}
        else:
            flat[key] = value
    return flat
