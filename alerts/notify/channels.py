"""Data types of notification channels and their requests. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from alerts.secrets import Secret


class ReceiverType(StrEnum):
    """The type of a receiver."""

    ALERTMANAGER = "alertmanager"
    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


@dataclass(frozen=True, slots=True)
class Channel:
    """A destination of notifications.

    Args:
        name: unique; it appears in the outbox, in the log and on `/metrics`.
        url: the address, which may contain a token.
        key: PagerDuty's routing key, or a webhook's signing key.
    """

    name: str
    kind: ReceiverType
    severities: tuple[str, ...]
    url: Secret
    key: Secret | None = None
    authorization: Secret | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets to remove from a receiver's response."""
        secrets = (self.url, self.key, self.authorization)
        return tuple(each.reveal() for each in secrets if each is not None)


@dataclass(frozen=True, slots=True)
class ChannelPost:
    """A POST request with a JSON body. `path` is appended to the channel's address."""

    body: bytes
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


REPEAT_S = 60
"""Interval at which a firing alert is sent again, as in Prometheus."""
