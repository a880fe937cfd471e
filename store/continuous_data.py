"""Find the time since which data has arrived without a long gap."""

from typing import Final

from sqlalchemy import Engine, func, select

from store.connections import reading
from store.schema import IN_FLIGHT, PROBES, REQUESTS, SAMPLES

_TELEMETRY: Final = (
    REQUESTS.c.received_unix_ns,
    SAMPLES.c.at_unix_ns,
    IN_FLIGHT.c.seen_unix_ns,
)
_PROBES: Final = (PROBES.c.at_unix_ns,)


def newest_data_unix_ns(engine: Engine, until_unix_ns: int, *, probes: bool = False) -> int | None:
    """The time of the newest data up to `until_unix_ns`, or None."""
    with reading(engine) as connection:
        found = [
            connection.scalar(select(func.max(at)).where(at <= until_unix_ns))
            for at in (_PROBES if probes else _TELEMETRY)
        ]
    return max((int(each) for each in found if each is not None), default=None)


def continuous_since_unix_ns(
    engine: Engine, until_unix_ns: int, max_gap_ns: int, *, probes: bool = False
) -> int:
    """The start of the data that ends at `until_unix_ns` and has no gap longer than `max_gap_ns`.
    Data is either probes, or requests, engine samples and requests in flight."""
    since_ns = until_unix_ns
    with reading(engine) as connection:
        while True:
            found = [
                connection.scalar(
                    select(func.min(at)).where(at >= since_ns - max_gap_ns, at < since_ns)
                )
                for at in (_PROBES if probes else _TELEMETRY)
            ]
            before = [int(each) for each in found if each is not None]
            if not before:
                return since_ns
            since_ns = min(before)
