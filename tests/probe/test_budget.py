"""Tests that parallel probes, a restart or a fast clock cannot exceed the budget."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.budget import ProbeBudget, unpriced
from probe.errors import PlanError
from probe.plan import DailyLimits, Endpoint
from probe.prices import ProbeTokens, list_price

DAY = date(2026, 11, 23)


def a_cent_per_hundred(endpoint: Endpoint, tokens: ProbeTokens) -> float:
    return (tokens.prompt + tokens.output) / 10_000


def _budget(path: Path, limits: DailyLimits, day: date = DAY) -> ProbeBudget:
    return ProbeBudget(limits, a_cent_per_hundred, path, lambda: day)


def test_a_probe_that_may_not_fit_is_not_sent(tmp_path: Path, endpoint: Endpoint) -> None:
    with _budget(tmp_path / "spent", DailyLimits(tokens_per_day=250)) as budget:
        first, second = budget.reserve(endpoint, 100), budget.reserve(endpoint, 100)
        assert first is not None
        assert second is not None
        assert budget.reserve(endpoint, 100) is None
        budget.settle(first, endpoint, ProbeTokens(20, 4))
        assert budget.spent[0] == 24 + 116
        assert budget.reserve(endpoint, 90) is not None


def test_a_server_cannot_spend_the_budget_of_other_endpoints(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    with _budget(tmp_path / "spent", DailyLimits(tokens_per_day=250)) as budget:
        reserved = budget.reserve(endpoint, 100)
        assert reserved is not None
        budget.settle(reserved, endpoint, ProbeTokens(10**6, 1))
        tokens, usd = budget.spent
        assert tokens == 116
        assert usd == pytest.approx(0.0116)
        assert budget.reserve(endpoint, 100) is not None


def test_dollars_are_limited_too(tmp_path: Path, endpoint: Endpoint) -> None:
    with _budget(tmp_path / "spent", DailyLimits(usd_per_day=0.02)) as budget:
        assert budget.reserve(endpoint, 100) is not None  # $0.0116
        assert budget.reserve(endpoint, 100) is None


def test_the_budget_survives_a_restart_and_a_killed_probe(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    limits = DailyLimits(tokens_per_day=200)
    with _budget(tmp_path / "spent", limits) as budget:
        budget.reserve(endpoint, 100)
    with _budget(tmp_path / "spent", limits) as budget:
        tokens, usd = budget.spent
        assert tokens == 116
        assert usd == pytest.approx(0.0116)
        assert budget.reserve(endpoint, 100) is None


def test_a_new_day_has_a_new_budget_but_a_clock_set_back_does_not(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    limits = DailyLimits(tokens_per_day=200)
    for day, spent in ((DAY, 116), (date(2026, 11, 22), 116), (date(2026, 11, 24), 0)):
        with _budget(tmp_path / "spent", limits, day) as budget:
            if day == DAY:
                budget.reserve(endpoint, 100)
            assert budget.spent[0] == spent


def test_a_reservation_of_the_previous_day_is_not_returned(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    days = [DAY]
    with ProbeBudget(
        DailyLimits(tokens_per_day=500), a_cent_per_hundred, tmp_path / "spent", lambda: days[-1]
    ) as budget:
        old = budget.reserve(endpoint, 100)
        assert old is not None
        days.append(date(2026, 11, 24))
        assert budget.reserve(endpoint, 50) is not None
        budget.settle(old, endpoint, ProbeTokens(1, 1))
        budget.cancel(old)
        assert budget.spent[0] == 66


@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.booleans(), st.integers(0, 400), st.integers(0, 16)),
        max_size=30,
    )
)
def test_no_order_of_probes_exceeds_the_budget(
    probes: list[tuple[int, bool, int, int]],
) -> None:
    """A probe uses at most its reservation: the bytes of the request and max_tokens."""
    endpoint = Endpoint(
        name="a", kind="openai-chat", url="http://h", model="m", max_tokens=16, prompt_tokens=1
    )
    used, limits = 0, DailyLimits(tokens_per_day=1_000)
    import tempfile

    with (
        tempfile.TemporaryDirectory() as folder,
        _budget(Path(folder) / "spent", limits) as budget,
    ):
        for size, ends, prompt, output in probes:
            reserved = budget.reserve(endpoint, size)
            if reserved is None:
                continue
            used += min(prompt, size) + output
            if ends:
                budget.settle(reserved, endpoint, ProbeTokens(min(prompt, size), output))
        assert used <= 1_000
        assert used <= budget.spent[0] <= 1_000


def test_two_probers_do_not_share_a_budget(tmp_path: Path) -> None:
    limits = DailyLimits(tokens_per_day=1)
    with (
        _budget(tmp_path / "spent", limits),
        pytest.raises(PlanError, match="another tailspan probe spends this budget"),
    ):
        _budget(tmp_path / "spent", limits)


@pytest.mark.parametrize(
    "written",
    ["{", "[]", "{}", '{"day": "x", "tokens": 1, "usd": 1}', "\x00" * 300]
    + [f'{{"day": "2026-11-23", "tokens": {t}, "usd": {u}}}' for t, u in ((-1, 0), (1, "NaN"))],
)
def test_a_malformed_record_is_an_error_not_a_new_budget(written: str, tmp_path: Path) -> None:
    (tmp_path / "spent").write_text(written)
    with pytest.raises(PlanError, match="not a record of a spent budget; delete the file"):
        _budget(tmp_path / "spent", DailyLimits(tokens_per_day=1))


def test_an_unstorable_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match=r"the spent budget cannot be stored: .*; allowed: a path"):
        _budget(tmp_path / "file" / "spent", DailyLimits(tokens_per_day=1))


def test_list_prices_are_those_of_the_address(endpoint: Endpoint) -> None:
    """A self-hosted model has no list price, whatever its name."""
    at_openai = replace(endpoint, url="https://api.openai.com/v1", model="gpt-4o-mini")
    assert list_price(at_openai, ProbeTokens(1_000_000, 0)) == pytest.approx(0.15)
    assert list_price(replace(at_openai, url="http://10.0.0.1:8000"), ProbeTokens(1, 1)) is None
    assert list_price(replace(at_openai, model="no-such-model"), ProbeTokens(1, 1)) is None
    dollars_only = DailyLimits(usd_per_day=1.0)
    assert unpriced(endpoint, dollars_only, list_price)
    assert not unpriced(at_openai, dollars_only, list_price)
    assert not unpriced(endpoint, DailyLimits(1.0, 100), list_price)
