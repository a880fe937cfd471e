from telemetry.in_flight import InFlightRequest
from telemetry.requests import RequestTimeline

S = 10**9


def report_of(row: RequestTimeline, age_s: float, before_s: float | None = None) -> InFlightRequest:
    """Return the report about a request when it is `age_s` seconds old.

    Args:
        row: the finished request.
        before_s: the age at the previous report; None for the first report.
    """
    return InFlightRequest(
        span_id=row.span_id,
        trace_id=row.trace_id,
        received_unix_ns=row.received_unix_ns,
        seen_unix_ns=row.received_unix_ns + round(age_s * S),
        source=row.source,
        ttft_s=row.ttft_s if row.ttft_s is not None and row.ttft_s <= age_s else None,
        reported_in_flight_s=before_s,
        streamed=row.streamed,
        tenant=row.tenant,
    )
