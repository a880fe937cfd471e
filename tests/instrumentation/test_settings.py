import pytest
from tailspan_vllm import names
from tailspan_vllm.settings import resource_attributes, settings_from

OTLP = "OTEL_EXPORTER_OTLP_"


@pytest.mark.parametrize(
    ("environ", "protocol", "endpoint"),
    [
        ({}, "grpc", "localhost:4317"),
        ({"ENDPOINT": "http://h:4318/"}, "http/protobuf", "http://h:4318/v1/traces"),
        ({"ENDPOINT": "http://h:4317"}, "grpc", "h:4317"),
        ({"PROTOCOL": "http/protobuf"}, "http/protobuf", "http://localhost:4318/v1/traces"),
        ({"PROTOCOL": "http/protobuf", "TRACES_PROTOCOL": "grpc"}, "grpc", "localhost:4317"),
        (
            {"ENDPOINT": "http://h:4318", "TRACES_ENDPOINT": "http://spans:4318/take"},
            "http/protobuf",
            "http://spans:4318/take",
        ),
    ],
)
def test_protocol_and_endpoint(environ: dict[str, str], protocol: str, endpoint: str) -> None:
    """An endpoint on port 4318 needs no second variable."""
    settings = settings_from({f"{OTLP}{name}": value for name, value in environ.items()})
    assert settings.protocol == protocol
    assert settings.destinations["traces"].endpoint == endpoint


@pytest.mark.parametrize("nonsense", ["", "-5", "0", "many", "1e3"])
def test_nonsense_falls_back_to_the_default(nonsense: str) -> None:
    settings = settings_from(
        {"OTEL_BSP_SCHEDULE_DELAY": nonsense, "OTEL_BSP_MAX_QUEUE_SIZE": nonsense}
    )
    assert settings.interval_s == 5.0
    assert settings.queue_limit == 16384


def test_the_sdk_can_be_disabled() -> None:
    assert not settings_from({"OTEL_SDK_DISABLED": "TRUE"}).enabled


def test_a_replica_is_named_by_its_port_unless_the_user_names_it() -> None:
    """host:port survives a restart; OTEL_RESOURCE_ATTRIBUTES wins."""
    assert str(resource_attributes({}, 8000)[names.SERVICE_INSTANCE_ID]).endswith(":8000")
    given = {"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=a,service.name=b"}
    assert set(resource_attributes(given, 8000)) == {names.PROCESS_PID}
