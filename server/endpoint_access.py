"""Access control and limits of the endpoints of `tailspan up`."""

from dataclasses import dataclass, field

from analysis.access.roles_file import Roles
from collector.limits.sender_limits import CollectorLimits
from collector.listen.bearer_tokens import BearerTokens
from collector.listen.host_check import AllowedHosts
from collector.listen.tls import Tls


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """Tokens, TLS settings, host names, roles and limits. The value None means the default, or that
    there is no such setting."""

    tokens: BearerTokens | None = None
    tls: Tls | None = None
    limits: CollectorLimits | None = None
    hosts: AllowedHosts | None = None
    roles: Roles | None = None
    own_token: str | None = field(default=None, repr=False)
    explorer_host: str | None = None
    """The explorer's address, if it differs from the address of the other servers."""

    @property
    def scheme(self) -> str:
        """http or https."""
        return "https" if self.tls else "http"
