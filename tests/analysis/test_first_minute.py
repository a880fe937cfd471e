from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from analysis.first_minute import GIVE_UP_S, BackfillProgress, FirstMinute, backfill_progress
from store.alerting.incidents import store_evaluation
from store.writer import Writer
from telemetry.requests import RequestTimeline

NS = 10**9
FROM_S, TO_S = 1_763_634_000, 1_763_635_000
PAST = FirstMinute(FROM_S, TO_S, ["chat"])


@pytest.fixture
def store(engine: Engine, request_row: Callable[..., RequestTimeline]) -> Callable[[int], None]:
    def put(at_s: int) -> None:
        with Writer(engine) as writer:
            row = request_row(received_unix_ns=at_s * NS, trace_id=f"{at_s:032x}")
            writer.submit([row], []).result()

    return put


def test_the_share_is_that_of_the_past_up_to_the_newest_request(
    engine: Engine, store: Callable[[int], None]
) -> None:
    assert backfill_progress(engine, PAST, TO_S * NS) == BackfillProgress(1_000, 0.0)
    store(FROM_S + 250)
    assert backfill_progress(engine, PAST, TO_S * NS) == BackfillProgress(1_000, 0.25)
    store(TO_S + 5)
    assert backfill_progress(engine, PAST, (TO_S + 5) * NS) == BackfillProgress(1_000, 1.0)


def test_the_past_is_complete_when_it_is_evaluated(
    engine: Engine, store: Callable[[int], None]
) -> None:
    """An evaluation by an earlier run does not count: that run had other incidents."""
    store(TO_S - 1)
    store_evaluation(engine, "chat", FROM_S, [])
    assert backfill_progress(engine, PAST, TO_S * NS) is not None
    store_evaluation(engine, "chat", TO_S - 20, [])
    assert backfill_progress(engine, PAST, TO_S * NS) is None


def test_a_missing_past_is_not_waited_for_indefinitely(engine: Engine) -> None:
    """After the wait, the page shows that the past is missing."""
    assert backfill_progress(engine, PAST, (TO_S + GIVE_UP_S + 1) * NS) is None


def test_only_a_process_started_with_a_simulated_fleet_asks() -> None:
    """The environment variable contains the start and the end of the past."""
    assert FirstMinute.of({}, ["chat"]) is None
    assert FirstMinute.of({"TAILSPAN_SIMULATED_PAST": f"{FROM_S}/{TO_S}"}, ["chat"]) == PAST
