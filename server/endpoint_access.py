"""What guards the endpoints of `tailspan up`."""

from dataclasses import dataclass, field

from collector.limits.sender_limits import Limits
from collector.listen.bearer_tokens import Tokens
from collector.listen.host_check import AllowedHosts
from collector.listen.tls import Tls


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """Who may use the ports, under which names, and how much at a time."""

    tokens: Tokens | None = None
    tls: Tls | None = None
    limits: Limits | None = None
    """None for the default."""
    hosts: AllowedHosts | None = None
    """The names under which the HTTP ports may be addressed; None for the default."""
    own_token: str | None = field(default=None, repr=False)
    """The token that our own simulator sends."""
    explorer_host: str | None = None
    """The address of the explorer; None for that of the other ports."""

    @property
    def scheme(self) -> str:
        """The scheme of the endpoints' URLs."""
        return "https" if self.tls else "http"
