"""Where messages go: channels as data, and what is sent through one. Pure.

Each kind has a module of its own, which makes a message into a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from alerts.secrets import Secret


class Kind(StrEnum):
    """What speaks at the other end."""

    ALERTMANAGER = "alertmanager"
    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


@dataclass(frozen=True, slots=True)
class Channel:
    """One way to tell someone.

    Args:
        name: unique; it is in the outbox, in the log and on `/metrics`.
        kind: what speaks at the other end.
        severities: those that go there.
        url: the address; may hold a token.
        key: PagerDuty's routing key, or what a webhook's body is signed with.
        authorization: the value of that header.
    """

    name: str
    kind: Kind
    severities: tuple[str, ...]
    url: Secret
    key: Secret | None = None
    authorization: Secret | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, should someone repeat it to us."""
        held = (self.url, self.key, self.authorization)
        return tuple(each.reveal() for each in held if each is not None)


@dataclass(frozen=True, slots=True)
class Post:
    """A request to make: JSON, to the channel's address and this path."""

    body: bytes
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


REPEAT_S = 60
"""Alertmanager hears of what goes on so often, as it does from Prometheus."""
