"""A user's request counts once, in each order in which the rows of its servers arrive."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from analysis.counted_requests import CountedAs, read_counted_requests
from analysis.stats import StatsQuestion, answer_stats
from store.database import open_database
from telemetry.requests import Outcome, RequestTimeline
from telemetry.window import Window
from tests.store.conftest import put
from tests.store.joined.rows import START_NS, S
from tests.store.joined.test_user_requests import BOTH, STATED, pair, store_rows
from ui.views.fleet.read import read_fleet
from ui.views.requests.read import read_requests

WINDOW = Window(START_NS, START_NS + 600 * S)
NUMBER = 20


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")
    yield engine
    engine.dispose()


def rows_of(number: int = NUMBER) -> list[RequestTimeline]:
    return [row for each in range(number) for row in pair(each)]


def in_two_parts(
    engine: Engine, rows: Sequence[RequestTimeline], first: str, roles: dict[str, str]
) -> None:
    """Store the rows of one server before the rows of the other server."""
    store_rows(engine, [row for row in rows if row.replica == first], roles)
    put(engine, *(row for row in rows if row.replica != first))


@pytest.mark.parametrize("first", ["p", "d"])
@pytest.mark.parametrize("roles", [STATED, BOTH])
def test_statistics_count_each_request_once(
    engine: Engine, first: str, roles: dict[str, str]
) -> None:
    in_two_parts(engine, rows_of(), first, roles)
    for by in ((), ("tenant",)):
        found = answer_stats(engine, StatsQuestion(WINDOW, by=by))
        (group,) = found.groups
        assert (group["requests"], found.counted_as) == (NUMBER, CountedAs.JOINED)
        for name, value in (("ttft_s", 0.155), ("e2e_s", 0.520)):
            assert [group[name][each] for each in ("p50", "p99")] == pytest.approx([value] * 2)


def test_a_question_about_servers_counts_their_rows(engine: Engine) -> None:
    store_rows(engine, rows_of(), STATED)
    by_replica = answer_stats(engine, StatsQuestion(WINDOW, by=["replica"]))
    assert {each["replica"]: each["requests"] for each in by_replica.groups} == {
        "p": NUMBER,
        "d": NUMBER,
    }
    of_one = answer_stats(engine, StatsQuestion(WINDOW, equals={"replica": "d"}))
    (group,) = of_one.groups
    assert group["ttft_s"]["p50"] == pytest.approx(0.035)
    assert by_replica.counted_as == of_one.counted_as == CountedAs.ENGINE_ROWS


def test_a_failed_attempt_of_an_answered_request_is_no_failed_request(engine: Engine) -> None:
    first, second = pair(0)
    attempt = replace(
        first,
        span_id="e" * 16,
        received_unix_ns=first.received_unix_ns - 200_000_000,
        outcome=Outcome.ERROR,
    )
    failed, _ = pair(1, outcome=Outcome.ERROR)
    store_rows(engine, [attempt, first, second, failed], STATED)
    assert spans(engine) == [second.span_id, failed.span_id]
    assert spans(engine, outcome="error") == [failed.span_id]
    assert spans(engine, outcome="length", streamed="true") == [second.span_id]
    assert spans(engine, streamed="false") == [failed.span_id]


def spans(engine: Engine, **equals: str | None) -> list[Any]:
    found = read_counted_requests(engine, WINDOW, equals=equals, columns=["span_id"])
    assert found.table.column_names == ["span_id"]
    ids: list[Any] = found.table["span_id"].to_pylist()
    return ids


def test_requests_that_lost_their_ids_keep_their_own_times_and_are_counted(engine: Engine) -> None:
    lost = [replace(pair(1)[1], trace_id="e" * 32, request_id="cmpl-other-0")]
    store_rows(engine, [*pair(0), pair(1)[0], *lost], STATED)
    found = read_counted_requests(engine, WINDOW, columns=["ttft_s"])
    assert found.table["ttft_s"].to_pylist() == pytest.approx([0.155, 0.035])
    assert found.without_prefill == 1


def test_a_recomputed_prompt_is_still_one_request(engine: Engine) -> None:
    first, second = pair(0)
    again = replace(second, external_cached_tokens=0, cached_tokens=0)
    store_rows(engine, [first, again], STATED)
    found = read_counted_requests(engine, WINDOW, columns=["ttft_s"])
    assert found.table["ttft_s"].to_pylist() == pytest.approx([0.155])
    assert found.without_prefill == 0


def test_without_separate_servers_nothing_is_joined(engine: Engine) -> None:
    store_rows(engine, rows_of(), {})
    found = answer_stats(engine, StatsQuestion(WINDOW))
    assert (found.groups[0]["requests"], found.counted_as) == (2 * NUMBER, CountedAs.REQUESTS)


def test_pages_of_engine_rows_say_so(engine: Engine) -> None:
    store_rows(engine, rows_of(1), STATED)
    for found in (read_fleet(engine, WINDOW, {}), read_requests(engine, WINDOW, {})):
        (note,) = found.counting
        assert note.startswith("Engine rows")
    assert read_fleet(engine, Window(0, START_NS - 60 * S), {}).counting == []
