from dataclasses import replace

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from collector.rows.engine_start_limits import (
    ALL_BURST,
    ALL_REFILL_NS,
    MAX_REMEMBERED,
    MAX_REPLICAS,
    REPLICA_BURST,
    REPLICA_REFILL_NS,
    EngineStartLimits,
)
from telemetry.starts import EngineStart

NOW_NS = 1_790_000_000 * 10**9
HOUR_NS = 3_600 * 10**9


def a_start(replica: str = "a", at_unix_ns: int = NOW_NS, engine: int = 0) -> EngineStart:
    return EngineStart(
        replica=replica,
        engine=engine,
        process=1,
        at_unix_ns=at_unix_ns,
        config="c0ffee",
        arguments="{}",
    )


def kept(limits: EngineStartLimits, *starts: EngineStart, at_ns: int = NOW_NS) -> list[EngineStart]:
    batch = NormalisedBatch(starts=list(starts), accepted=len(starts))
    limits(batch, at_ns)
    refused = batch.refused[Refusal.TOO_MANY_STARTS]
    assert batch.accepted + refused == len(starts)
    assert not refused or "at most" in batch.complaint
    return batch.starts


def test_starts_of_real_engines_are_accepted() -> None:
    """Repeated starts and starts with a new configuration are accepted, too."""
    limits = EngineStartLimits()
    starts = [a_start(f"replica-{number}", engine=number % 4) for number in range(1_000)]
    assert kept(limits, *starts) == starts
    assert kept(limits, starts[0], starts[0]) == [starts[0], starts[0]]
    changed = replace(starts[0], config="decade", at_unix_ns=NOW_NS + 1)
    assert kept(limits, changed) == [changed]
    restarted = replace(changed, at_unix_ns=NOW_NS + REPLICA_REFILL_NS + 1)
    assert kept(limits, restarted) == [restarted]


def test_a_repeat_at_another_instant_is_kept_once() -> None:
    """Real starts of one engine have more time between them."""
    limits = EngineStartLimits()
    assert len(kept(limits, *(a_start(at_unix_ns=NOW_NS + number) for number in range(1_000)))) == 1


def test_a_replica_has_so_many_at_once_and_more_with_time() -> None:
    limits = EngineStartLimits()
    assert len(kept(limits, *(a_start(engine=number) for number in range(1_000)))) == REPLICA_BURST
    later_ns = NOW_NS + 3 * REPLICA_REFILL_NS
    more = [a_start(engine=number) for number in range(2_000, 3_000)]
    assert len(kept(limits, *more, at_ns=later_ns)) == 3
    assert len(kept(limits, a_start("b"), at_ns=later_ns)) == 1


def test_new_replica_names_do_not_raise_the_limit() -> None:
    """60,000 invented replicas share one limit. An hour later, new replicas are accepted."""
    limits = EngineStartLimits()
    several = [a_start(f"made-up-{number}") for number in range(60_000)]
    assert len(kept(limits, *several)) == ALL_BURST
    assert len(limits._replicas) == MAX_REPLICAS
    real = [a_start(f"real-{number}") for number in range(1_000)]
    assert len(kept(limits, *real, at_ns=NOW_NS + HOUR_NS)) == HOUR_NS // ALL_REFILL_NS


def test_the_memory_per_replica_is_bounded() -> None:
    limits = EngineStartLimits()
    for number in range(2 * MAX_REMEMBERED):
        at_ns = NOW_NS + number * HOUR_NS
        assert kept(limits, a_start(engine=number, at_unix_ns=at_ns), at_ns=at_ns)
    assert len(limits._replicas["a"].last) == MAX_REMEMBERED


def test_a_clock_that_goes_back_does_not_change_the_quota() -> None:
    limits = EngineStartLimits()
    kept(limits, *(a_start(engine=number) for number in range(REPLICA_BURST)))
    assert kept(limits, a_start(engine=1_000), at_ns=NOW_NS - HOUR_NS) == []
    again_ns = NOW_NS - HOUR_NS + REPLICA_REFILL_NS
    assert len(kept(limits, a_start(engine=1_000), at_ns=again_ns)) == 1
