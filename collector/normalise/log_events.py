"""Convert OTLP log records to engine starts and reports of requests in flight. Pure.

Other records are skipped.
"""

from typing import Final

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from tailspan_vllm import names

from collector.drop_reasons import Refusal, Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.in_flight import in_flight_of
from collector.normalise.otlp_envelope import decoded, unfold
from collector.normalise.resources import ResourceLabels, origin_of
from collector.normalise.values import AttributeReader, RefusalError, attributes_of, instant
from telemetry.starts import Argument, EngineStart, written

MAX_ARGUMENTS: Final = 256
"""Maximum number of options in an engine's configuration. vLLM has about fifty relevant options."""


def normalise_events(body: bytes, now_unix_ns: int) -> NormalisedBatch:
    """The engine starts and the reports of requests in flight in an OTLP logs message.

    Raises:
        MalformedError: the body is not an OTLP logs message.
        TooLargeError: it has too many items.
    """
    batch = NormalisedBatch()
    for resource, scope, records in unfold(body):
        if scope != names.SCOPE:
            batch.skipped[Skip.NOT_AN_EVENT] += len(records)
            continue
        origin = origin_of(resource)
        batch.truncated_texts += origin.truncated_texts
        for record in records:
            _add(batch, decoded(LogRecord, record), origin, now_unix_ns)
    return batch


def _add(
    batch: NormalisedBatch, record: LogRecord, origin: ResourceLabels, now_unix_ns: int
) -> None:
    reader = AttributeReader(attributes_of(record.attributes))
    try:
        match record.event_name or reader.text(names.EVENT_NAME):
            case names.ENGINE_STARTED:
                batch.starts.append(_start(record, reader, origin, now_unix_ns))
            case names.REQUEST_IN_FLIGHT:
                batch.in_flight.append(in_flight_of(record, reader, origin, now_unix_ns))
            case _:
                batch.skipped[Skip.NOT_AN_EVENT] += 1
                return
    except RefusalError as refusal:
        batch.refused[refusal.reason] += 1
        return
    batch.accepted += 1
    batch.truncated_texts += reader.truncated_texts


def _start(
    record: LogRecord, reader: AttributeReader, origin: ResourceLabels, now_unix_ns: int
) -> EngineStart:
    engine, config = reader.count(names.ENGINE), reader.text(names.CONFIG)
    if engine is None:
        raise RefusalError(Refusal.MISSING_ENGINE)
    if origin.replica is None:
        raise RefusalError(Refusal.MISSING_REPLICA)
    if origin.process is None:
        raise RefusalError(Refusal.MISSING_PROCESS)
    if config is None:
        raise RefusalError(Refusal.MISSING_CONFIG)
    shape = _prefixed(record, reader, names.SHAPE)
    return EngineStart(
        replica=origin.replica,
        engine=engine,
        process=origin.process,
        at_unix_ns=instant(record.time_unix_nano, now_unix_ns),
        config=config,
        arguments=written(_prefixed(record, reader, names.ARGUMENT)),
        simulated=origin.simulated,
        model=reader.text(names.REQUEST_MODEL),
        region=origin.region,
        version=reader.text(names.ENGINE_VERSION),
        device=reader.text(names.DEVICE),
        gpus=reader.count(names.GPUS),
        loading_s=reader.seconds(names.LOADING),
        shape=written(shape) if shape else None,
    )


def _prefixed(record: LogRecord, reader: AttributeReader, prefix: str) -> dict[str, Argument]:
    keys = {pair.key for pair in record.attributes if pair.key.startswith(prefix)}
    if len(keys) > MAX_ARGUMENTS:
        raise RefusalError(Refusal.TOO_MANY_ARGUMENTS)
    found: dict[str, Argument] = {}
    for key in keys:
        name = reader.cleaned(key.removeprefix(prefix))
        value = reader.scalar(key)
        if name is not None and value is not None:
            found[name] = value
    return found
