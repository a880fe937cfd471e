"""Builds the record of a request that only the engine core observed.

The record begins in the queue and ends with the last token.
"""

import re
import time
from typing import Final, NamedTuple

from tailspan_vllm.engine_state.step_statistics import load_of
from tailspan_vllm.request.exchange import Flight
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import identify, join_trace
from tailspan_vllm.request.text_limits import bounded_id

_RANDOM_SUFFIX: Final = re.compile(r"-[0-9a-f]{8}$")

_OPERATIONS: Final = {"chatcmpl": "chat", "resp": "chat", "embd": "embeddings"}
"""Maps a prefix of the request id to the operation. Requests with other prefixes are text
completions."""


class Ended(NamedTuple):
    """Values of the scheduler's `Request`, copied when the request ends."""

    request_id: str
    prompt_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None


def record_of(flight: Flight, ended: Ended) -> RequestRecord:
    """A request's record. `AccountJoin` adds the measurements of the step ledger."""
    load = load_of(flight.load)
    at = flight.ended or time.monotonic()
    response_id = _RANDOM_SUFFIX.sub("", ended.request_id)
    record = RequestRecord(
        received=flight.added,
        delivered=at,
        wall_offset_ns=time.time_ns() - round(time.monotonic() * 1e9),
        outcome=flight.outcome,
        basis="engine",
        operation=_OPERATIONS.get(response_id.partition("-")[0], "text_completion"),
        request_id=bounded_id(response_id),
        engine_request_id=bounded_id(ended.request_id),
        awaits_account=True,
        engine=flight.engine,
        lora=flight.lora,
        prompt_tokens=ended.prompt_tokens,
        cached_tokens=ended.cached_tokens,
        cache_write_tokens=ended.cache_write_tokens,
        output_tokens=ended.output_tokens,
        preemptions=len(flight.preempted_at),
        preempted_at=list(flight.preempted_at),
        waiting_at_arrival=load.waiting,
        running_at_arrival=load.running,
        kv_usage_at_arrival=load.kv_usage,
    )
    join_trace(record, flight.traceparent)
    identify(record, flight)
    return record
