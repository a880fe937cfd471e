"""Access control and limits of the endpoints of `tailspan up`."""

from dataclasses import dataclass, field

from collector.limits.sender_limits import Limits
from collector.listen.bearer_tokens import Tokens
from collector.listen.host_check import AllowedHosts
from collector.listen.tls import Tls


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """Who may use the ports, under which names, and with which limits."""

    tokens: Tokens | None = None
    tls: Tls | None = None
    limits: Limits | None = None
    """None for the default."""
    hosts: AllowedHosts | None = None
    """The names that clients may use for the HTTP ports, or None for the default."""
    own_token: str | None = field(default=None, repr=False)
    """The token of Tailspan's own simulator."""
    explorer_host: str | None = None
    """The address of the explorer, or None for the address of the other ports."""

    @property
    def scheme(self) -> str:
        """The scheme of the endpoints' URLs."""
        return "https" if self.tls else "http"
