"""Access control and limits of the endpoints of `tailspan up`."""

from dataclasses import dataclass, field

from analysis.access.roles_file import Roles
from collector.limits.sender_limits import CollectorLimits
from collector.listen.bearer_tokens import BearerTokens
from collector.listen.host_check import AllowedHosts
from collector.listen.tls import Tls


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """The tokens, TLS settings, host names and limits of the endpoints."""

    tokens: BearerTokens | None = None
    tls: Tls | None = None
    limits: CollectorLimits | None = None
    """The limits on received data, or None for the defaults."""
    hosts: AllowedHosts | None = None
    """The host names that clients may use for the HTTP ports, or None for the default."""
    roles: Roles | None = None
    """The roles that tokens can have, or None if no roles are configured."""
    own_token: str | None = field(default=None, repr=False)
    explorer_host: str | None = None
    """The address that the explorer listens on. None: the same address as the other servers of
    `tailspan up`."""

    @property
    def scheme(self) -> str:
        """The scheme of the endpoints' URLs: http or https."""
        return "https" if self.tls else "http"
