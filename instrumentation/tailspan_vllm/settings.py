"""Reads the settings from the environment: OpenTelemetry's variables and Tailspan's own
variables."""

import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailspan_vllm import names
from tailspan_vllm.export.destination import (
    SIGNALS,
    Complain,
    Destination,
    Protocol,
    Signal,
    destination_of,
    protocol_of,
)

DEFAULT_TENANT_HEADER = "x-tenant-id"

PREFIX_KEY, PREFIX_KEY_FILE = "TAILSPAN_PREFIX_KEY", "TAILSPAN_PREFIX_KEY_FILE"
KUBERNETES = "TAILSPAN_KUBERNETES"
PREFIX_KEY_CHARS = 16
"""A shorter key could be found by brute force."""

PREFIX_KEY_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of this process. See docs/configuration.md."""

    enabled: bool
    spans: bool
    metrics: bool
    events: bool
    protocol: Protocol
    destinations: Mapping[Signal, Destination]
    """These variables are read early, because vLLM's option `--otlp-traces-endpoint` later changes
    a variable."""
    tenant_header: bytes
    prefix_key: str | None = field(repr=False)
    interval_s: float
    queue_limit: int
    batch_limit: int
    kubernetes: bool = False
    complaints: tuple[str, ...] = ()


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings. Never raises: a malformed value is replaced by its default and added to
    the complaints."""
    complaints: list[str] = []

    def complain(line: str) -> None:
        if line not in complaints:  # each signal reads the general variables again
            complaints.append(line)

    protocol = protocol_of(environ, complain)
    return Settings(
        enabled=environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true",
        spans=environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() != "none",
        metrics=environ.get("OTEL_METRICS_EXPORTER", "otlp").strip().lower() != "none",
        events=environ.get("OTEL_LOGS_EXPORTER", "otlp").strip().lower() != "none",
        protocol=protocol,
        destinations={
            signal: destination_of(environ, signal, protocol, complain) for signal in SIGNALS
        },
        tenant_header=_tenant_header(environ, complain),
        prefix_key=_prefix_key(environ, complain),
        interval_s=_positive(environ, "OTEL_BSP_SCHEDULE_DELAY", 5000, complain) / 1000,
        queue_limit=_positive(environ, "OTEL_BSP_MAX_QUEUE_SIZE", 16384, complain),
        batch_limit=_positive(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, complain),
        kubernetes=environ.get(KUBERNETES, "").strip().lower() == "true",
        complaints=tuple(complaints),
    )


def resource_attributes(environ: Mapping[str, str], port: int | None) -> dict[str, str | int]:
    """The default attributes that the environment does not set. A replica is named host:port, or
    host:pid without a port."""
    given = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    attributes: dict[str, str | int] = {names.PROCESS_PID: os.getpid()}
    if f"{names.SERVICE_INSTANCE_ID}=" not in given:
        attributes[names.SERVICE_INSTANCE_ID] = f"{socket.gethostname()}:{port or os.getpid()}"
    if "OTEL_SERVICE_NAME" not in environ and f"{names.SERVICE_NAME}=" not in given:
        attributes[names.SERVICE_NAME] = "vllm"
    return attributes


def _tenant_header(environ: Mapping[str, str], complain: Complain) -> bytes:
    given = environ.get("TAILSPAN_TENANT_HEADER", "").strip().lower()
    if given and not re.fullmatch(r"[0-9a-z!#$%&'*+.^_`|~\-]+", given):
        complain(
            f"TAILSPAN_TENANT_HEADER={given[:100]!r} is not valid; allowed: the name of an HTTP"
            f" header; using {DEFAULT_TENANT_HEADER}"
        )
        given = ""
    return (given or DEFAULT_TENANT_HEADER).encode()


def make_prefix_key(environ: "os._Environ[str]") -> None:
    """Set a random key for this server's prefix ladders, unless the user has set a key.

    Two ladders can be compared only if they have the same key.
    """
    if not environ.get(PREFIX_KEY, "").strip() and not environ.get(PREFIX_KEY_FILE, "").strip():
        environ[PREFIX_KEY] = secrets.token_hex(PREFIX_KEY_CHARS)


def _prefix_key(environ: Mapping[str, str], complain: Complain) -> str | None:
    """The key, or None if it is `none`, absent or not valid. Complaints never contain the key."""
    key, path = environ.get(PREFIX_KEY, "").strip(), environ.get(PREFIX_KEY_FILE, "").strip()
    if key.lower() == "none":
        return None
    name = PREFIX_KEY
    if not key and path:
        name = PREFIX_KEY_FILE
        try:
            with Path(path).open("rb") as file:
                key = file.read(PREFIX_KEY_FILE_BYTES).decode("utf-8").strip()
        except (OSError, ValueError) as error:
            complain(
                f"{name}={path[:100]!r} cannot be read ({type(error).__name__}); allowed: a text"
                " file with the key; no prefix ladders are sent"
            )
            return None
    if name == PREFIX_KEY and not key:
        return None
    if len(key) < PREFIX_KEY_CHARS:
        complain(
            f"{name}: the key has {len(key)} characters; allowed: at least {PREFIX_KEY_CHARS}, or"
            " none; no prefix ladders are sent"
        )
        return None
    return key


def _positive(environ: Mapping[str, str], name: str, default: int, complain: Complain) -> int:
    given = environ.get(name, "").strip()
    if not given:
        return default
    try:
        value = int(given)
    except ValueError:
        value = 0
    if value <= 0:
        complain(
            f"{name}={given[:100]!r} is not valid; allowed: a whole number above 0; using {default}"
        )
        return default
    return value
