"""Reads the OTEL_EXPORTER_OTLP_* variables, which define where and how each signal is sent.

A signal's own variable, such as OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, overrides the general variable.
A malformed value is reported and replaced by the default.

Source: OpenTelemetry specification, "OpenTelemetry Protocol Exporter"; W3C Baggage for headers.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

Signal = Literal["traces", "metrics", "logs"]
Protocol = Literal["grpc", "http/protobuf"]
Compression = Literal["none", "gzip", "deflate"]
Complain = Callable[[str], None]

SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")

DEFAULT_TIMEOUT_S: Final = 10.0
"""The default time limit in OpenTelemetry's specification."""

_MILLISECONDS_FROM: Final = 1000.0
"""From this value on, a value is in milliseconds, as in the specification. A lower value is in
seconds, as in OpenTelemetry's Python exporters."""

_HEADER_NAME: Final = re.compile(r"[0-9a-z_.\-]+")
"""Characters that are allowed both in gRPC metadata and in HTTP headers."""

_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_HOST_AND_PORT: Final = re.compile(r"[^/:\s]+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Destination:
    """Endpoint and options of one signal."""

    signal: Signal
    protocol: Protocol
    endpoint: str
    """A URL with its path (HTTP), or a target (gRPC)."""
    secure: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    compression: Compression = "none"
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    @property
    def shown(self) -> str:
        """The endpoint for log lines, without a password and without OTLP's own path."""
        if "://" in self.endpoint:
            return _without_password(self.endpoint).removesuffix(f"/v1/{self.signal}")
        return f"{'https' if self.secure else 'http'}://{self.endpoint}"


def protocol_of(environ: Mapping[str, str], complain: Complain) -> Protocol:
    """Return the configured protocol. By default, return the usual protocol of the
    endpoint's port."""
    endpoint = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip().rstrip("/")
    by_port: Protocol = "http/protobuf" if endpoint.endswith(":4318") else "grpc"
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        given = environ.get(name, "").strip()
        if given == "grpc":
            return "grpc"
        if given == "http/protobuf":
            return "http/protobuf"
        if given:
            used: Protocol = "http/protobuf" if given.startswith("http") else by_port
            complain(_complaint(name, given, "grpc or http/protobuf", used))
            return used
    return by_port


def destination_of(
    environ: Mapping[str, str], signal: Signal, protocol: Protocol, complain: Complain
) -> Destination:
    """Read the variables of one signal. Call `complain` with a line for each malformed value."""
    reader = _Reader(environ, signal, complain)
    endpoint, secure = reader.endpoint(protocol)
    certificate = reader.file("CERTIFICATE")
    client_certificate = reader.file("CLIENT_CERTIFICATE")
    client_key = reader.file("CLIENT_KEY")
    return Destination(
        signal,
        protocol,
        endpoint,
        secure,
        reader.headers(),
        reader.timeout_s(),
        reader.compression(),
        certificate,
        client_certificate,
        client_key,
    )


class _Reader:
    def __init__(self, environ: Mapping[str, str], signal: Signal, complain: Complain) -> None:
        self._environ = environ
        self._signal = signal
        self._complain = complain

    def _given(self, variable: str) -> tuple[str, str]:
        """The name and value of the variable that applies. The value is empty if unset."""
        for name in (
            f"OTEL_EXPORTER_OTLP_{self._signal.upper()}_{variable}",
            f"OTEL_EXPORTER_OTLP_{variable}",
        ):
            if value := self._environ.get(name, "").strip():
                return name, value
        return f"OTEL_EXPORTER_OTLP_{variable}", ""

    def endpoint(self, protocol: Protocol) -> tuple[str, bool]:
        name, given = self._given("ENDPOINT")
        if protocol == "http/protobuf":
            path = f"/v1/{self._signal}"
            if not given:
                return f"http://localhost:4318{path}", False
            if not _is_url(given):
                default = f"http://localhost:4318{path}"
                self._complain(_complaint(name, given, "a URL such as http://host:4318", default))
                return default, False
            whole = name == f"OTEL_EXPORTER_OTLP_{self._signal.upper()}_ENDPOINT"
            return (given if whole else given.rstrip("/") + path), given.startswith("https:")
        if not given:
            return "localhost:4317", False
        if _is_url(given):
            return urlsplit(given).netloc.rpartition("@")[2], given.startswith("https:")
        if _HOST_AND_PORT.fullmatch(given) or given.startswith(("unix:", "dns:")):
            return given, not self._insecure()
        allowed = "a URL such as http://host:4317"
        self._complain(_complaint(name, given, allowed, "http://localhost:4317"))
        return "localhost:4317", False

    def _insecure(self) -> bool:
        name, given = self._given("INSECURE")
        if given.lower() not in ("", "true", "false"):
            self._complain(_complaint(name, given, "true or false", "false"))
        return given.lower() == "true"

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers to send. Complaints never contain a header's value, which may be secret."""
        name, given = self._given("HEADERS")
        headers = []
        for number, pair in enumerate(given.split(",") if given else (), 1):
            key, equals, value = pair.partition("=")
            key, value = unquote(key).strip().lower(), unquote(value).strip()
            valid = _HEADER_NAME.fullmatch(key) and _HEADER_VALUE.fullmatch(value)
            if valid and equals and not key.startswith("grpc-") and not key.endswith("-bin"):
                headers.append((key, value))
            elif pair.strip():
                self._complain(
                    f"{name}: entry {number} is not a header (its text is not shown, it may be"
                    " secret); allowed: name=value,name=value in ASCII; sending without it"
                )
        return tuple(headers)

    def timeout_s(self) -> float:
        name, given = self._given("TIMEOUT")
        if not given:
            return DEFAULT_TIMEOUT_S
        try:
            timeout = float(given)
        except ValueError:
            timeout = math.nan
        if not (math.isfinite(timeout) and timeout > 0):
            allowed = "a number above 0 (below 1000: seconds; from 1000: milliseconds)"
            self._complain(_complaint(name, given, allowed, f"{DEFAULT_TIMEOUT_S:.0f}"))
            return DEFAULT_TIMEOUT_S
        return timeout / 1000 if timeout >= _MILLISECONDS_FROM else timeout

    def compression(self) -> Compression:
        name, given = self._given("COMPRESSION")
        match given.lower():
            case "" | "none":
                return "none"
            case "gzip":
                return "gzip"
            case "deflate":
                return "deflate"
        self._complain(_complaint(name, given, "none, gzip or deflate", "none"))
        return "none"

    def file(self, variable: str) -> str | None:
        """The path of a readable file, or None."""
        name, given = self._given(variable)
        if not given:
            return None
        try:
            with Path(given).open("rb") as file:
                file.read(1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a path"
            self._complain(
                f"{name}={given!r} cannot be read ({reason}); allowed: the path of a PEM file;"
                " continuing without the file"
            )
            return None
        return given


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in text


def _without_password(text: str) -> str:
    scheme, separator, rest = text.rpartition("://")
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path


def _complaint(name: str, given: str, allowed: str, used: str) -> str:
    return (
        f"{name}={_without_password(given)[:100]!r} is not valid; allowed: {allowed}; using {used}"
    )
