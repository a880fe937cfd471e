"""Read OTLP attributes by type, and check their values.

An invalid value raises `RefusalError`, and the caller counts the item.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from collector.drop_reasons import DroppedValue, Refusal
from collector.normalise.otlp_envelope import few_enough

MAX_TEXT_CHARS: Final = 256
"""Maximum length of a text. Longer texts are truncated, because they are a mistake or an attack."""
MAX_DURATION_S: Final = 7 * 86_400.0
MAX_COUNT: Final = 2**31 - 1
"""Maximum of a number of tokens or requests, such as the length of a context or of a queue."""
MAX_TOTAL: Final = 2**63 - 1
"""Maximum value of a counter. It is the largest integer that a database can store."""
MAX_TOTAL_S: Final = 100 * 365 * 86_400.0
"""Maximum value of a counter of seconds: a century."""
MAX_NUMBER: Final = 1e30
"""The largest value that any other number may have. It prevents infinite sums. A century at 10¹⁸
FLOP/s has 3e27 FLOP."""
HTTP_STATUSES: Final = range(100, 600)
"""Source: RFC 9110, section 15."""
EARLIEST_UNIX_NS: Final = 1_577_836_800 * 10**9
"""2020-01-01, before vLLM existed. Earlier timestamps are from a clock that was not set."""
MAX_AHEAD_NS: Final = 86_400 * 10**9


class RefusalError(Exception):
    """An item is for Tailspan, but invalid."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


def attributes_of(pairs: Sequence[KeyValue]) -> dict[str, AnyValue]:
    """Return attributes by key. The protocol forbids repeated keys. If a key is repeated, its last
    value is used.

    Raises:
        TooLargeError: there are too many attributes.
    """
    return {pair.key: pair.value for pair in few_enough(pairs)}


def instant(unix_ns: int, now_unix_ns: int) -> int:
    """Return a timestamp if it is plausible, or raise RefusalError."""
    if not EARLIEST_UNIX_NS <= unix_ns <= now_unix_ns + MAX_AHEAD_NS:
        early = unix_ns < EARLIEST_UNIX_NS
        raise RefusalError(Refusal.INSTANT_OUT_OF_RANGE if early else Refusal.IN_THE_FUTURE)
    return unix_ns


def finite(value: float) -> float:
    """Return a finite, non-negative number, or raise RefusalError."""
    if not math.isfinite(value):
        raise RefusalError(Refusal.NOT_FINITE)
    if value < 0:
        raise RefusalError(Refusal.NEGATIVE)
    return value


def seconds(value: float, max_s: float = MAX_DURATION_S) -> float:
    """Return a duration of at most `max_s`, or raise RefusalError."""
    if finite(value) > max_s:
        raise RefusalError(Refusal.ABSURD_DURATION)
    return value


def ratio(value: float) -> float:
    """Return a ratio from 0 to 1, or raise RefusalError (for example for 50 instead of 0.5)."""
    if finite(value) > 1:
        raise RefusalError(Refusal.OUT_OF_RANGE)
    return value


def count(value: int, most: int = MAX_COUNT) -> int:
    """Return a whole number from zero to `most`, or raise RefusalError."""
    if value < 0:
        raise RefusalError(Refusal.NEGATIVE)
    if value > most:
        raise RefusalError(Refusal.OUT_OF_RANGE)
    return value


def bounded_total(total: float) -> float:
    """Return a sum of points. A sum of counts is reduced to `MAX_TOTAL`."""
    return min(total, MAX_TOTAL) if isinstance(total, int) else total


def number(value: float) -> float:
    """Return a number from zero to `MAX_NUMBER`, or raise RefusalError."""
    if finite(value) > MAX_NUMBER:
        raise RefusalError(Refusal.OUT_OF_RANGE)
    return value


class AttributeReader:
    """Reads the attributes of one item. An absent attribute is None. An attribute of the wrong type
    raises RefusalError."""

    __slots__ = ("_attributes", "truncated_texts")

    def __init__(self, attributes: Mapping[str, AnyValue]) -> None:
        self._attributes = attributes
        self.truncated_texts = 0

    def text(self, name: str) -> str | None:
        """A text, truncated to `MAX_TEXT_CHARS`, or None if it is absent or empty."""
        value = self._attributes.get(name)
        if value is None:
            return None
        if value.WhichOneof("value") != "string_value":
            raise RefusalError(Refusal.WRONG_TYPE)
        return self.cleaned(value.string_value)

    def untouched(self, name: str) -> str:
        """A text of any length, unchanged. It is empty if the attribute is absent."""
        value = self._attributes.get(name)
        if value is not None and value.WhichOneof("value") != "string_value":
            raise RefusalError(Refusal.WRONG_TYPE)
        return "" if value is None else value.string_value

    def label(self, name: str) -> str | None:
        """The text of a label. Numbers become text. Values of other types are ignored."""
        value = self._attributes.get(name)
        kind = None if value is None else value.WhichOneof("value")
        if value is None or kind not in ("string_value", "int_value"):
            return None
        return self.cleaned(value.string_value if kind == "string_value" else str(value.int_value))

    def scalar(self, name: str) -> str | int | float | bool | None:
        """A text, a boolean or a finite number, which may be negative."""
        value = self._attributes.get(name)
        if value is None:
            return None
        match value.WhichOneof("value"):
            case "string_value":
                return self.cleaned(value.string_value)
            case "bool_value":
                return value.bool_value
            case "int_value":
                return value.int_value
            case "double_value":
                if not math.isfinite(value.double_value):
                    raise RefusalError(Refusal.NOT_FINITE)
                return value.double_value
            case _:
                raise RefusalError(Refusal.WRONG_TYPE)

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value = self._attributes.get(name)
        if value is None:
            return None
        if value.WhichOneof("value") != "bool_value":
            raise RefusalError(Refusal.WRONG_TYPE)
        return value.bool_value

    def count(self, name: str, most: int = MAX_COUNT) -> int | None:
        """A whole number from zero to `most`."""
        value = self._attributes.get(name)
        if value is None:
            return None
        if value.WhichOneof("value") != "int_value":
            raise RefusalError(Refusal.WRONG_TYPE)
        return count(value.int_value, most)

    def seconds(self, name: str) -> float | None:
        """A duration."""
        value = self._number(name)
        return None if value is None else seconds(value)

    def ratio(self, name: str) -> float | None:
        """A ratio."""
        value = self._number(name)
        return None if value is None else ratio(value)

    def _number(self, name: str) -> float | None:
        value = self._attributes.get(name)
        if value is None:
            return None
        match value.WhichOneof("value"):
            case "double_value":
                return value.double_value
            case "int_value":
                return float(value.int_value)
            case _:
                raise RefusalError(Refusal.WRONG_TYPE)

    def cleaned(self, text: str) -> str | None:
        """A text that can be stored, or None if it is empty."""
        if len(text) > MAX_TEXT_CHARS:
            self.truncated_texts += 1
            text = text[:MAX_TEXT_CHARS]
        # PostgreSQL cannot store NUL.
        return text.replace("\x00", "\ufffd") or None


def http_status(reader: AttributeReader, name: str) -> int | DroppedValue | None:
    """The HTTP status, or a `DroppedValue` if it is invalid. The row is always stored."""
    try:
        status = reader.count(name)
    except RefusalError:
        return DroppedValue.HTTP_STATUS
    return status if status is None or status in HTTP_STATUSES else DroppedValue.HTTP_STATUS
