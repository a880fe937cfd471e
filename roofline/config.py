"""Reading a model's configuration: keys that go by several names, with errors that name them.

Pure. Lists count by how often each value occurs, for that is how a running engine tells them.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from roofline.errors import UnknownShapeError

_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models of several media keep the part that makes tokens."""


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What describes the decoder of tokens, with what the whole says and the part does not."""
    for key in _NESTED:
        nested = config.get(key)
        if isinstance(nested, Mapping):
            around = {name: value for name, value in config.items() if name not in _NESTED}
            return {**around, **text_part(nested), **_of_the_engine(around)}
    return config


def _of_the_engine(config: Mapping[str, Any]) -> dict[str, Any]:
    """How it is run: said of the whole."""
    ours = ("quantization", "cache_dtype", "dtype", "architectures", "quantization_config")
    return {key: config[key] for key in ours if config.get(key) is not None}


class Config:
    """A configuration by key; null is as good as absent."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def get(self, *keys: str) -> Any:
        """The first of several names that is told; None where none is."""
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                return value
        return None

    def text(self, *keys: str) -> str:
        """A name; "" where it is not told."""
        value = self.get(*keys)
        return value if isinstance(value, str) else ""

    def flag(self, key: str, default: bool) -> bool:
        """A switch."""
        value = self.get(key)
        return default if value is None else bool(value)

    def nested(self, key: str) -> "Config":
        """A part; an empty one where it is not told."""
        value = self.get(key)
        return Config(value if isinstance(value, Mapping) else {})

    def parts(self) -> list["Config"]:
        """All parts, by whatever name."""
        return [Config(value) for value in self._values.values() if isinstance(value, Mapping)]

    def whole(self, *keys: str) -> int:
        """A count above 0.

        Raises:
            UnknownShapeError: none of the keys is told, or no whole number.
        """
        found = self.whole_or_none(*keys)
        if found is None:
            others = f" (nor {', '.join(keys[1:])})" if keys[1:] else ""
            raise UnknownShapeError(keys[0], f"not told{others}; it is needed")
        return found

    def whole_or_none(self, *keys: str) -> int | None:
        """A count above 0; None where it is not told, or 0.

        Raises:
            UnknownShapeError: it is no whole number, such as a list with one for each layer.
        """
        for key in keys:
            value = self._values.get(key)
            if value is None or value is False or value == 0:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
                raise UnknownShapeError(key, f"{value!r}; allowed: a whole number")
            if value < 0:
                raise UnknownShapeError(key, f"{value!r}; allowed: 0 or more")
            return int(value)
        return None

    def tally(self, key: str) -> dict[str, int]:
        """How often each value of a list occurs; empty where it is not told.

        Raises:
            UnknownShapeError: told as counts, and one is none.
        """
        value = self.get(key)
        if isinstance(value, Mapping):
            counts = Config(value)
            return {str(name): counts.whole_or_none(name) or 0 for name in value}
        if isinstance(value, list | tuple):
            return dict(Counter(str(each) for each in value))
        return {}
