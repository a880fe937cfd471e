"""Find hung replicas from their newest samples: requests are in flight, but no step completes."""

from typing import Final

from sqlalchemy import Engine, select

from store.connections import reading
from store.schema import SAMPLES
from telemetry.engines import HUNG_S
from telemetry.hung_replicas import HungReplica, ReplicaProgress

RECENT_NS: Final = 30 * 10**9
"""Maximum age of a replica's newest sample. A replica with older samples is silent, not hung."""


def progress(engine: Engine, now_unix_ns: int) -> ReplicaProgress:
    """Return the replicas with a recent sample, and the replicas whose engine completed no step for
    `HUNG_S`.

    Requests in flight are summed over the front ends of a replica. A step counts if any front end
    reports it. If a replica has several engines, the longest time without a step of any engine is
    used.
    """
    at = SAMPLES.c.at_unix_ns
    columns = (
        SAMPLES.c.replica,
        SAMPLES.c.process,
        SAMPLES.c.engine,
        SAMPLES.c.in_flight,
        SAMPLES.c.oldest_request_age_s,
        SAMPLES.c.last_step_age_s,
        SAMPLES.c.model,
        SAMPLES.c.simulated,
    )
    statement = (
        select(*columns)
        .where(at > now_unix_ns - RECENT_NS, at <= now_unix_ns, SAMPLES.c.in_flight.is_not(None))
        .order_by(at)
    )
    with reading(engine) as connection:
        newest = {tuple(row[:3]): row for row in connection.execute(statement)}
    in_flight: dict[str, dict[int, int]] = {}
    oldest_s: dict[str, float] = {}
    steps: dict[str, dict[int, float]] = {}
    about: dict[str, tuple[str | None, bool]] = {}
    numbers: dict[str, set[int]] = {}
    for replica, process, number, count, age_s, step_age_s, model, simulated in newest.values():
        about[replica] = model, bool(simulated)
        numbers.setdefault(replica, set()).add(number)
        by_process = in_flight.setdefault(replica, {})
        by_process[process] = max(count, by_process.get(process, 0))
        oldest_s[replica] = max(age_s or 0.0, oldest_s.get(replica, 0.0))
        if step_age_s is not None:
            by_engine = steps.setdefault(replica, {})
            by_engine[number] = min(step_age_s, by_engine.get(number, step_age_s))
    hung = [
        HungReplica(
            replica,
            sum(in_flight[replica].values()),
            oldest_s[replica],
            max(ages.values()),
            *about[replica],
            _hung(ages) if len(numbers[replica]) > 1 else (),
        )
        for replica, ages in steps.items()
        if max(ages.values()) > HUNG_S
    ]
    return ReplicaProgress(frozenset(in_flight), tuple(sorted(hung)))


def _hung(ages: dict[int, float]) -> tuple[int, ...]:
    return tuple(sorted(number for number, age_s in ages.items() if age_s > HUNG_S))


def reported_since(engine: Engine, replica: str, since_unix_ns: int) -> bool:
    """Whether a replica has sent a sample since an instant."""
    statement = select(SAMPLES.c.at_unix_ns).where(
        SAMPLES.c.at_unix_ns > since_unix_ns, SAMPLES.c.replica == replica
    )
    with reading(engine) as connection:
        return connection.execute(statement.limit(1)).first() is not None
