"""How YAML that a user writes is read: study files and inventories."""

import re
from typing import Any

import yaml


class KeyTwiceError(yaml.YAMLError):
    """A mapping has a key twice, of which PyYAML would take the last; `where` says in which lines."""

    def __init__(self, key: str, where: str) -> None:
        super().__init__(f"a mapping has each key once, got {key!r}; {where}")
        self.key = key
        self.where = where


class Loader(yaml.SafeLoader):
    """Reads YAML 1.1 as PyYAML does, but as in YAML 1.2 `1e-4` is a number, `1:30` a text, and keys stand once."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Return the tag of a node: that of a text for `1:30`, which YAML 1.1 takes for the number 90."""
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_sexagesimal = (
            kind is yaml.ScalarNode and ":" in value and tag.endswith((":int", ":float"))
        )
        return self.DEFAULT_SCALAR_TAG if is_sexagesimal else tag

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Return the node of a mapping; `KeyTwiceError` where a key stands twice."""
        node = super().compose_mapping_node(anchor)  # type: ignore[no-untyped-call]
        lines: dict[str, int] = {}  # key -> its line
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                raise KeyTwiceError(
                    key.value, f"it stands in line {lines[key.value]} and in line {line}"
                )
            lines[key.value] = line
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Return the value of a node; a YAMLError with its line where there is none, as for 2026-13-01 or !!int ''."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as error:
            problem = f"a value cannot be read: {error}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
