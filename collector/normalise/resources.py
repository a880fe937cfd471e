"""Who reports: the labels that an OTLP resource gives to everything under it."""

from collections.abc import Iterable
from typing import NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from tailspan_vllm import names

from collector.normalise.values import Reader, attributes_of


class Origin(NamedTuple):
    """The labels of one resource. Unknown is None."""

    replica: str | None
    region: str | None
    process: int | None
    simulated: bool
    truncated_texts: int


def origin_of(attributes: Iterable[KeyValue]) -> Origin:
    """Read a resource. A label of the wrong type is unknown: who runs a fleet sets these
    by hand, and one slip there must not cost the telemetry."""
    given = attributes_of(attributes)
    reader = Reader(given)
    pid = given.get(names.PROCESS_PID)
    simulated = given.get(names.SIMULATED)
    return Origin(
        replica=reader.label(names.SERVICE_INSTANCE_ID) or reader.label(names.SERVICE_NAME),
        region=reader.label(names.CLOUD_REGION),
        process=(
            pid.int_value
            if pid is not None and pid.WhichOneof("value") == "int_value" and pid.int_value >= 0
            else None
        ),
        # OTEL_RESOURCE_ATTRIBUTES can only say it as text.
        simulated=simulated is not None
        and (simulated.bool_value or simulated.string_value.lower() == "true"),
        truncated_texts=reader.truncated_texts,
    )
