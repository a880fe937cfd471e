"""Why an item was not kept: each reason spelled once, as the counters and senders hear it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from telemetry.in_flight import REPORTED_FROM_S


class Skip(StrEnum):
    """Not for us, and no fault of the sender's: acknowledged, ignored, counted."""

    NOT_A_REQUEST = "not_a_request"
    """A span that is not a request's: another scope, or ours without an outcome."""
    NOT_OURS = "not_ours"
    """A data point of another instrumentation scope."""
    UNKNOWN_METRIC = "unknown_metric"
    """A data point of our scope under a name that this version does not know."""
    NOT_AN_EVENT = "not_an_event"
    """A log record that is no event of ours."""
    NO_RECORDED_VALUE = "no_recorded_value"
    """A data point that says itself that it has no value."""


class Refusal(StrEnum):
    """Meant for us and wrong: refused, told to the sender as a partial success, counted."""

    MISSING_ID = "missing_id"
    MISSING_REPLICA = "missing_replica"
    MISSING_PROCESS = "missing_process"
    MISSING_ENGINE = "missing_engine"
    MISSING_GPU = "missing_gpu"
    MISSING_CONFIG = "missing_config"
    """The start of an engine that does not say with which configuration."""
    TOO_MANY_ARGUMENTS = "too_many_arguments"
    TOO_MANY_STARTS = "too_many_starts"
    """More engine starts than real engines can make (`collector/rows/engine_start_limits.py`)."""
    MISSING_START = "missing_start"
    """A total that does not say since when it counts."""
    MISSING_VALUE = "missing_value"
    INSTANT_OUT_OF_RANGE = "instant_out_of_range"
    """Before 2020, when there was no vLLM."""
    IN_THE_FUTURE = "in_the_future"
    """More than a day ahead of this machine's clock: no time zone explains it. Or a sample or start
    far ahead of what its sender sent beside it."""
    TOO_OLD = "too_old"
    """Longer ago than rows are kept."""
    TOO_YOUNG = "too_young"
    """A request in flight that has not run for long enough to be reported."""
    ENDS_BEFORE_START = "ends_before_start"
    ABSURD_DURATION = "absurd_duration"
    """More than seven days."""
    NEGATIVE = "negative"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_OUTCOME = "unknown_outcome"
    UNKNOWN_BASIS = "unknown_basis"
    PHASES_DO_NOT_SUM = "phases_do_not_sum"
    """The phases differ from end − start by more than a millisecond."""
    PARTS_DO_NOT_SUM = "parts_do_not_sum"
    """The parts of prefill or decode differ from it by more than that, or some are missing; or
    the time to first token, or between two, is longer than the request."""
    NOT_CUMULATIVE = "not_cumulative"
    """A sum that is not monotonic and cumulative: a lost export would lose counts."""


WHY: Final[Mapping[Refusal, str]] = {
    Refusal.IN_THE_FUTURE: "more than a day ahead of the collector's clock",
    Refusal.TOO_YOUNG: f"requests are reported in flight from {REPORTED_FROM_S:g} s on",
}
"""What the name of a refusal leaves open, where it is the same each time."""


class Unstored(StrEnum):
    """The store did not keep a whole batch, so it was not acknowledged."""

    STORE_BUSY = "store_busy"
    STORE_FAILED = "store_failed"
    STORE_REFUSED = "store_refused"
    """The rows themselves cannot be kept; the sender is told not to repeat them."""
