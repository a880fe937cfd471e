"""Check the start and the end of a span."""

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.drop_reasons import Refusal
from collector.normalise.values import RefusalError, instant


def start_and_end(span: Span, now_unix_ns: int) -> tuple[int, int]:
    """The start and the end of a span in unix nanoseconds.

    Raises:
        RefusalError: the span ends before it starts, or a time is not plausible.
    """
    start_unix_ns = instant(span.start_time_unix_nano, now_unix_ns)
    if span.end_time_unix_nano < start_unix_ns:
        raise RefusalError(Refusal.ENDS_BEFORE_START)
    return start_unix_ns, instant(span.end_time_unix_nano, now_unix_ns)
