"""A server's TLS files: its certificate, its key, and the certificate authority of its clients."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from collector.errors import SecurityError


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files. The constructor checks the files.

    Raises:
        SecurityError: a file cannot be read or is not PEM, or the key does not match.
    """

    certificate: Path
    """The certificate, followed by the intermediate certificates, if any."""
    key: Path
    """The key's path. The key must not be encrypted."""
    client_ca: Path | None = None
    """If this path is set, clients need a certificate that this authority signed (mutual TLS)."""

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for path in (self.certificate, self.key, self.client_ca):
            if path is not None:
                _read(path)
        try:
            # Without a password argument, OpenSSL would ask for the password of an encrypted key on
            # the terminal.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            raise SecurityError(
                f"the certificate {self.certificate} with the key {self.key}: {why}; they must be"
                " a pair in PEM, the key without a password"
            ) from error
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise SecurityError(
                    f"{self.client_ca} contains no certificate in PEM: {error.reason or error}"
                ) from error

    def uvicorn_settings(self) -> dict[str, Any]:
        """The settings for uvicorn."""
        return {
            "ssl_certfile": self.certificate,
            "ssl_keyfile": self.key,
            "ssl_ca_certs": self.client_ca and str(self.client_ca),
            "ssl_cert_reqs": ssl.CERT_REQUIRED if self.client_ca else ssl.CERT_NONE,
        }

    def grpc_credentials(self) -> Any:
        """The credentials for a gRPC server."""
        return grpc.ssl_server_credentials(
            [(_read(self.key), _read(self.certificate))],
            root_certificates=_read(self.client_ca) if self.client_ca else None,
            require_client_auth=self.client_ca is not None,
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SecurityError(f"cannot read {path}: {error.strerror}") from error
