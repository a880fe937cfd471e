import random
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.evaluation.evaluator import Evaluator
from alerts.evaluation.group_slots import EVERY_S
from alerts.groups import OTHER
from alerts.objectives import Objective
from store.writer import Writer
from telemetry.in_flight import InFlightRequest
from telemetry.requests import RequestTimeline, Source
from tests.alerts.evaluation.group_counts import recounted, stored
from tests.alerts.grouped import own
from tests.alerts.in_flight import report_of

S = 10**9
STEP_S = 15
START_S = 1_790_000_010
TURNS = 75

Row = Callable[..., RequestTimeline]


def by_group(engine: Engine, objective: Objective, to_s: int) -> dict[str, EventCounts]:
    found = stored(engine, objective, START_S - STEP_S, to_s)
    return {group: counts for group, counts in found.items() if counts.events}


def test_a_hung_request_counts_in_its_group_and_its_row_in_its_place(
    engine: Engine, request_row: Row
) -> None:
    objective = own(reserved=["acme"])
    rows = [
        request_row(received_unix_ns=START_S * S, e2e_s=60.0, ttft_s=59.0, tenant=tenant)
        for tenant in ("acme", "globex", None)
    ]
    with Writer(engine) as writer:
        writer.submit([], [], in_flight=[report_of(row, 20) for row in rows]).result(10)
        Evaluator(engine, [objective]).evaluate(START_S + 60)
        expected = {"acme": EventCounts(1, 1), OTHER: EventCounts(2, 2)}
        assert by_group(engine, objective, START_S + 30) == expected
        ended = [replace(row, reported_in_flight_s=20.0) for row in rows]
        writer.submit(ended, []).result(10)
    assert by_group(engine, objective, START_S + 30) == {}
    assert by_group(engine, objective, START_S + 75) == expected


def test_a_group_that_gets_its_slot_before_the_row_counts_it_once(
    engine: Engine, request_row: Row
) -> None:
    objective = own(reserved=["vip"])
    hung = request_row(received_unix_ns=START_S * S, e2e_s=3000.0, ttft_s=2999.0, tenant="acme")
    evaluator = Evaluator(engine, [objective])
    with Writer(engine) as writer:
        writer.submit([], [], in_flight=[report_of(hung, 20)]).result(10)
        for at_s in range(START_S + 60, START_S + 1500, EVERY_S):
            evaluator.evaluate(at_s)
        assert by_group(engine, objective, START_S + 1500) == {OTHER: EventCounts(1, 1)}
        fast = request_row(received_unix_ns=(START_S + 1500) * S, ttft_s=0.1, tenant="acme")
        writer.submit([fast], []).result(10)
        for at_s in range(START_S + 1560, START_S + 2400, EVERY_S):
            evaluator.evaluate(at_s)
        found = by_group(engine, objective, START_S + 2400)
        assert found == {OTHER: EventCounts(1, 1), "acme": EventCounts(0, 1)}
        writer.submit([replace(hung, reported_in_flight_s=20.0)], []).result(10)
        for at_s in range(START_S + 3060, START_S + 4500, EVERY_S):
            evaluator.evaluate(at_s)
    assert by_group(engine, objective, START_S + 4500) == {"acme": EventCounts(1, 2)}


def test_groups_by_engine_count_a_request_when_it_ends(engine: Engine, request_row: Row) -> None:
    """The engine of a request is unknown until the request ends."""
    objective = own(by=["engine"], reserved=["0"])
    row = request_row(received_unix_ns=START_S * S, e2e_s=60.0, ttft_s=59.0, engine=0)
    with Writer(engine) as writer:
        writer.submit([], [], in_flight=[report_of(row, 20)]).result(10)
        Evaluator(engine, [objective]).evaluate(START_S + 60)
        assert by_group(engine, objective, START_S + 75) == {}
        writer.submit([replace(row, reported_in_flight_s=20.0)], []).result(10)
    assert by_group(engine, objective, START_S + 75) == {"0": EventCounts(1, 1)}


def test_kept_counts_agree_with_a_recount_and_sum_to_all(engine: Engine, request_row: Row) -> None:
    chance = random.Random(7)
    objective = own(reserved=["t0"])
    evaluator = Evaluator(engine, [objective])
    waiting: list[tuple[int, RequestTimeline | InFlightRequest]] = []
    bad = good = 0
    with Writer(engine) as writer:
        for turn in range(TURNS):
            now_s = START_S + turn * STEP_S
            for _ in range(3 if turn < TURNS - 45 else 0):
                e2e_s = chance.choice([6.0, 30.0, 200.0])
                slow = chance.random() < 0.6
                row = request_row(
                    received_unix_ns=now_s * S + chance.randrange(S),
                    e2e_s=e2e_s,
                    ttft_s=e2e_s if slow else 0.1,
                    tenant=f"t{chance.randrange(1 + turn // 8)}",
                    source=chance.choice([Source.SIMULATOR, Source.INSTRUMENTATION]),
                )
                bad, good = bad + slow, good + (not slow)
                before_s, age_s = None, 5.0
                while slow and age_s < e2e_s:
                    sent = report_of(row, age_s, before_s)
                    waiting.append((sent.seen_unix_ns // S + chance.choice([0, 1, 20]), sent))
                    before_s, age_s = age_s, age_s + 10.0
                if not slow or chance.random() < 0.8 or before_s is None:  # else the server died
                    row = replace(row, reported_in_flight_s=before_s)
                    waiting.append((now_s + int(e2e_s) + chance.choice([0, 40, 400]), row))
            due = [each for at_s, each in waiting if at_s <= now_s]
            waiting = [each for each in waiting if each[0] > now_s]
            rows = [each for each in due if isinstance(each, RequestTimeline)]
            reports = [each for each in due if isinstance(each, InFlightRequest)]
            writer.submit(rows, [], in_flight=reports).result(10)
            if turn % 3 == 0:
                evaluator.evaluate(now_s)
        assert not waiting
        end_s = START_S + TURNS * STEP_S
        for at_s in range(end_s, end_s + 1200, EVERY_S):
            evaluator.evaluate(at_s)
    found = by_group(engine, objective, end_s)
    total = sum(found.values(), EventCounts(0, 0))
    assert total == EventCounts(bad, bad + good)
    assert len(found) > 3
    # The stored group `other` contains only requests that were counted before their group got its
    # own counts. The recount has no group `other`.
    counted = recounted(engine, objective, START_S - STEP_S, end_s)
    again = {group: counts for group, counts in counted.items() if counts.events}
    assert sum(again.values(), EventCounts(0, 0)) == total
    assert found["t0"] == again["t0"]
    assert set(again) == set(found) - {OTHER}
