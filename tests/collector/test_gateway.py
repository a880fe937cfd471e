"""The gateways' configurations have documented keys, and Tailspan's ports and limits."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tailspan_vllm.names import SERVICE_INSTANCE_ID

from cli.commands.up import up
from collector.limits.sender_limits import CollectorLimits

FOLDER = Path(__file__).parents[2] / "collector"
ONE, SEVERAL = "otel-collector.yaml", "otel-gateway-by-replica.yaml"

KNOWN: dict[str, set[str]] = {
    # Source: extension/healthcheckextension, extension/bearertokenauthextension and
    # extension/storage/filestorage of opentelemetry-collector-contrib
    "extensions/health_check": {"endpoint", "path", "response_body", "tls"},
    "extensions/bearertokenauth": {"filename", "header", "scheme", "token", "tokens"},
    "extensions/file_storage": {
        *("directory", "timeout", "fsync", "create_directory", "directory_permissions"),
        "compaction",
    },
    "extensions/file_storage/compaction": {
        *("on_start", "on_rebound", "directory", "max_transaction_size", "cleanup_on_start"),
        *("rebound_needed_threshold_mib", "rebound_trigger_threshold_mib", "check_interval"),
    },
    # Source: receiver/otlpreceiver with config/configgrpc and confighttp,
    # processor/memorylimiterprocessor and exporter/exporterhelper of opentelemetry-collector
    "receivers/otlp": {"protocols"},
    "receivers/otlp/protocols": {"grpc", "http"},
    "receivers/otlp/protocols/grpc": {"endpoint", "max_recv_msg_size_mib", "auth", "tls"},
    "receivers/otlp/protocols/http": {"endpoint", "auth", "tls"},
    "processors/memory_limiter": {
        *("check_interval", "limit_mib", "spike_limit_mib"),
        *("limit_percentage", "spike_limit_percentage"),
    },
    "exporters/otlp": {
        *("endpoint", "compression", "timeout", "auth", "tls", "headers"),
        *("retry_on_failure", "sending_queue"),
    },
    "exporters/otlp/retry_on_failure": {
        *("enabled", "initial_interval", "max_interval", "max_elapsed_time", "multiplier")
    },
    "exporters/otlp/sending_queue": {
        *("enabled", "num_consumers", "wait_for_result", "block_on_overflow", "sizer"),
        *("queue_size", "storage", "batch"),
    },
    "exporters/otlp/sending_queue/batch": {"flush_timeout", "min_size", "max_size", "sizer"},
}
BALANCED: dict[str, set[str]] = {
    # exporter/loadbalancingexporter of opentelemetry-collector-contrib
    "exporters/load_balancing": {
        *("routing_key", "routing_attributes", "resolver", "protocol"),
        *("timeout", "retry_on_failure", "sending_queue"),
    },
    "exporters/load_balancing/resolver": {"static", "dns", "k8s", "aws_cloud_map"},
    "exporters/load_balancing/resolver/dns": {"hostname", "port", "interval", "timeout"},
    "exporters/load_balancing/protocol": {"otlp"},
    "exporters/load_balancing/protocol/otlp": KNOWN["exporters/otlp"] - {"endpoint"},
    **{
        f"exporters/load_balancing/{each}": KNOWN[f"exporters/otlp/{each}"]
        for each in ("retry_on_failure", "sending_queue", "sending_queue/batch")
    },
}
"""The keys of each component that matter here, from its README and schema."""


@pytest.fixture(scope="module", params=[ONE, SEVERAL])
def given(request: pytest.FixtureRequest) -> Any:
    return yaml.safe_load((FOLDER / request.param).read_text())


def _folded(known: dict[str, set[str]], path: str, value: Any) -> dict[str, set[str]]:
    """Return the keys at each path of `known`, without the names of components."""
    found = {path: set(value)} if path in known else {}
    for key, inside in value.items():
        if isinstance(inside, dict):
            found |= _folded(known, f"{path}/{key}", inside)
    return found


def test_each_key_is_one_that_its_component_documents(given: Any) -> None:
    """An unknown key would stop the gateway at its start."""
    known = KNOWN
    if "load_balancing" in given["exporters"]:
        known = {path: keys for path, keys in KNOWN.items() if "exporters/otlp" not in path}
        known |= BALANCED
    seen = set()
    for kind in ("extensions", "receivers", "processors", "exporters"):
        for name, about in given[kind].items():
            plain = f"{kind}/{name.partition('/')[0]}"
            assert plain in known
            for path, keys in _folded(known, plain, about).items():
                assert keys <= known[path], path
                seen.add(path)
    assert seen == set(known)


def test_each_component_is_there_and_in_use(given: Any) -> None:
    service = given["service"]
    assert set(service["extensions"]) == set(given["extensions"])
    assert set(service["pipelines"]) == {"traces", "metrics", "logs"}
    for pipeline in service["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) == set(given[kind])
    (exporter,) = given["exporters"].values()
    protocols = given["receivers"]["otlp"]["protocols"].values()
    template = exporter.get("protocol", {}).get("otlp", exporter)
    asked = [template["auth"], *(each["auth"] for each in protocols)]
    named = {each["authenticator"] for each in asked} | {exporter["sending_queue"]["storage"]}
    assert named == set(given["extensions"]) - {"health_check"}


def test_ports_and_sizes_match_our_endpoints(given: Any) -> None:
    ports = {each.name: each.default for each in up.params}
    protocols = given["receivers"]["otlp"]["protocols"]
    for name in ("grpc", "http"):
        assert protocols[name]["endpoint"].endswith(f":{ports[f'{name}_port']}")
    text = (FOLDER / ONE).read_text()
    assert f"TAILSPAN_ENDPOINT=tailspan.example:{ports['grpc_port']}" in text
    for exporter in given["exporters"].values():
        if "resolver" in exporter:
            assert exporter["resolver"]["dns"]["port"] == str(ports["grpc_port"])
    (exporter,) = given["exporters"].values()
    batch = exporter["sending_queue"]["batch"]
    span_bytes = 2 * 1_600  # twice the size that docs/benchmarks.md shows for one message
    assert batch["max_size"] * span_bytes <= CollectorLimits().max_body_bytes
    assert batch["min_size"] <= batch["max_size"] <= exporter["sending_queue"]["queue_size"]


def test_the_gateway_retries_for_ever_and_drops_no_data(given: Any) -> None:
    """The queue is on disk. When the queue is full, senders wait."""
    (exporter,) = given["exporters"].values()
    assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"
    assert exporter["sending_queue"]["block_on_overflow"]
    assert given["extensions"][exporter["sending_queue"]["storage"]]["fsync"]


def test_all_telemetry_of_a_replica_goes_to_one_collector() -> None:
    exporter = yaml.safe_load((FOLDER / SEVERAL).read_text())["exporters"]["load_balancing"]
    assert exporter["routing_key"] == "attributes"
    assert exporter["routing_attributes"] == [SERVICE_INSTANCE_ID]
    # A queue for one backend would keep data for it, although another backend is available.
    assert "sending_queue" not in exporter["protocol"]["otlp"]


def test_the_certificate_is_checked_against_a_name() -> None:
    """The resolver returns the collectors' IP addresses, which certificates rarely contain."""
    exporter = yaml.safe_load((FOLDER / SEVERAL).read_text())["exporters"]["load_balancing"]
    name = exporter["resolver"]["dns"]["hostname"]
    assert exporter["protocol"]["otlp"]["tls"]["server_name_override"] == name
