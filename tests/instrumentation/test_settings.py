from pathlib import Path

import pytest
from tailspan_vllm import names
from tailspan_vllm.settings import (
    PREFIX_KEY,
    PREFIX_KEY_FILE,
    make_prefix_key,
    resource_attributes,
    settings_from,
)

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
    """An endpoint on port 4318 needs no variable for the protocol."""
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
    """host:port stays the same after a restart; OTEL_RESOURCE_ATTRIBUTES takes precedence."""
    assert str(resource_attributes({}, 8000)[names.SERVICE_INSTANCE_ID]).endswith(":8000")
    given = {"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=a,service.name=b"}
    assert set(resource_attributes(given, 8000)) == {names.PROCESS_PID}


KEY = "a key of 16 characters"


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({}, None),
        ({PREFIX_KEY: f" {KEY} "}, KEY),
        ({PREFIX_KEY: "None"}, None),
        ({PREFIX_KEY: "none", PREFIX_KEY_FILE: "key"}, None),
        ({PREFIX_KEY_FILE: "key"}, KEY),
        ({PREFIX_KEY: KEY * 2, PREFIX_KEY_FILE: "key"}, KEY * 2),
    ],
)
def test_the_key_of_ladders(
    environ: dict[str, str],
    key: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.chdir(tmp_path)
    settings = settings_from(environ)
    assert settings.prefix_key == key
    assert KEY not in repr(settings)
    assert settings.complaints == ()


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({PREFIX_KEY: "short"}, "has 5 characters; allowed: at least 16, or none"),
        ({PREFIX_KEY_FILE: "absent"}, "'absent' cannot be read"),
        ({PREFIX_KEY_FILE: "binary"}, "'binary' cannot be read"),
        ({PREFIX_KEY_FILE: "empty"}, "has 0 characters"),
        ({PREFIX_KEY_FILE: "."}, "'.' cannot be read"),
    ],
)
def test_an_unusable_key_sends_no_ladders(
    environ: dict[str, str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff" * 40)
    (tmp_path / "empty").write_text("\n")
    monkeypatch.chdir(tmp_path)
    settings = settings_from(environ)
    assert settings.prefix_key is None
    assert [complaint in each for each in settings.complaints] == [True]


def test_a_server_without_a_key_creates_one_for_its_processes() -> None:
    one: dict[str, str] = {}
    other: dict[str, str] = {}
    given = {PREFIX_KEY_FILE: "key"}
    for environ in (one, other, given):
        make_prefix_key(environ)  # type: ignore[arg-type]  # a dictionary stands for os.environ
    assert settings_from(one).prefix_key != settings_from(other).prefix_key
    assert given == {PREFIX_KEY_FILE: "key"}
    before = dict(one)
    make_prefix_key(one)  # type: ignore[arg-type]
    assert one == before
