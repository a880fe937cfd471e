"""What the environment asks for: the standard OpenTelemetry variables, and two of our own."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tailspan_vllm import names

DEFAULT_TENANT_HEADER = "x-tenant-id"


@dataclass(frozen=True, slots=True)
class Settings:
    """How this process reports. See the README's table of variables."""

    enabled: bool
    spans: bool
    metrics: bool
    events: bool
    protocol: Literal["grpc", "http/protobuf"]
    traces_endpoint: str
    """As it was when the plugin was loaded: vLLM's `--otlp-traces-endpoint`, which is for its
    own spans, sets the variable afterwards."""
    tenant_header: bytes
    interval_s: float
    queue_limit: int
    batch_limit: int


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings; a value that makes no sense falls back to its default.

    A wrong variable must not keep a server from starting, so nothing here raises.
    """
    return Settings(
        enabled=environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true",
        spans=environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() != "none",
        metrics=environ.get("OTEL_METRICS_EXPORTER", "otlp").strip().lower() != "none",
        events=environ.get("OTEL_LOGS_EXPORTER", "otlp").strip().lower() != "none",
        protocol=_protocol(environ),
        traces_endpoint=_traces_endpoint(environ, _protocol(environ)),
        tenant_header=environ.get("TAILSPAN_TENANT_HEADER", DEFAULT_TENANT_HEADER)
        .strip()
        .lower()
        .encode("latin-1", "replace"),
        interval_s=_positive(environ.get("OTEL_BSP_SCHEDULE_DELAY"), 5000) / 1000,
        queue_limit=_positive(environ.get("OTEL_BSP_MAX_QUEUE_SIZE"), 16384),
        batch_limit=_positive(environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), 512),
    )


def resource_attributes(environ: Mapping[str, str], port: int | None) -> dict[str, str | int]:
    """What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME leave unsaid of this process.

    A replica is named host:port, which outlives a restart and is shared by the API servers
    of one `--api-server-count`; a process without a port is named host:pid.
    """
    given = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    attributes: dict[str, str | int] = {names.PROCESS_PID: os.getpid()}
    if f"{names.SERVICE_INSTANCE_ID}=" not in given:
        attributes[names.SERVICE_INSTANCE_ID] = f"{socket.gethostname()}:{port or os.getpid()}"
    if "OTEL_SERVICE_NAME" not in environ and f"{names.SERVICE_NAME}=" not in given:
        attributes[names.SERVICE_NAME] = "vllm"
    return attributes


def _protocol(environ: Mapping[str, str]) -> Literal["grpc", "http/protobuf"]:
    """The protocol named, or the one that the endpoint's port is registered for."""
    named = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if named:
        return "grpc" if named.strip() == "grpc" else "http/protobuf"
    endpoint = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    return "http/protobuf" if endpoint.endswith(":4318") else "grpc"


def _traces_endpoint(environ: Mapping[str, str], protocol: str) -> str:
    """Where spans go, as OpenTelemetry's exporters would read it."""
    named = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if named:
        return named
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if protocol == "grpc":
        return base or "http://localhost:4317"
    return f"{(base or 'http://localhost:4318').rstrip('/')}/v1/traces"


def _positive(text: str | None, default: int) -> int:
    try:
        value = int(text) if text else default
    except ValueError:
        return default
    return value if value > 0 else default
