"""The credentials that a client of `tailspan up` sends."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """The token, TLS settings and certificate for each request."""

    token: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: Path | None = None
    client: tuple[Path, Path] | None = None
    """The client's certificate and key."""

    @property
    def scheme(self) -> str:
        """http or https."""
        return "https" if self.tls else "http"

    def headers(self) -> dict[str, str]:
        """The headers of each request. Their names are in lower case, as gRPC requires."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def context(self) -> ssl.SSLContext | None:
        """The TLS settings for HTTP, or None without TLS."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.client:
            context.load_cert_chain(*self.client)
        return context

    def channel(self, where: str) -> Any:
        """A gRPC channel."""
        import grpc

        options = [("grpc.enable_http_proxy", 0)]
        if not self.tls:
            return grpc.insecure_channel(where, options=options)
        certificate, key = self.client or (None, None)
        credentials = grpc.ssl_channel_credentials(
            *(path.read_bytes() if path else None for path in (self.ca, key, certificate))
        )
        return grpc.secure_channel(where, credentials, options=options)


OPEN = ClientAccess()
