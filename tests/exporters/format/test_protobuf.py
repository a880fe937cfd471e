from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporters.definitions.series_types import LatencyHistogram
from exporters.format.histograms import Distributions, distribution
from exporters.format.negotiation import Format
from exporters.format.protobuf import GAP
from exporters.format.text import Scalars, write
from tests.exporters.format.prometheus_messages import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    native_counts,
    read,
)
from tests.exporters.format.test_text import COUNTER as ODD
from tests.exporters.format.test_text import SUMMARY, texts, values
from tests.exporters.one_by_one import cell_of, observe

TTFT = LatencyHistogram(
    "tailspan_ttft_seconds", "A latency.", "ttft_s", False, (0.01, 0.1, 1.0, 10.0)
)
CREATED_UNIX_S = 1_789_000_000.5


def _decoded(*of_each: list[float]) -> Any:
    """Return the decoded histograms of this number of replicas."""
    held = {}
    for replica, values_s in enumerate(of_each):
        held["llama", f"r{replica}"] = each = distribution(TTFT)
        for value_s in values_s:
            observe(each, value_s, ("ab" * 16, value_s, 1_790_000_000.25))
    [family] = read(Distributions(TTFT, held, CREATED_UNIX_S).protobuf())
    assert (family.name, family.help, family.type) == (TTFT.name, TTFT.help, HISTOGRAM)
    return [metric.histogram for metric in family.metric]


@given(
    st.lists(
        st.lists(st.one_of(st.floats(0, 100), st.just(0.0)), min_size=1, max_size=40),
        min_size=1,
        max_size=4,
    )
)
def test_each_histogram_is_complete(of_each: list[list[float]]) -> None:
    for histogram, values_s in zip(_decoded(*of_each), of_each, strict=True):
        assert histogram.sample_count == len(values_s)
        assert histogram.sample_sum == pytest.approx(sum(values_s))
        assert [bucket.upper_bound for bucket in histogram.bucket] == [*TTFT.bounds_s, np.inf]
        assert [bucket.cumulative_count for bucket in histogram.bucket] == [
            sum(value_s <= bound_s for value_s in values_s) for bound_s in (*TTFT.bounds_s, np.inf)
        ]
        assert histogram.schema == 3
        counts = native_counts(histogram)
        assert histogram.zero_count + sum(counts.values()) == len(values_s)
        assert histogram.zero_count == sum(v <= histogram.zero_threshold for v in values_s)
        for index, count in counts.items():
            low_s, high_s = 2 ** ((index - 1) / 8), 2 ** (index / 8)
            held = [value_s for value_s in values_s if low_s < value_s <= high_s]
            # The last bucket contains all values above the range.
            if high_s <= 16:
                assert count == len(held)


def test_values_with_a_long_gap_are_two_spans() -> None:
    [near] = _decoded([1.0, 2 ** ((GAP + 1) / 8)])
    assert [(span.offset, span.length) for span in near.positive_span] == [(0, GAP + 2)]
    assert list(near.positive_delta) == [1, -1, *[0] * (GAP - 1), 1]
    [far] = _decoded([1.0, 2 ** ((GAP + 2) / 8)])
    assert [(span.offset, span.length) for span in far.positive_span] == [(0, 1), (GAP + 1, 1)]
    assert list(far.positive_delta) == [1, 0]


def test_short_durations_alone_make_a_native_histogram() -> None:
    [histogram] = _decoded([0.0, 0.001])
    assert (histogram.zero_count, histogram.zero_threshold) == (2, 2**-7)
    assert not histogram.positive_span


def test_a_native_histogram_has_a_start_and_exemplars() -> None:
    """Prometheus uses the exemplars of buckets for the native histogram, too."""
    [histogram] = _decoded([0.5])
    assert histogram.created_timestamp.seconds + histogram.created_timestamp.nanos / 1e9 == (
        CREATED_UNIX_S
    )
    [exemplar] = [each.exemplar for each in histogram.bucket if each.HasField("exemplar")]
    [label] = exemplar.label
    assert (label.name, label.value, exemplar.value) == ("trace_id", "ab" * 16, 0.5)
    assert (exemplar.timestamp.seconds, exemplar.timestamp.nanos) == (1_790_000_000, 250_000_000)


@given(st.dictionaries(st.tuples(texts, texts), values, min_size=1, max_size=5))
def test_values_are_those_of_the_text(by_labels: dict[tuple[str, ...], float]) -> None:
    """An empty label equals a missing label. Quantiles are exported as gauges."""
    families = [Scalars(ODD, "counter", by_labels), Scalars(SUMMARY, "summary", by_labels)]
    text = write(families, Format.PLAIN).decode()
    expected = sorted(
        (sample.name, sorted(pair for pair in sample.labels.items() if pair[1]), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )
    exported = read(write(families, Format.PROTOBUF))
    assert [family.type for family in exported] == [COUNTER, GAUGE]
    found = sorted(
        (
            family.name,
            sorted((label.name, label.value) for label in metric.label),
            metric.counter.value if family.type == COUNTER else metric.gauge.value,
        )
        for family in exported
        for metric in family.metric
    )
    assert found == expected


@pytest.mark.parametrize("count", [0, 1, 127, 128, 16_383, 16_384, 2**31, 2**53 + 1])
def test_counts_of_any_size_arrive(count: int) -> None:
    held = distribution(TTFT)
    held.counts[cell_of(held.cells, 0.5)] = count
    held.counts[cell_of(held.cells, 5.0)] = 1
    [family] = read(Distributions(TTFT, {("", ""): held}, CREATED_UNIX_S).protobuf())
    [metric] = family.metric
    assert not metric.label
    assert metric.histogram.sample_count == count + 1
    assert sum(native_counts(metric.histogram).values()) == count + 1
