"""The registry of fields: what each field of a request or a sample is, beside its type.

A field of `RequestTimeline`, `EngineSample` or `GpuSample` is annotated with its unit, meaning and
source, with its name on the wire, and with whether rollups keep it. The wire's tables, the
store's tables, docs/attributes.md and the JSON of `tailspan requests` are derived from it.

    queue_s: Annotated[float | None, attribute(names.QUEUE, "s", "…", INSTANTS)] = None
"""

from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, get_args, get_type_hints

from tailspan_vllm import names

Quantity = Literal["text", "flag", "count", "number", "ratio", "score", "seconds"]
"""What values are allowed. A count is a whole number; a ratio is at most 1; only a score may be
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


class Description(NamedTuple):
    """What a field is.

    Attributes:
        unit: UCUM's, or the kind of value where there is nothing to measure.
        meaning: a sentence.
        source: where its value comes from.
        wire: its attribute or metric, as the instrumentation sends it; None where Tailspan sets it.
        quantity: None where type and unit define it.
        rolled_up: whether rollups keep it.
    """

    unit: str
    meaning: str
    source: str
    wire: str | None = None
    quantity: Quantity | None = None
    rolled_up: bool = False


def attribute(
    wire: str, unit: str, meaning: str, source: str, *, rolled_up: bool = False
) -> Description:
    """Describe a field that is an attribute of a request's span."""
    return Description(unit, meaning, source, wire, rolled_up=rolled_up)


def metric(
    wire: str,
    meaning: str,
    source: str,
    *,
    quantity: Quantity | None = None,
    rolled_up: bool = False,
) -> Description:
    """Describe a field that is a metric; the wire's table has its unit."""
    unit = {**names.UNITS, **names.GPU_UNITS}[wire]
    return Description(unit, meaning, source, wire, quantity, rolled_up)


def column(unit: str, meaning: str, source: str, *, rolled_up: bool = False) -> Description:
    """Describe a field that Tailspan sets by itself, or reads from where the data comes from."""
    return Description(unit, meaning, source, rolled_up=rolled_up)


class Field(NamedTuple):
    """One field of a dataclass: its name, its type, whether it may be unknown, what it is."""

    name: str
    type: type
    nullable: bool
    about: Description

    @property
    def quantity(self) -> Quantity:
        """What values are allowed."""
        if self.about.quantity is not None:
            return self.about.quantity
        if self.type is float:
            by_unit: dict[str, Quantity] = {"s": "seconds", "1": "ratio"}
            return by_unit.get(self.about.unit, "number")
        by_type: dict[type, Quantity] = {bool: "flag", int: "count"}
        return by_type.get(self.type, "text")

    @property
    def is_total(self) -> bool:
        """Whether it counts since a start; else it is the value of an instant."""
        return self.name.endswith("_total")


@cache
def fields_of(noun: type) -> tuple[Field, ...]:
    """Return the fields of an annotated dataclass, in its order.

    Raises:
        TypeError: a field lacks its description.
    """
    return tuple(
        _field(name, hint) for name, hint in get_type_hints(noun, include_extras=True).items()
    )


def on_the_wire(noun: type) -> dict[str, Field]:
    """Return the fields that senders send, by their attribute or metric."""
    return {each.about.wire: each for each in fields_of(noun) if each.about.wire is not None}


def rolled_up(noun: type) -> tuple[str, ...]:
    """Return the names of the fields that rollups keep."""
    return tuple(each.name for each in fields_of(noun) if each.about.rolled_up)


_HOW: Final = "Annotated[TYPE, attribute(…)], metric(…) or column(…) of telemetry/fields.py"


def _field(name: str, hint: Any) -> Field:
    about = getattr(hint, "__metadata__", (None,))[0]
    if not isinstance(about, Description):
        raise TypeError(f"{name}: {hint} has no description; write {_HOW}")
    plain = hint.__origin__
    nullable = isinstance(plain, UnionType)
    if nullable:
        plain = next(arm for arm in get_args(plain) if arm is not NoneType)
    if issubclass(plain, Enum):
        plain = str
    return Field(name, plain, nullable, about)
