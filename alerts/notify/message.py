"""Data of a message about an incident, without addresses and keys of channels.

Messages are stored as JSON in the outbox. A text may contain input from a tenant, so it is reduced
to one line of visible characters.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from alerts.groups import base
from telemetry.visible import visible


class UnreadableMessageError(ValueError):
    """A stored message that this version cannot read."""


class Transition(StrEnum):
    """The change that a message reports."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class WindowPairBurnRates:
    """A long and a short window, and the burn rate of each."""

    long_s: int
    short_s: int
    factor: float
    long_burn: float | None
    short_burn: float | None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A pair of windows whose alert a guard suppresses: `low_traffic` or `cold_start`."""

    windows: WindowPairBurnRates
    guard: str


@dataclass(frozen=True, slots=True)
class ReplicaHang:
    """An engine that hangs. The values are from its last report."""

    replica: str
    model: str | None
    in_flight: int
    last_step_age_s: float
    engines: tuple[int, ...] = ()
    """The engines that hang. This is empty if the replica has only one engine."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica", visible(self.replica))
        if self.model is not None:
            object.__setattr__(self, "model", visible(self.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentMessage:
    """One transition of an incident. Instants are in unix seconds.

    Args:
        slo: the objective's name with its group (`chat{tenant="acme"}`), or `hang:` and a replica.
            `slo`, `severity` and `fired_unix_s` identify the incident.
        began_unix_s: when the budget began to burn too fast.
        fired_unix_s: time of the first alert.
        as_of_unix_s: when the numbers were computed.
        ended_unix_s: time of the last alert, or None while the incident is open.
        burn: burn rate over the long window of the pair that fired. `bad` of `events` were bad in
            `window_s` seconds.
        counted_in: plural noun for an event, such as "requests".
        budget_left: share of the period's budget; negative if overspent.
        budget_spent: share that this incident spent.
        exhausted_in_s: seconds until the budget is spent at this burn rate.
        hang: None if the message is about a burn.
        test: whether the message only tests the channel.
        update: whether this message repeats an earlier message, which had no likely cause.
        labels, annotations: the objective's, as in its rules.
    """

    transition: Transition
    slo: str
    display_name: str
    service: str
    severity: str
    statement: str
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
    fired_by: tuple[WindowPairBurnRates, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    likely_cause: str | None = None
    link: str | None = None
    hang: ReplicaHang | None = None
    simulated: bool = False
    test: bool = False
    update: bool = False
    group: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

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
        """The identifier of the incident. All messages about the incident share it."""
        if self.test:
            return f"{self.slo}/{self.severity}/test"
        return f"{self.slo}/{self.severity}/{self.fired_unix_s}"


def dumps(message: IncidentMessage) -> str:
    """The message as JSON."""
    return json.dumps(asdict(message), allow_nan=False)


def loads(text: str) -> IncidentMessage:
    """The message that `dumps` wrote. Keys that a newer version of Tailspan added are ignored.

    Raises:
        UnreadableMessageError: an incompatible version of Tailspan wrote it.
    """
    try:
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableMessageError(repr(error)) from error


def _read(plain: dict[str, Any]) -> IncidentMessage:
    if "promise" in plain:  # earlier versions stored `statement` as `promise` in the outbox
        plain["statement"] = plain.pop("promise")
    plain["transition"] = Transition(plain["transition"])
    plain["fired_by"] = tuple(_known(WindowPairBurnRates, each) for each in plain["fired_by"])
    plain["held_back"] = tuple(
        HeldBack(_known(WindowPairBurnRates, each["windows"]), each["guard"])
        for each in plain["held_back"]
    )
    if (hang := plain.get("hang")) is not None:
        plain["hang"] = _known(ReplicaHang, {**hang, "engines": tuple(hang.get("engines", ()))})
    return _known(IncidentMessage, plain)


_Kind = TypeVar("_Kind", WindowPairBurnRates, ReplicaHang, IncidentMessage)


def _known(kind: type[_Kind], plain: Mapping[str, Any]) -> _Kind:
    names = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in plain.items() if name in names})
