import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.bill import bill
from cost.uptime import uptime_of
from telemetry.billing_data import COEFFICIENTS, WORK, CounterKey, EngineCounterSpans
from tests.cost.making import NS, PRICES, accounts, busy, cells, engine_stretches, start, steady

HOUR_S = 3_600


def stretches(*senders: tuple[CounterKey, list[tuple[float, float | None]]]) -> EngineCounterSpans:
    """One stretch for each process, from (Unix seconds, total busy seconds)."""
    which = [place for place, (_, points) in enumerate(senders) for _ in points]
    at = np.array([round(at * NS) for _, points in senders for at, _ in points], np.int64)
    busy_s = np.array([np.nan if b is None else b for _, points in senders for _, b in points])
    nothing = np.full(at.size, np.nan)
    totals = {name: busy_s if name == "busy_s_total" else nothing for name in WORK}
    return EngineCounterSpans(
        counts=[count for count, _ in senders],
        regions=[None] * len(senders),
        which=np.array(which, np.int64),
        bucket_unix_s=at // NS // 60 * 60,
        first_unix_ns=at,
        last_unix_ns=at,
        first=totals,
        last=totals,
        coefficients=dict.fromkeys(COEFFICIENTS, nothing),
    )


def server(process: int, from_s: int, to_s: int, share: float | None, replica: str = "r"):  # type: ignore[no-untyped-def]  # as `stretches` takes it
    """A server that starts at `from_s` and is busy for this share of the time."""
    points = [(float(at), None if share is None else (at - from_s) * share)
            for at in range(from_s, to_s + 1)]  # fmt: skip
    return CounterKey(replica, 0, process, from_s * NS), points


@pytest.mark.parametrize("process", [1, 2])
def test_two_servers_with_one_name_are_each_billed_their_time(process: int) -> None:
    """Each is busy for 80 % of its time. In containers, process ids may be equal."""
    made = accounts(
        stretches(server(1, 0, 1_000, 0.8), server(process, 200, 1_000, 0.8)),
        cells({"replica": "r", "billed_s": 1_800 * 0.8}),
        [start("r")],
    )
    found = bill(made, PRICES)
    assert found.total is not None
    assert found.total.wall_s == pytest.approx(1_800)
    assert found.total.idle_usd == pytest.approx(0.2 * 1.8)
    assert found.total.unbilled_usd == pytest.approx(0, abs=1e-9)
    assert found.total.requests_usd < found.total.bill_usd
    assert found.engines == pytest.approx(1.8)


def test_api_servers_of_one_engine_add_no_time() -> None:
    """Only one of them sends the engine's totals."""
    points = uptime_of(stretches(server(1, 0, 600, 0.5), server(2, 0, 600, None)), 0, HOUR_S * NS)
    (hour,) = points.hours.values()
    assert hour.wall_s == pytest.approx(600)
    assert hour.busy_s == pytest.approx(300)


def test_a_server_that_starts_again_is_one_server() -> None:
    for process in (1, 2):
        points = uptime_of(
            stretches(server(1, 0, 500, 0.5), server(process, 530, 1_000, 0.5)), 0, HOUR_S * NS
        )
        (hour,) = points.hours.values()
        assert hour.wall_s == pytest.approx(1_000)
        assert points.up_s == pytest.approx(1_000)


def test_a_step_reported_at_its_end_was_busy_time_before_it() -> None:
    """A step of ten seconds ends at 30 s, 5 s after the window's start."""
    points: list[tuple[float, float | None]] = [
        (float(at), 0.0 if at < 30 else 10.0) for at in range(61)
    ]
    engines = stretches((CounterKey("r", 0, 1, 0), points))
    found = uptime_of(engines, 25 * NS, 60 * NS)
    (hour,) = found.hours.values()
    assert hour.wall_s == pytest.approx(35)
    assert hour.busy_s == pytest.approx(5)
    whole = uptime_of(engines, 0, 60 * NS)
    assert sum(each.busy_s or 0.0 for each in whole.hours.values()) == pytest.approx(10)
    assert whole.contradicted_s == 0


def test_busy_time_that_fits_nowhere_is_reported_and_not_billed() -> None:
    """Two senders with one start send totals of 1,000 s and 0 s in turn."""
    points: list[tuple[float, float | None]] = [
        (float(at), at * 0.5 + (1_000.0 if at % 2 else 0.0)) for at in range(301)
    ]
    made = accounts(stretches((CounterKey("r", 0, 1, 0), points)), cells(), [start("r")])
    found = bill(made, PRICES)
    assert found.total is not None
    assert found.total.idle_usd is not None
    assert found.total.idle_usd >= 0
    assert found.total.busy_s is not None
    assert found.total.busy_s <= found.total.wall_s
    assert found.uptime.contradicted_s > 1_000


senders = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.integers(0, 4_000),
        st.lists(st.tuples(st.floats(0.5, 90), st.floats(0, 120)), max_size=30),
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(senders, st.integers(0, 4_000), st.integers(60, 6_000))
def test_idle_time_is_never_below_zero_and_the_parts_sum_to_the_bill(
    drawn: list[tuple[int, int, list[tuple[float, float]]]], from_s: int, long_s: int
) -> None:
    """Exact to 1e-9, for any processes and step lengths."""
    points = []
    for process, began_s, samples in drawn:
        rows, at_s, total = [(float(began_s), 0.0)], float(began_s), 0.0
        for step_s, busy_s in samples:
            at_s, total = at_s + step_s, total + busy_s
            rows.append((at_s, total))
        points.append((CounterKey("r", 0, process, began_s * NS), rows))
    made = accounts(
        stretches(*points),  # type: ignore[arg-type]
        cells({"replica": "r", "billed_s": 100.0, "wasted_s": 1.0}),
        [start("r", at_unix_ns=200 * NS, loading_s=150.0)],
        from_s,
        from_s + long_s,
    )
    found = bill(made, PRICES)
    for line in found.lines:
        assert line.idle_usd is None or line.idle_usd >= 0
        assert line.loading_usd >= 0
        assert (line.busy_s or 0.0) <= line.wall_s - line.loading_usd / 0.001 + 1e-9
        parts = line.requests_usd + line.wasted_usd + (line.idle_usd or 0.0)
        parts += line.loading_usd + line.unbilled_usd
        assert parts == pytest.approx(line.bill_usd, rel=1e-9, abs=1e-9)


def test_loading_a_model_is_billed_and_named() -> None:
    """Five minutes pass until the engine is ready."""
    made = accounts(
        stretches(server(1, 300, 900, 0.5)),
        cells({"replica": "r", "billed_s": 300.0}),
        [start("r", at_unix_ns=300 * NS, loading_s=300.0)],
    )
    total = bill(made, PRICES).total
    assert total is not None
    assert total.wall_s == pytest.approx(900)
    assert total.loading_usd == pytest.approx(0.3)
    assert total.idle_usd == pytest.approx(0.3)
    assert total.requests_usd == pytest.approx(0.3)
    assert total.bill_usd == pytest.approx(0.9)


def test_an_engine_that_is_still_loading_at_the_end_of_the_window_is_billed() -> None:
    """It has no sample yet."""
    made = accounts(stretches(), cells(), [start("r", at_unix_ns=4_000 * NS, loading_s=1_000.0)])
    total = bill(made, PRICES).total
    assert total is not None
    assert total.loading_usd == total.bill_usd == pytest.approx(0.6)
    assert total.idle_usd == 0


def test_loading_while_another_process_of_the_name_serves_is_not_billed() -> None:
    """The old server runs until the new one is ready, on one known machine."""
    made = accounts(
        stretches(server(1, 0, 400, 0.5), server(2, 300, 900, 0.5)),
        cells(),
        [start("r", at_unix_ns=300 * NS, loading_s=200.0)],
    )
    total = bill(made, PRICES).total
    assert total is not None
    assert total.loading_usd == 0


def test_a_pod_that_replaces_another_is_not_counted_twice() -> None:
    day = 24 * HOUR_S
    one = bill(steady({"pod-a": (0, day)}, 0, day), PRICES)
    rolled = bill(steady({"pod-a": (0, day // 2), "pod-b": (day // 2, day)}, 0, day), PRICES)
    assert rolled.total is not None
    assert one.total is not None
    assert rolled.total.bill_usd == pytest.approx(one.total.bill_usd, rel=1e-9)
    assert rolled.engines == pytest.approx(1.0)
    assert rolled.usd_per_hour == pytest.approx(one.usd_per_hour, rel=1e-9)
    assert one.usd_per_hour == pytest.approx(3.6)


def test_engines_that_are_up_together_are_added() -> None:
    made = accounts(
        engine_stretches({("a", 0): busy(0, 1_000, 0.1), ("b", 0): busy(500, 1_000, 0.1)}),
        cells(),
        [start("a"), start("b")],
    )
    found = bill(made, PRICES)
    assert found.engines == pytest.approx(1.5)
    assert found.usd_per_hour == pytest.approx(5.4)


def test_many_restarts_of_a_sender_take_linear_time() -> None:
    """4,000 process ids have 8,000 starts."""
    number = 8_000
    points: list[tuple[CounterKey, list[tuple[float, float | None]]]] = [
        (
            CounterKey("r", 0, place // 2, place),
            [(float(place % 3_000), 0.0), (place % 3_000 + 9.0, 1.0)],
        )
        for place in range(number)
    ]
    begun = time.monotonic()
    found = uptime_of(stretches(*points), 0, HOUR_S * NS)
    assert time.monotonic() - begun < 60
    ((_, hour),) = found.hours.items()
    assert (hour.busy_s or 0.0) <= hour.wall_s
    assert found.up_s == pytest.approx(3_008)


def test_first_samples_without_a_total_lose_no_busy_time() -> None:
    """A server may send a sample before its engine has reported."""
    count = CounterKey("r", 0, 1, 0)
    points = [(0.004, None), (2.05, 0.05), (8.1, 6.1)]
    found = uptime_of(stretches((count, points)), 0, HOUR_S * NS)
    ((_, hour),) = found.hours.items()
    assert hour.busy_s == pytest.approx(6.1)
    assert found.contradicted_s == 0
