"""Measure the time of each operation of an application before and after a call to a model. Pure.

Only spans of the calling process are used. At each instant, the time belongs to the innermost
operation that runs. If several operations run in parallel, the time belongs to the operation that
began last. `other` is the time in which only an agent or a workflow runs, and the time between
operations.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from telemetry.application_operations import MAX_PER_TRACE, ApplicationOperation, Operation


@dataclass(frozen=True, slots=True)
class TimeAroundCall:
    """For each operation, the nanoseconds before and after a call."""

    before_ns: Mapping[Operation, int]
    after_ns: Mapping[Operation, int]


def time_around_call(span_id: str, trace: Sequence[ApplicationOperation]) -> TimeAroundCall | None:
    """Return the time that the application spent before and after one call to a model.

    The time before the call begins at the first operation of the trace, or at the end of the
    previous call. The time after the call ends with the last operation. If the trace has a later
    call, the time after the call is empty.

    Args:
        span_id: the id of the client's span of the call.
        trace: all operations of the trace, in any order.

    Returns:
        The time of each operation. It is None if the trace lacks the span of the call or has only
        calls. It is also None if the trace has so many operations that some were not stored.
    """
    spans = {each.span_id: _Span.of(each) for each in trace}
    call = spans.pop(span_id, None)
    if call is None or len(spans) + 1 >= MAX_PER_TRACE:
        return None
    mine = [each for each in spans.values() if each.process == call.process and not each.is_router]
    if all(each.operation is Operation.CALL for each in mine):
        return None
    calls = [each for each in mine if each.operation is Operation.CALL]
    earlier = max((each.end_ns for each in calls if each.end_ns <= call.start_ns), default=0)
    earliest = min((each.start_ns for each in mine if each.end_ns > earlier), default=call.start_ns)
    before = _divide_range(mine, max(earlier, earliest), call.start_ns)
    if any(each.start_ns >= call.end_ns for each in calls):
        return TimeAroundCall(before, {})
    latest = max(each.end_ns for each in mine)
    return TimeAroundCall(before, _divide_range(mine, call.end_ns, latest))


@dataclass(frozen=True, slots=True)
class _Span:
    operation: Operation
    start_ns: int
    end_ns: int
    process: str

    @property
    def is_router(self) -> bool:
        return self.operation is Operation.ROUTER

    @classmethod
    def of(cls, each: ApplicationOperation) -> "_Span":
        start_ns = each.sent_unix_ns
        return cls(each.operation, start_ns, start_ns + round(each.length_s * 1e9), each.process)


def _divide_range(spans: Sequence[_Span], from_ns: int, to_ns: int) -> dict[Operation, int]:
    inside = sorted(
        (each for each in spans if each.start_ns < to_ns and each.end_ns > from_ns),
        key=lambda each: each.start_ns,
    )
    cuts = {from_ns, to_ns}
    for each in inside:
        cuts |= {max(from_ns, each.start_ns), min(to_ns, each.end_ns)}
    found: dict[Operation, int] = {}
    running: list[tuple[bool, int, int, Operation]] = []
    place = 0
    for start_ns, end_ns in pairwise(sorted(cuts) if from_ns < to_ns else ()):
        while place < len(inside) and inside[place].start_ns <= start_ns:
            each = inside[place]
            encloses = each.operation is Operation.ENCLOSING
            heapq.heappush(running, (encloses, -each.start_ns, each.end_ns, each.operation))
            place += 1
        while running and running[0][2] <= start_ns:
            heapq.heappop(running)
        on_top = running[0][3] if running else Operation.OTHER
        operation = Operation.OTHER if on_top is Operation.ENCLOSING else on_top
        found[operation] = found.get(operation, 0) + end_ns - start_ns
    return found
