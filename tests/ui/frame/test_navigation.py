"""Tests of a reader's choice that reaches the server together with an outdated address."""

from typing import Any

from tests.ui.opening import Database, Open, address

START_S = 1_763_600_000
RANGE = {"page": "requests", "from": str(START_S), "to": str(START_S + 1_200)}


def test_a_choice_before_the_answer_to_the_previous_one_is_kept(
    page: Open, database: Database, incident: Any
) -> None:
    test = page(database(incident(START_S * 10**9)), tenant="acme", replica="r1", **RANGE)
    before = dict(test.query_params)
    test.button("chip_tenant").click().run()
    assert address(test) == {**RANGE, "replica": "r1"}
    test.query_params.clear()
    test.query_params.update(before)
    test.button("chip_replica").click().run()
    assert address(test) == RANGE


def test_back_is_no_choice(page: Open, database: Database, incident: Any) -> None:
    test = page(database(incident(START_S * 10**9)), tenant="acme", replica="r1", **RANGE)
    before = dict(test.query_params)
    test.button("chip_tenant").click().run()
    test.query_params.clear()
    test.query_params.update(before)
    test.run()
    assert address(test) == {**RANGE, "tenant": "acme", "replica": "r1"}
