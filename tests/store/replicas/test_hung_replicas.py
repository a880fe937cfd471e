from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from store.replicas.hung_replicas import RECENT_NS, progress
from telemetry.engines import HUNG_S, EngineSample
from telemetry.hung_replicas import HungReplica

Samples = Callable[..., EngineSample]
Write = Callable[..., None]
START_NS = 1_763_634_000_000_000_000
NOW_NS = START_NS + 100 * 10**9


def unfinished(number: int, step_age_s: float | None, in_flight: int = 12) -> dict[str, Any]:
    age_s = None if step_age_s is None else step_age_s + 5
    return {
        "number": number,
        "in_flight": in_flight,
        "oldest_request_age_s": age_s or 0.0,
        "last_step_age_s": step_age_s,
    }


def test_a_hung_replica_is_found(engine: Engine, write: Write, sample_row: Samples) -> None:
    write(
        *(sample_row(**unfinished(number, number - 4.0)) for number in (90, 95, 99)),
        sample_row(replica="steps", **unfinished(99, 0.2)),
        sample_row(replica="steps", **unfinished(80, 95.0)),
        sample_row(replica="at the limit", **unfinished(99, HUNG_S)),
        sample_row(replica="beyond the limit", **unfinished(99, HUNG_S + 0.5)),
        sample_row(replica="idle", **unfinished(99, None, 0)),
        sample_row(replica="does not report", number=99),
    )
    found = progress(engine, NOW_NS)
    assert found.replicas == 5
    assert found.hung == (
        HungReplica("a", 12, 100.0, 95.0),
        HungReplica("beyond the limit", 12, HUNG_S + 5.5, HUNG_S + 0.5),
    )


def test_a_silent_process_does_not_hang(engine: Engine, write: Write, sample_row: Samples) -> None:
    write(sample_row(**unfinished(0, 95.0)))
    assert progress(engine, START_NS + RECENT_NS - 1).hung
    assert progress(engine, START_NS + RECENT_NS).replicas == 0
    assert progress(engine, START_NS - 1).replicas == 0


def test_the_engines_that_hang_are_named(engine: Engine, write: Write, sample_row: Samples) -> None:
    write(
        sample_row(engine=0, **unfinished(99, 0.5)),
        sample_row(engine=1, **unfinished(99, 95.0)),
        sample_row(engine=2, **unfinished(99, None)),  # without requests
    )
    (hung,) = progress(engine, NOW_NS).hung
    assert hung.engines == (1,)
    assert hung.no_step_text == "its engine 1 has taken no step"
    assert hung._replace(engines=(0, 1)).no_step_text == "its engines 0, 1 have taken no step"


def test_front_ends_add_up(engine: Engine, write: Write, sample_row: Samples) -> None:
    """A front end reports the number of all its requests together with the data of each engine."""
    write(
        *(sample_row(process=1, engine=each, **unfinished(99, 95.0, 3)) for each in (0, 1)),
        sample_row(process=2, engine=0, **unfinished(99, 0.5, 4)),
    )
    (hung,) = progress(engine, NOW_NS).hung
    assert (hung.in_flight, hung.last_step_age_s) == (7, 95.0)
    write(sample_row(process=2, engine=1, **unfinished(99, 0.5, 4)))
    assert not progress(engine, NOW_NS).hung
