"""Notification channels and the requests sent through them, as data. Pure.

Each kind has a module that renders a message as a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from alerts.secrets import Secret


class Kind(StrEnum):
    """The kind of receiver."""

    ALERTMANAGER = "alertmanager"
    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


@dataclass(frozen=True, slots=True)
class Channel:
    """A destination of notifications.

    Args:
        name: unique; it is in the outbox, in the log and on `/metrics`.
        kind: the kind of receiver.
        severities: the severities it receives.
        url: the address; may contain a token.
        key: PagerDuty's routing key, or the key that signs a webhook's body.
        authorization: the value of the Authorization header.
    """

    name: str
    kind: Kind
    severities: tuple[str, ...]
    url: Secret
    key: Secret | None = None
    authorization: Secret | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts to remove from a receiver's answer before it is shown."""
        secrets = (self.url, self.key, self.authorization)
        return tuple(each.reveal() for each in secrets if each is not None)


@dataclass(frozen=True, slots=True)
class Post:
    """A POST of JSON to the channel's address plus this path."""

    body: bytes
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


REPEAT_S = 60
"""How often a firing alert is sent to Alertmanager again; Prometheus' resend delay."""
