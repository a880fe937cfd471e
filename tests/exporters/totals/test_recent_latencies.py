from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.definitions.series import RECENT
from exporters.prometheus import PrometheusExporter
from exporters.totals.label_limits import ExporterLabels
from exporters.totals.recent_latencies import SLICES, RecentLatencies, SlidingCounts
from exporters.totals.request_batch import RequestBatch
from telemetry.quantiles import quantile
from telemetry.request_rows import RequestRows
from telemetry.requests import Outcome, RequestTimeline

Row = Callable[..., RequestTimeline]
PAIR = {"model": "llama", "replica": "r1"}
MODEL = {"model": "llama"}


def _quantile(exporter: PrometheusExporter, name: str, q: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, {**labels, "quantile": q})


def _ended(clock: Any, **about: Any) -> dict[str, Any]:
    return {"received_unix_ns": clock.unix_ns - 10**9, "e2e_s": 1.0, **about}


def test_quantiles_are_exact(exporter: PrometheusExporter, request_row: Row, clock: Any) -> None:
    values = np.random.default_rng(7).lognormal(-1, 1, 500)
    exporter.on_stored([request_row(**_ended(clock, ttft_s=float(v))) for v in values], [])
    for label, q in (("0.5", 0.5), ("0.95", 0.95), ("0.99", 0.99)):
        exact = quantile(values, q)
        assert exact is not None
        for name, labels in (
            ("tailspan_recent_ttft_seconds", PAIR),
            ("tailspan_recent_model_ttft_seconds", MODEL),
        ):
            assert _quantile(exporter, name, label, **labels) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(("q", "enough"), [("0.5", 8), ("0.95", 73), ("0.99", 381)])
def test_too_few_requests_have_no_quantile(
    exporter: PrometheusExporter, request_row: Row, clock: Any, q: str, enough: int
) -> None:
    exporter.on_stored([request_row(**_ended(clock)) for _ in range(enough - 1)], [])
    assert _quantile(exporter, "tailspan_recent_ttft_seconds", q, **PAIR) is None
    assert _quantile(exporter, "tailspan_recent_model_ttft_seconds", q, **MODEL) is None
    exporter.on_stored([request_row(**_ended(clock, replica="r2"))], [])
    assert _quantile(exporter, "tailspan_recent_ttft_seconds", q, **PAIR) is None
    reported = _quantile(exporter, "tailspan_recent_model_ttft_seconds", q, **MODEL)
    assert reported == pytest.approx(0.51, rel=0.01)


def test_the_window_slides(exporter: PrometheusExporter, request_row: Row, clock: Any) -> None:
    slow = [request_row(**_ended(clock, queue_s=9.0)) for _ in range(10)]
    exporter.on_stored(slow, [])
    clock.advance(200)
    exporter.on_stored([request_row(**_ended(clock, queue_s=0.1)) for _ in range(9)], [])
    name = "tailspan_recent_queue_seconds"
    assert _quantile(exporter, name, "0.5", **PAIR) == pytest.approx(9, rel=0.01)
    clock.advance(100)
    assert _quantile(exporter, name, "0.5", **PAIR) == pytest.approx(0.1, rel=0.01)
    clock.advance(200)
    assert _quantile(exporter, name, "0.5", **PAIR) is None
    reported = [family.name for family in exporter.collect()]
    assert not [name for name in reported if name.startswith("tailspan_recent")]


def test_old_requests_do_not_count(
    exporter: PrometheusExporter, request_row: Row, clock: Any
) -> None:
    hour_ns = 3600 * 10**9
    old = [request_row(received_unix_ns=clock.unix_ns - hour_ns) for _ in range(20)]
    ahead = [request_row(received_unix_ns=clock.unix_ns + hour_ns) for _ in range(20)]
    exporter.on_stored(old, [])
    assert _quantile(exporter, "tailspan_recent_e2e_seconds", "0.5", **PAIR) is None
    exporter.on_stored(ahead, [])
    assert _quantile(exporter, "tailspan_recent_e2e_seconds", "0.5", **PAIR) is not None
    clock.advance(300)
    assert _quantile(exporter, "tailspan_recent_e2e_seconds", "0.5", **PAIR) is None


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"streamed": False}, {"tpot", "itl_max", "e2e", "queue"}),
        ({"streamed": None}, {"ttft", "tpot", "itl_max", "e2e", "queue"}),
        ({"outcome": Outcome.ABORT}, {"ttft", "tpot", "itl_max", "queue"}),
        ({"outcome": Outcome.REJECTED}, set()),
        ({"output_tokens": 1, "itl_max_s": None}, {"ttft", "e2e", "queue"}),
        ({"queue_s": -1.0, "ttft_s": float("nan")}, {"tpot", "itl_max", "e2e"}),
    ],
)
def test_only_valid_latencies_count(
    exporter: PrometheusExporter,
    request_row: Row,
    clock: Any,
    about: dict[str, Any],
    expected: set[str],
) -> None:
    """An unstreamed response has its first byte at its end. An aborted request is not fast."""
    exporter.on_stored([request_row(**_ended(clock, **about)) for _ in range(10)], [])
    names = {each.name for each in RECENT}
    found = {family.name for family in exporter.collect()} & names
    assert found == {f"tailspan_recent_{stem}_seconds" for stem in expected}


def test_hostile_labels_make_a_bounded_number_of_windows(clock: Any, request_row: Row) -> None:
    exporter = PrometheusExporter(clock_unix_ns=clock, labels=ExporterLabels(limit=3))
    exporter.on_stored([request_row(**_ended(clock, model=f"m{n}")) for n in range(500)], [])
    name = "tailspan_recent_model_ttft_seconds"
    families = {family.name: family for family in exporter.collect()}
    assert {sample.labels["model"] for sample in families[name].samples} == {"other"}
    assert len(exporter._latencies._by_model) == 4


def test_windows_are_dropped_without_scrapes(clock: Any, request_row: Row) -> None:
    recent = RecentLatencies()
    for n in range(50):
        clock.advance(400)
        rows = RequestRows.of([request_row(replica=f"r{n}", **_ended(clock))])
        recent.add(RequestBatch.under(rows, ExporterLabels(), clock.unix_ns))
        assert len(recent._by_pair) <= 2


@given(
    st.lists(st.tuples(st.integers(-40, 2), st.integers(-3, 3), st.integers(0, 12)), max_size=60)
)
def test_a_window_is_the_sum_of_its_slices(events: list[tuple[int, int, int]]) -> None:
    window, now, held = SlidingCounts(), 1_000, []
    for offset, bin_, passed in events:
        now += passed
        oldest = now - SLICES + 1
        window.slide(oldest)
        if oldest <= now + min(0, offset):
            window.add(np.array([bin_], np.int16), now + min(0, offset))
            held.append((now + min(0, offset), bin_))
        expected: dict[int, int] = {}
        for slice_, each in held:
            if slice_ >= oldest:
                expected[each] = expected.get(each, 0) + 1
        assert window.copy().numbers == expected


def test_a_slice_of_many_requests_has_the_same_counts_in_less_memory() -> None:
    window, bins = SlidingCounts(), np.random.default_rng(7).integers(-300, 300, 9_000)
    for part in np.split(bins.astype(np.int16), [3, 900, 1_100, 5_000]):
        window.add(part, 1)
    window.add(np.array([7], np.int16), 2)
    values = {each: int(np.count_nonzero(bins == each)) for each in set(bins.tolist())}
    assert window.copy().numbers == {**values, 7: values[7] + 1}
    window.slide(2)
    assert window.copy().numbers == {7: 1}
    assert window.copy() == ([7], {7: 1})


def test_a_scrape_is_consistent(exporter: PrometheusExporter, request_row: Row, clock: Any) -> None:
    exporter.on_stored([request_row(**_ended(clock)) for _ in range(8)], [])
    families = exporter.collect()
    first = next(families)
    exporter.on_stored([request_row(**_ended(clock, queue_s=50.0)) for _ in range(99)], [])
    exported = {family.name: family for family in [first, *families]}
    (sample,) = exported["tailspan_recent_queue_seconds"].samples
    assert sample.value == pytest.approx(0.2, rel=0.01)


def test_future_counts_are_left(exporter: PrometheusExporter, request_row: Row, clock: Any) -> None:
    clock.advance(8 * 86_400)
    ahead = [request_row(**_ended(clock, ttft_s=9.0, e2e_s=10.0)) for _ in range(400)]
    exporter.on_stored(ahead, [])
    assert _quantile(exporter, "tailspan_recent_ttft_seconds", "0.5", **PAIR) is not None
    clock.advance(-8 * 86_400)
    assert _quantile(exporter, "tailspan_recent_ttft_seconds", "0.5", **PAIR) is None
