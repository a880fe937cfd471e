"""Describe the fields of requests and samples.

A description has the unit, the meaning, the source and the OpenTelemetry name. Tables of the
collector and the store are derived from these descriptions. docs/attributes.md and the JSON of
`tailspan requests` are also derived from them.
"""

from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, get_args, get_type_hints

from tailspan_vllm import names

Quantity = Literal["text", "flag", "count", "number", "ratio", "score", "seconds"]
"""The kind of a number. A count is a whole number, a ratio is at most 1, and only a score may be
negative."""


HTTP: Final = "HTTP layer"
HEADER: Final = "request header"
STATS: Final = "vLLM's `RequestStateStats`"
STATE: Final = "vLLM's `RequestState`"
SCHEDULER: Final = "vLLM's `SchedulerStats`"
ITERATION: Final = "vLLM's `IterationStats`"
CONFIG: Final = "vLLM's config"
FRONT_END: Final = "the front end"
LEDGER: Final = "step ledger"
INSTANTS: Final = "the instants"
INSTRUMENTATION: Final = "the instrumentation"
SYSTEM: Final = "operating system"
GPU_SAMPLER: Final = "GPU sampler"
PROBER: Final = "prober"
CACHE_SPAN: Final = "span of an application or a gateway"


class FieldDescription(NamedTuple):
    """The description of a field.

    Attributes:
        unit: a UCUM unit, or the type of a value without a unit.
        meaning: one or more sentences.
        source: where the sender gets the value from, such as "request header".
        wire: the OpenTelemetry name, or None if Tailspan itself sets the field.
        quantity: the kind of the values. If it is None, it is derived from the type and the unit.
    """

    unit: str
    meaning: str
    source: str
    wire: str | None = None
    quantity: Quantity | None = None
    rolled_up: bool = False


def attribute(
    wire: str, unit: str, meaning: str, source: str, *, rolled_up: bool = False
) -> FieldDescription:
    """Describe a field that is an attribute of a request's span."""
    return FieldDescription(unit, meaning, source, wire, rolled_up=rolled_up)


def metric(
    wire: str,
    meaning: str,
    source: str,
    *,
    quantity: Quantity | None = None,
    rolled_up: bool = False,
) -> FieldDescription:
    """Describe a field that is a metric, with the unit from `tailspan_vllm.names`."""
    unit = {**names.UNITS, **names.GPU_UNITS}[wire]
    return FieldDescription(unit, meaning, source, wire, quantity, rolled_up)


def column(unit: str, meaning: str, source: str, *, rolled_up: bool = False) -> FieldDescription:
    """Describe a field that Tailspan computes, or reads from a different part of a message."""
    return FieldDescription(unit, meaning, source, rolled_up=rolled_up)


CLOCK_AHEAD: Final = column(
    "s",
    "Seconds subtracted from the timestamps, because the sender's clock was ahead. Absent without"
    " a correction.",
    "collector",
)


class DescribedField(NamedTuple):
    """One field of a dataclass, with its description."""

    name: str
    type: type
    nullable: bool
    about: FieldDescription

    @property
    def quantity(self) -> Quantity:
        """The kind of the field's values."""
        if self.about.quantity is not None:
            return self.about.quantity
        if self.type is float:
            by_unit: dict[str, Quantity] = {"s": "seconds", "1": "ratio"}
            return by_unit.get(self.about.unit, "number")
        by_type: dict[type, Quantity] = {bool: "flag", int: "count"}
        return by_type.get(self.type, "text")

    @property
    def is_total(self) -> bool:
        """Whether the field is a counter."""
        return self.name.endswith("_total")


@cache
def fields_of(row_type: type) -> tuple[DescribedField, ...]:
    """The fields of an annotated dataclass, in order.

    Raises:
        TypeError: a field has no description.
    """
    return tuple(
        _field(name, hint) for name, hint in get_type_hints(row_type, include_extras=True).items()
    )


def on_the_wire(row_type: type) -> dict[str, DescribedField]:
    """Map the attribute or metric name to its field, for all fields that senders report."""
    return {each.about.wire: each for each in fields_of(row_type) if each.about.wire is not None}


def rolled_up(row_type: type) -> tuple[str, ...]:
    """The names of the fields that rollups include."""
    return tuple(each.name for each in fields_of(row_type) if each.about.rolled_up)


_HOW: Final = "Annotated[TYPE, attribute(…)], metric(…) or column(…) of telemetry/fields.py"


def _field(name: str, hint: Any) -> DescribedField:
    about = getattr(hint, "__metadata__", (None,))[0]
    if not isinstance(about, FieldDescription):
        raise TypeError(f"{name}: {hint} has no description; write {_HOW}")
    plain = hint.__origin__
    nullable = isinstance(plain, UnionType)
    if nullable:
        plain = next(arm for arm in get_args(plain) if arm is not NoneType)
    if issubclass(plain, Enum):
        plain = str
    return DescribedField(name, plain, nullable, about)
