"""Find engines that hang: they have requests but take no step. Pure.

A request of a hung engine has no row until its client gives up or its server ends. Its waiting time
is a lower bound of its latency, and is used as its latency.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from diagnosis.inputs.requests import BoolArray, FloatArray, LabelColumn, Requests, with_columns
from diagnosis.inputs.servers import Samples
from telemetry.engines import HUNG_S

UNFINISHED: Final = "unfinished"
"""Outcome of a request that a hung engine did not finish."""

_SLOT_NS: Final = 5 * 10**9
"""Length of a time slot in nanoseconds. An engine may have several front ends, which each send a
sample every second. The engine took a step if at least one front end reports a step."""
_ENDED: Final = ("stop", "length", "rejected", UNFINISHED)

_NOT_REACHED: Final = (
    *("frontend_s", "handoff_s", "queue_s", "prefill_s", "decode_s", "delivery_s"),
)


def unfinished(requests: Requests) -> BoolArray:
    """Return which requests a hung engine did not finish: (n,)."""
    return requests.label("outcome").is_value(UNFINISHED)


class EngineHang(NamedTuple):
    """A time range, in unix nanoseconds, in which an engine had requests but took no step."""

    replica: str
    engine: int
    from_unix_ns: int
    to_unix_ns: int


def hangs(engines: Samples) -> list[EngineHang]:
    """Return the hangs that samples show, in order of replica, engine and time."""
    age_s, in_flight = engines.number("last_step_age_s"), engines.number("in_flight")
    if not (age_s > HUNG_S).any():
        return []
    found: list[EngineHang] = []
    for replica in engines.replica.values:
        rows = engines.replica.is_value(replica) & np.isfinite(age_s) & (in_flight > 0)
        for each in sorted(_of_replica(engines, rows, replica)):
            if found and found[-1][:2] == each[:2] and each.from_unix_ns <= found[-1].to_unix_ns:
                end = max(each.to_unix_ns, found[-1].to_unix_ns)
                found[-1] = found[-1]._replace(to_unix_ns=end)
            else:
                found.append(each)
    return found


def _of_replica(engines: Samples, rows: BoolArray, replica: str) -> Iterator[EngineHang]:
    numbers = np.nan_to_num(engines.number("engine")[rows])
    slots, at = engines.at_unix_ns[rows] // _SLOT_NS, engines.at_unix_ns[rows]
    age_s = engines.number("last_step_age_s")[rows]
    for number in np.unique(numbers):
        mine = numbers == number
        _, place = np.unique(slots[mine], return_inverse=True)
        since = np.zeros(place.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(since, place, at[mine] - (age_s[mine] * 1e9).astype(np.int64))
        last = np.zeros_like(since)
        np.maximum.at(last, place, at[mine])
        hung = (last - since) / 1e9 > HUNG_S
        for begin, end in zip(since[hung].tolist(), last[hung].tolist(), strict=True):
            yield EngineHang(replica, int(number), begin, end)


def with_unfinished(requests: Requests, engines: Samples) -> Requests:
    """Return the requests. Requests that a hung engine did not finish have the outcome
    `UNFINISHED`.

    The latency of such a request is the time from the receipt until the request was given up. If
    the response had begun, all time after the known phases counts as decode. If the response had
    not begun, the phases are unknown.
    """
    found = np.zeros(len(requests), dtype=np.bool_)
    received = requests.received_unix_ns
    taken_s = requests.number("e2e_s")
    ended = received + (np.nan_to_num(taken_s) * 1e9).astype(np.int64)
    for hang in hangs(engines):
        there = requests.of_engine(hang.replica, hang.engine)
        found |= there & (received < hang.to_unix_ns) & (ended > hang.from_unix_ns)
    found &= ~requests.label("outcome").is_any(_ENDED) & np.isfinite(taken_s)
    return _mark_unfinished(requests, found) if found.any() else requests


def _mark_unfinished(requests: Requests, found: BoolArray) -> Requests:
    outcome = requests.label("outcome")
    values = (*(value for value in outcome.values), UNFINISHED)
    codes = np.where(found, np.int32(len(values) - 1), outcome.codes).astype(np.int32)
    begun = found & np.isfinite(requests.number("ttft_s"))
    waiting = found & ~begun
    changed = {name: _unknown(requests.number(name), waiting) for name in _NOT_REACHED}
    before_s = sum(np.nan_to_num(requests.number(f"{each}_s")) for each in _BEFORE_DECODE)
    taken_s = requests.number("e2e_s")
    changed["decode_s"] = np.where(begun, taken_s - before_s, changed["decode_s"])
    changed["delivery_s"] = np.where(begun, 0.0, changed["delivery_s"])
    for name in ("ttft_s", "first_content_s"):
        changed[name] = np.where(waiting, taken_s, requests.number(name))
    return replace(
        requests,
        numbers=with_columns(requests.numbers, changed),
        labels=with_columns(requests.labels, {"outcome": LabelColumn(codes, values)}),
    )


_BEFORE_DECODE: Final = ("frontend", "queue", "prefill")


def _unknown(values: FloatArray, where: BoolArray) -> FloatArray:
    return np.where(where, np.nan, values)
