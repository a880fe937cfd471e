"""Read the labels of an OTLP resource, which apply to all of its items."""

from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from tailspan_vllm import names

from collector.normalise.otlp_envelope import decoded
from collector.normalise.values import AttributeReader, attributes_of


class ResourceLabels(NamedTuple):
    """The labels of a resource, as fields of its rows. A label is None if it is unknown."""

    replica: str | None
    region: str | None
    process: int | None
    simulated: bool
    truncated_texts: int
    digest: str
    """A digest of all labels. All spans of a process have the same digest."""


_MAX_CACHED_BYTES: Final = 4096
_MAX_CACHED: Final = 256


def origin_of(resource: bytes) -> ResourceLabels:
    """Read a resource. A label of the wrong type, a common mistake, counts as absent.

    Raises:
        MalformedError: the bytes are not a resource.
    """
    # A server sends the same resource with each message.
    return _cached(resource) if len(resource) <= _MAX_CACHED_BYTES else _read(resource)


@lru_cache(maxsize=_MAX_CACHED)
def _cached(resource: bytes) -> ResourceLabels:
    return _read(resource)


def _read(resource: bytes) -> ResourceLabels:
    labels = decoded(Resource, resource).attributes
    given = attributes_of(labels)
    reader = AttributeReader(given)
    pid = given.get(names.PROCESS_PID)
    simulated = given.get(names.SIMULATED)
    return ResourceLabels(
        replica=reader.label(names.SERVICE_INSTANCE_ID) or reader.label(names.SERVICE_NAME),
        region=reader.label(names.CLOUD_REGION),
        process=(
            pid.int_value
            if pid is not None and pid.WhichOneof("value") == "int_value" and pid.int_value >= 0
            else None
        ),
        # In OTEL_RESOURCE_ATTRIBUTES, every value is a text, also "true".
        simulated=simulated is not None
        and (simulated.bool_value or simulated.string_value.lower() == "true"),
        truncated_texts=reader.truncated_texts,
        # The labels are sorted, because a gateway may change their order.
        digest=blake2b(
            b"".join(sorted(each.SerializeToString(deterministic=True) for each in labels)),
            digest_size=8,
        ).hexdigest(),
    )
