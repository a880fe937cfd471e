"""What is told of an incident: plain facts, rounded no more than floats do, no address, no key.

Kept as JSON in the outbox; `dumps` and `loads` are inverse. What is unknown is None. Texts may hold
what a tenant chose, such as its name in a likely cause: each is one line of visible characters
from here on.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from alerts.groups import base
from telemetry.visible import visible


class Transition(StrEnum):
    """What there is to tell."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Windows:
    """A pair of windows and how fast each burns; alerts where both are above the factor."""

    long_s: int
    short_s: int
    factor: float
    long_burn: float | None
    short_burn: float | None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A pair that a guard holds back: `low_traffic` or `cold_start`."""

    windows: Windows
    guard: str


@dataclass(frozen=True, slots=True)
class Hang:
    """An engine that takes no step while requests are in flight, as last seen hanging."""

    replica: str
    model: str | None
    in_flight: int
    last_step_age_s: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica", visible(self.replica))
        if self.model is not None:
            object.__setattr__(self, "model", visible(self.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is told of an incident at one of its transitions. Instants in unix seconds.

    Args:
        slo: the objective's name, or `hang:` and a replica; with `severity` and `fired_unix_s` it
            names the incident. That of a group ends in the group: `chat{tenant="acme"}`.
        group: the fields and values of that group.
        promise: in a sentence.
        began_unix_s: since when the budget burned too fast.
        fired_unix_s: when that was noticed.
        as_of_unix_s: when the figures were taken.
        ended_unix_s: when it last alerted; None while it goes on.
        burn: over the long window that alerted, of `window_s`, with its `bad` of `events`.
        counted_in: what an event is, in the plural.
        budget_left: of the whole period; below 0 where it is overspent.
        budget_spent: by this incident.
        exhausted_in_s: how long what is left lasts at this pace.
        fired_by: the pairs that alert.
        likely_cause: in a sentence, where a diagnosis names one.
        link: the explorer's page on it.
        hang: None where an objective burns.
        simulated: no real server stands behind it.
        test: nothing happened; someone tries the channel.
    """

    transition: Transition
    slo: str
    display_name: str
    service: str
    severity: str
    promise: str
    began_unix_s: int
    fired_unix_s: int
    as_of_unix_s: int
    ended_unix_s: int | None = None
    burn: float | None = None
    window_s: int | None = None
    bad: int | None = None
    events: int | None = None
    counted_in: str = "requests"
    peak_burn: float | None = None
    budget_left: float | None = None
    budget_spent: float | None = None
    exhausted_in_s: float | None = None
    fired_by: tuple[Windows, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    likely_cause: str | None = None
    link: str | None = None
    hang: Hang | None = None
    simulated: bool = False
    test: bool = False
    update: bool = False
    group: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in fields(self):
            text = getattr(self, each.name)
            if type(text) is str:
                object.__setattr__(self, each.name, visible(text))
        group = {name: visible(value) for name, value in self.group.items()}
        object.__setattr__(self, "group", group)

    @property
    def objective(self) -> str:
        """The objective's name without the group."""
        return base(self.slo)

    @property
    def incident(self) -> str:
        """The incident's name: the same for all that is told of it."""
        if self.test:
            return f"{self.slo}/{self.severity}/test"
        return f"{self.slo}/{self.severity}/{self.fired_unix_s}"


def dumps(message: Message) -> str:
    """As JSON."""
    return json.dumps(asdict(message), allow_nan=False)


def loads(text: str) -> Message:
    """The inverse of `dumps`."""
    plain: dict[str, Any] = json.loads(text)
    plain["transition"] = Transition(plain["transition"])
    plain["fired_by"] = tuple(Windows(**each) for each in plain["fired_by"])
    plain["held_back"] = tuple(
        HeldBack(Windows(**each["windows"]), each["guard"]) for each in plain["held_back"]
    )
    if (hang := plain.get("hang")) is not None:
        plain["hang"] = Hang(**hang)
    return Message(**plain)
