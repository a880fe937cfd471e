from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm.export.destination import Destination
from tailspan_vllm.export.transport import post_to
from tailspan_vllm.settings import Settings, settings_from

HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def traces(environ: dict[str, str]) -> Destination:
    return settings_from(environ).destinations["traces"]


@pytest.mark.parametrize(
    ("name", "value", "field", "default"),
    [
        ("TIMEOUT", "10s", "timeout_s", 10.0),
        ("TIMEOUT", "-1", "timeout_s", 10.0),
        ("TIMEOUT", "nan", "timeout_s", 10.0),
        ("TRACES_TIMEOUT", "inf", "timeout_s", 10.0),
        ("COMPRESSION", "zstd", "compression", "none"),
        ("TRACES_COMPRESSION", "br", "compression", "none"),
        ("ENDPOINT", "http://host:port", "endpoint", "localhost:4317"),
        ("ENDPOINT", "http://", "endpoint", "localhost:4317"),
        ("ENDPOINT", "collector", "endpoint", "localhost:4317"),
        ("CERTIFICATE", "/does/not/exist.pem", "certificate", None),
        ("CERTIFICATE", "a\0b", "certificate", None),
        ("CLIENT_KEY", "/", "client_key", None),
        ("HEADERS", "no header", "headers", ()),
        ("PROTOCOL", "tcp", "protocol", "grpc"),
        ("PROTOCOL", "http/json", "protocol", "http/protobuf"),
    ],
)
def test_malformed_variables_are_named(name: str, value: str, field: str, default: object) -> None:
    settings = settings_from({f"OTEL_EXPORTER_OTLP_{name}": value})
    assert getattr(settings.destinations["traces"], field) == default
    (complaint,) = settings.complaints
    assert f"OTEL_EXPORTER_OTLP_{name}" in complaint
    assert "allowed" in complaint
    assert name == "HEADERS" or repr(value) in complaint


def test_secrets_are_not_shown() -> None:
    settings = settings_from(
        {
            **HTTP,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer s3cret,s3cret,x y=s3cret",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:s3cret@h:4318",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "ftp://me:s3cret@h",
        }
    )
    assert settings.destinations["traces"].headers == (("authorization", "Bearer s3cret"),)
    assert len(settings.complaints) == 3
    assert settings.destinations["traces"].shown == "http://h:4318"
    assert not any("s3cret" in line for line in settings.complaints)


@pytest.mark.parametrize(("given", "seconds"), [("2", 2.0), ("0.5", 0.5), ("10000", 10.0)])
def test_a_time_limit_is_in_seconds_or_milliseconds(given: str, seconds: float) -> None:
    """OpenTelemetry's Python exporters read seconds, but the specification has milliseconds."""
    assert traces({"OTEL_EXPORTER_OTLP_TIMEOUT": given}).timeout_s == seconds


def test_a_signals_own_variable_takes_precedence(tmp_path: Path) -> None:
    """All signals share the protocol. All settings but the protocol may have a separate value for
    each signal."""
    certificate = tmp_path / "ca.pem"
    certificate.write_text("x")
    settings = settings_from(
        {
            **HTTP,
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://h:1",
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://logs:2/take",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION": "none",
            "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": str(certificate),
        }
    )
    spans, logs = settings.destinations["traces"], settings.destinations["logs"]
    assert (spans.endpoint, spans.secure, spans.compression) == (
        "https://h:1/v1/traces",
        True,
        "gzip",
    )
    assert spans.certificate == str(certificate)
    assert (logs.endpoint, logs.secure, logs.compression) == ("http://logs:2/take", False, "none")
    assert not settings.complaints


VARIABLES = [
    f"OTEL_EXPORTER_OTLP_{signal}{name}"
    for signal in ("", "TRACES_", "METRICS_", "LOGS_")
    for name in (
        *("ENDPOINT", "HEADERS", "TIMEOUT", "COMPRESSION", "PROTOCOL", "INSECURE"),
        *("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"),
    )
]
texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["http://h", "https://h:1", "h:4317", "grpc", "http/protobuf", "a=b", "5"]),
)


@given(st.dictionaries(st.sampled_from(VARIABLES), texts, max_size=6))
def test_no_variable_raises(environ: dict[str, str]) -> None:
    settings: Settings = settings_from(environ)
    if settings.protocol == "http/protobuf":  # a gRPC channel per example takes too long
        for destination in settings.destinations.values():
            post_to(destination)
