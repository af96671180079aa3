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
