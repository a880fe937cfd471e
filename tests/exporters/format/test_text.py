from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from exporters.definitions.series_types import LatencyHistogram, MetricSeries
from exporters.format.histogram_cells import cells
from exporters.format.histograms import Distributions, HistogramCounts
from exporters.format.negotiation import Format
from exporters.format.text import Families, Family, Scalars, write

OPENMETRICS: Any = parser  # the functions have no type annotations
WRITER: Any = exposition

COUNTER = MetricSeries("tailspan_odd_total", 'What\'s "odd" \\ here.', ("model", "outcome"))
GAUGE = MetricSeries("tailspan_even", "Without labels.")
SUMMARY = MetricSeries("tailspan_recent_seconds", "Quantiles.", ("model", "quantile"))
HISTOGRAM = LatencyHistogram(
    "tailspan_ttft_seconds", "A latency.", "ttft_s", False, (0.1, 1.0, 10.0)
)

values = st.one_of(st.integers(0, 2**53), st.floats(min_value=0, allow_infinity=False))
# The collector refuses lone surrogates, which neither format can contain.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=8)


class Given(Families):
    def __init__(self, *families: Family) -> None:
        self._families = families

    def families(self) -> Iterator[Family]:
        return iter(self._families)


def _samples(families: Any) -> list[tuple[Any, ...]]:
    return [
        (family.type, sample.name, sample.labels, sample.value, sample.exemplar)
        for family in families
        for sample in family.samples
    ]


def _given(by_labels: dict[tuple[str, ...], float], counts: list[int], sum_s: float) -> Given:
    exemplars = {1: ("ab" * 16, 0.5, 1_790_000_000.123)}
    of = cells(HISTOGRAM.bounds_s)
    held = HistogramCounts(of, of.none(), sum_s, exemplars)
    for place, count in zip(of.ends, counts, strict=True):
        held.counts[place] = count
    return Given(
        Scalars(COUNTER, "counter", by_labels),
        Scalars(GAUGE, "gauge", {(): sum_s}),
        Scalars(SUMMARY, "summary", {("llama", "0.5"): sum_s}),
        Distributions(HISTOGRAM, {("llama", "r1"): held}, 1_700_000_000.0),
    )


@given(
    st.dictionaries(st.tuples(texts, texts), values, min_size=1, max_size=5),
    st.lists(st.integers(0, 2**40), min_size=4, max_size=4),
    values,
)
def test_both_formats_equal_the_librarys(
    by_labels: dict[tuple[str, ...], float], counts: list[int], sum_s: float
) -> None:
    reported = _given(by_labels, counts, sum_s)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(reported)
    plain = write(reported.families(), Format.PLAIN).decode()
    library = generate_latest(registry).decode()
    assert _samples(text_string_to_metric_families(plain)) == _samples(
        text_string_to_metric_families(library)
    )
    text = write(reported.families(), Format.OPENMETRICS).decode()
    library = WRITER.generate_latest(registry).decode()
    assert _samples(OPENMETRICS.text_string_to_metric_families(text)) == _samples(
        OPENMETRICS.text_string_to_metric_families(library)
    )


def test_a_bucket_names_a_request_in_openmetrics_alone() -> None:
    """Prometheus' text format has no exemplars."""
    reported = _given({("llama", "stop"): 1}, [0, 1, 0, 0], 0.5)
    [exemplar] = [
        sample.exemplar
        for family in OPENMETRICS.text_string_to_metric_families(
            write(reported.families(), Format.OPENMETRICS).decode()
        )
        for sample in family.samples
        if sample.exemplar
    ]
    assert exemplar.labels == {"trace_id": "ab" * 16}
    assert (exemplar.value, float(exemplar.timestamp)) == (0.5, 1_790_000_000.123)
    assert b"trace_id" not in write(reported.families(), Format.PLAIN)


def test_the_number_of_series_is_that_of_the_lines() -> None:
    for family in _given({("llama", "stop"): 1, ("llama", "abort"): 0}, [0, 1, 0, 0], 1).families():
        lines = family.text(openmetrics=False).splitlines()
        assert family.series == sum(not line.startswith("#") for line in lines)
