"""Who reports: the labels that an OTLP resource gives to everything under it."""

from functools import lru_cache
from typing import Final, NamedTuple

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from tailspan_vllm import names

from collector.normalise.otlp_envelope import decoded
from collector.normalise.values import Reader, attributes_of


class Origin(NamedTuple):
    """The labels of one resource. Unknown is None."""

    replica: str | None
    region: str | None
    process: int | None
    simulated: bool
    truncated_texts: int


_LONGEST_KNOWN: Final = 4096
_MOST_KNOWN: Final = 256


def origin_of(resource: bytes) -> Origin:
    """Read a resource. A label of the wrong type is unknown: who runs a fleet sets these
    by hand, and one slip there must not cost the telemetry.

    Raises: MalformedError where it is no resource.
    """
    # A server's resource is the same in all that it sends.
    return _known(resource) if len(resource) <= _LONGEST_KNOWN else _read(resource)


@lru_cache(maxsize=_MOST_KNOWN)
def _known(resource: bytes) -> Origin:
    return _read(resource)


def _read(resource: bytes) -> Origin:
    given = attributes_of(decoded(Resource, resource).attributes)
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
