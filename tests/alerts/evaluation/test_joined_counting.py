"""A joined request counts once, with the user's latencies."""

import pytest
from sqlalchemy import Engine

from alerts.evaluation.counting import count_requests, counts_between, store_tally
from alerts.expression import parse
from alerts.fields import GOOD, WHERE
from alerts.objectives import Goodput
from tests.store.joined.rows import START_NS, S
from tests.store.joined.test_user_requests import BOTH, STATED, pair, store_rows

START_S = START_NS // S
NUMBER = 50


@pytest.mark.parametrize("roles", [STATED, BOTH])
def test_each_request_counts_once_with_the_sum_of_its_waits(
    engine: Engine, roles: dict[str, str]
) -> None:
    store_rows(engine, [row for number in range(NUMBER) for row in pair(number)], roles)
    for good, bad in (
        ("ttft_s <= 0.12", NUMBER),  # 100 ms at the prefill server, 35 ms at the decode server
        ("ttft_s <= 0.2", 0),
        ("e2e_s <= 0.5", NUMBER),  # 400 ms at the decode server
        ("tpot_s <= 0.05", 0),
    ):
        goodput = Goodput(None, parse(good, GOOD))
        found = count_requests(engine, goodput, START_S - 15, START_S + 600, 15)
        assert sum(each.good + each.bad for each in found) == NUMBER, good
        assert sum(each.bad for each in found) == bad, good
    steps = [
        count
        for from_s in range(START_S - 15, START_S + 600, 15)
        for count in count_requests(engine, goodput, from_s, from_s + 15, 15)
    ]
    assert sorted(steps, key=str) == sorted(found, key=str), "each request is in one step"
    store_tally(engine, goodput, START_S + 2_000)
    whole = counts_between(engine, goodput, START_S - 15, START_S + 600)
    assert (whole.bad, whole.events) == (0, NUMBER)


def test_the_labels_are_those_of_the_decode_server(engine: Engine) -> None:
    store_rows(engine, [row for number in range(NUMBER) for row in pair(number)], STATED)
    good = parse("ttft_s <= 0.2", GOOD)
    counted = {
        replica: sum(
            each.good
            for each in count_requests(
                engine,
                Goodput(parse(f"replica == '{replica}'", WHERE), good),
                START_S - 15,
                START_S + 600,
                15,
            )
        )
        for replica in ("p", "d")
    }
    assert counted == {"p": 0, "d": NUMBER}
