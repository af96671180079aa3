"""A config that notes which of its settings are read.

A trainable may not declare its settings. A setting that it never reads is then probably misspelt.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig


class RecordedConfig(canonical.Config):
    """A trial's config, with its nested mappings, that notes each setting that is read.

    To iterate over the keys reads no setting. To copy, merge or pickle the config reads all settings.
    """

    def __init__(self, config: Config, place: str = "", read: set[str] | None = None) -> None:
        """Wrap a config. `place` is the dotted key of a nested mapping; "" is the whole config.

        `read` collects the dotted keys that are read, those of nested mappings too; None: a new set.
        """
        super().__init__({})
        self.place = place
        self.read = set[str]() if read is None else read
        # The canonical text is made now, from the plain config, so that a later use of it reads no setting.
        self.text = canonical.dumps(config)
        for key, value in config.items():
            dict.__setitem__(
                self,
                key,
                RecordedConfig(value, self._at(key), self.read)
                if isinstance(value, Mapping)
                else value,
            )

    def unused_settings(self) -> tuple[str, ...]:
        """Return the dotted keys of settings that the trainable never read, in the order of the config."""
        unused: list[str] = []
        for key, value in dict.items(self):
            # Of a nested mapping they are those within it, unless it is empty.
            if isinstance(value, RecordedConfig) and len(value):
                unused += value.unused_settings()
            elif self._at(key) not in self.read:
                unused.append(self._at(key))
        return tuple(unused)

    def _at(self, key: str) -> str:
        """Return the dotted key of `key` within the whole config."""
        return f"{self.place}.{key}".lstrip(".")

    def _note(self, *keys: object) -> None:
        self.read.update(self._at(key) for key in keys if isinstance(key, str))

    def _all(self) -> MutableConfig:
        """Return the whole config as plain mappings, and count all of it as read."""
        return {
            key: value._all() if isinstance(value, RecordedConfig) else value
            for key, value in self.items()
        }

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._note(key)  # what the trainable adds is no setting that it passes over
        super().__setitem__(key, value)

    # Without this method, `**config` and dict(config) would not call __getitem__.
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    # These read and set by the methods above; those of `dict` would not.
    __contains__ = MutableMapping.__contains__
    get = MutableMapping.get  # type: ignore[assignment]
    pop = MutableMapping.pop  # type: ignore[assignment]
    setdefault = MutableMapping.setdefault  # type: ignore[assignment]
    values = MutableMapping.values  # type: ignore[assignment]

    def items(self) -> Any:
        """Return all keys with their values, which count as read."""
        self._note(*dict.keys(self))
        return super().items()

    def copy(self) -> MutableConfig:
        """Return a plain copy; all settings count as read."""
        return self._all()

    def __or__(self, other: Any) -> Any:
        return self._all() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._all()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._all(),)
