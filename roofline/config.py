"""Read the values of a model's configuration.

A value can have different keys in different models. Pure.

Errors contain the key. An engine's report contains a list as a mapping from each element to its
number of occurrences.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from roofline.errors import UnknownShapeError

_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which multimodal models store the language model's configuration."""
MAX_COUNT: Final = 2**31 - 1
"""Maximum value of a count, as in `collector.normalise.values`. Products of counts then fit in a
float."""


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's configuration. If it lacks a value, the value comes from the whole
    configuration."""
    for key in _NESTED:
        nested = config.get(key)
        if isinstance(nested, Mapping):
            around = {name: value for name, value in config.items() if name not in _NESTED}
            return {**around, **text_part(nested), **_of_the_engine(around)}
    return config


def _of_the_engine(config: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's arguments. They are outside the language model's part of a configuration."""
    ours = ("quantization", "cache_dtype", "dtype", "architectures", "quantization_config")
    return {key: config[key] for key in ours if config.get(key) is not None}


class Config:
    """A model's configuration. A null value counts as absent."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def get(self, *keys: str) -> Any:
        """The value of the first key that is present, or None."""
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                return value
        return None

    def text(self, *keys: str) -> str:
        """A string, or "" if the key is absent."""
        value = self.get(*keys)
        return value if isinstance(value, str) else ""

    def flag(self, key: str, default: bool) -> bool:
        """A boolean, or the default if the key is absent."""
        value = self.get(key)
        return default if value is None else bool(value)

    def nested(self, key: str) -> "Config":
        """A nested configuration. It is empty if the key is absent."""
        value = self.get(key)
        return Config(value if isinstance(value, Mapping) else {})

    def parts(self) -> list["Config"]:
        """All nested configurations."""
        return [Config(value) for value in self._values.values() if isinstance(value, Mapping)]

    def whole(self, *keys: str) -> int:
        """A count above 0.

        Raises:
            UnknownShapeError: no key is present, or the value is not a whole number up to
                `MAX_COUNT`.
        """
        found = self.whole_or_none(*keys)
        if found is None:
            others = f" (nor {', '.join(keys[1:])})" if keys[1:] else ""
            raise UnknownShapeError(keys[0], f"missing{others}; required")
        return found

    def whole_or_none(self, *keys: str) -> int | None:
        """A count above 0, or None if the value is absent or 0.

        Raises:
            UnknownShapeError: the value is not a whole number up to `MAX_COUNT`.
        """
        for key in keys:
            value = self._values.get(key)
            if value is None or value is False or value == 0:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
                raise UnknownShapeError(key, f"{value!r}; allowed: a whole number")
            if not 0 <= value <= MAX_COUNT:
                raise UnknownShapeError(key, f"{value!r}; allowed: 0 to {MAX_COUNT}")
            return int(value)
        return None

    def tally(self, key: str) -> dict[str, int]:
        """Return how often each element of a list occurs.

        The result is empty if the list is absent.

        Raises:
            UnknownShapeError: a count is not a whole number.
        """
        value = self.get(key)
        if isinstance(value, Mapping):
            counts = Config(value)
            return {str(name): counts.whole_or_none(name) or 0 for name in value}
        if isinstance(value, list | tuple):
            return dict(Counter(str(each) for each in value))
        return {}
