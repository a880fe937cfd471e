"""The environment configures the instrumentation as it does any OpenTelemetry program."""

import pytest
from tailspan_vllm import names
from tailspan_vllm.settings import resource_attributes, settings_from


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318/"}, "http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317"}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http/protobuf"),
        (
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
            },
            "grpc",
        ),
    ],
)
def test_the_protocol_is_the_one_named_or_the_ports_own(
    environ: dict[str, str], protocol: str
) -> None:
    """An endpoint on 4318 needs no second variable."""
    assert settings_from(environ).protocol == protocol


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, "localhost:4317"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317"}, "h:4317"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318/"}, "http://h:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http://localhost:4318/v1/traces"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://spans:4318/take",
            },
            "http://spans:4318/take",
        ),
    ],
)
def test_spans_go_where_the_standard_says(environ: dict[str, str], endpoint: str) -> None:
    """The variable for traces as it is, the general one with the path of its protocol."""
    assert settings_from(environ).destinations["traces"].endpoint == endpoint


@pytest.mark.parametrize("nonsense", ["", "-5", "0", "many", "1e3"])
def test_nonsense_falls_back_to_the_default(nonsense: str) -> None:
    """A wrong variable must not keep a server from starting."""
    settings = settings_from(
        {"OTEL_BSP_SCHEDULE_DELAY": nonsense, "OTEL_BSP_MAX_QUEUE_SIZE": nonsense}
    )
    assert settings.interval_s == 5.0
    assert settings.queue_limit == 16384


def test_the_sdk_can_be_disabled() -> None:
    """OTEL_SDK_DISABLED is the standard's own switch."""
    assert not settings_from({"OTEL_SDK_DISABLED": "TRUE"}).enabled


def test_a_replica_is_named_by_its_port_unless_the_user_names_it() -> None:
    """host:port outlives a restart; OTEL_RESOURCE_ATTRIBUTES wins."""
    assert str(resource_attributes({}, 8000)[names.SERVICE_INSTANCE_ID]).endswith(":8000")
    given = {"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=a,service.name=b"}
    assert set(resource_attributes(given, 8000)) == {names.PROCESS_PID}
