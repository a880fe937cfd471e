"""The reasons why an item is not stored, in counters and in responses to senders."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from telemetry.in_flight import REPORTED_FROM_S


class Skip(StrEnum):
    """The item is not for Tailspan. It is acknowledged, ignored and counted."""

    NOT_A_REQUEST = "not_a_request"
    """A span that describes neither a request nor an operation of an application."""
    NOT_OURS = "not_ours"
    """A data point whose instrumentation scope is not Tailspan's."""
    UNKNOWN_METRIC = "unknown_metric"
    """A data point of Tailspan's scope whose metric name this version does not define."""
    NOT_AN_EVENT = "not_an_event"
    """A log record that is not one of Tailspan's events."""
    NO_RECORDED_VALUE = "no_recorded_value"


class Refusal(StrEnum):
    """The reason for which Tailspan refuses an invalid item. The response to the sender contains
    the reason."""

    MISSING_ID = "missing_id"
    MISSING_REPLICA = "missing_replica"
    MISSING_PROCESS = "missing_process"
    MISSING_ENGINE = "missing_engine"
    MISSING_GPU = "missing_gpu"
    MISSING_CONFIG = "missing_config"
    MISSING_OUTCOME = "missing_outcome"
    """A span of the plugin that is neither an engine start nor a request with
    `tailspan.outcome`."""
    TOO_MANY_ARGUMENTS = "too_many_arguments"
    TOO_MANY_STARTS = "too_many_starts"
    """More engine starts arrived than real engines can cause (`engine_start_limits.py`)."""
    TOO_MANY_OPERATIONS = "too_many_operations"
    """The trace has more operations than Tailspan stores (`collector/rows/operation_limits.py`)."""
    MISSING_START = "missing_start"
    """A counter's data point without its start timestamp."""
    MISSING_VALUE = "missing_value"
    INSTANT_OUT_OF_RANGE = "instant_out_of_range"
    """The timestamp is before 2020, when vLLM did not exist."""
    IN_THE_FUTURE = "in_the_future"
    """A timestamp is more than a day ahead of this machine's clock. A sample or an engine start is
    also refused if its timestamp is much later than the other timestamps of its message."""
    TOO_OLD = "too_old"
    """The row is older than the retention."""
    TOO_YOUNG = "too_young"
    """The request is still in flight, and has not run long enough to be reported."""
    ENDS_BEFORE_START = "ends_before_start"
    ABSURD_DURATION = "absurd_duration"
    """A duration is longer than seven days."""
    NEGATIVE = "negative"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_OUTCOME = "unknown_outcome"
    UNKNOWN_BASIS = "unknown_basis"
    PHASES_DO_NOT_SUM = "phases_do_not_sum"
    """A request's phases differ from its duration by more than a millisecond."""
    PARTS_DO_NOT_SUM = "parts_do_not_sum"
    """Values contradict each other in one of three ways:
    - Parts of a phase are missing, or their sum differs from the phase by more than 1 ms.
    - A latency exceeds the request's duration.
    - The kinds of output tokens do not sum to the number of output tokens."""
    NOT_CUMULATIVE = "not_cumulative"
    """A sum metric is not cumulative, or it can decrease. With such a metric, an increase would be
    missing if one message were lost."""


WHY: Final[Mapping[Refusal, str]] = {
    Refusal.IN_THE_FUTURE: "more than a day ahead of the collector's clock",
    Refusal.TOO_YOUNG: f"a request in flight is reported only after {REPORTED_FROM_S:g} s",
}
"""Explanations for the sender. Reasons with a clear name have no explanation."""


class DroppedValue(StrEnum):
    """An optional value is invalid. The row is stored without it, and the value is counted."""

    LADDER_WRONG_TYPE = "prefix_ladder_wrong_type"
    LADDER_TOO_LONG = "prefix_ladder_too_long"
    LADDER_MALFORMED = "prefix_ladder_malformed"
    """The prefix ladder (`telemetry.prefix_ladders`) is malformed. It must begin with `16:` (the
    tokens per block), followed by groups of four base64 characters."""
    HTTP_STATUS = "http_status"
    """The HTTP status is not a whole number from 100 to 599."""
    CACHE_VALUE = "cache_value"
    """A value of a cache is invalid: an undocumented status, a similarity outside 0 to 1, or a
    malformed duration."""


class Unstored(StrEnum):
    """Why the store did not store a batch. The message was not acknowledged."""

    STORE_BUSY = "store_busy"
    STORE_FAILED = "store_failed"
    STORE_REFUSED = "store_refused"
    """The rows are invalid, so the sender must not retry."""
