from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.explanation import ExplanationVerdict
from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.requests import FloatArray, Requests
from diagnosis.question import Metric
from tests.diagnosis.making import (
    ALPHA_S,
    REPLICAS,
    WINDOW,
    S,
    asked,
    at_replica,
    busier,
    labels,
    later,
    quiet,
    sampled_each_second,
    shares,
    summed,
)


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("seed", range(4))
def test_two_ordinary_ranges_have_no_cause(metric: Metric, seed: int) -> None:
    assert asked(quiet(seed=seed), metric).verdict is ExplanationVerdict.NO_INCIDENT


@pytest.mark.parametrize(
    ("times_the_slowest", "steps", "verdict"),
    [
        (2.0, 1, ExplanationVerdict.NO_INCIDENT),
        (2.0, 4, ExplanationVerdict.NO_INCIDENT),
        (2.0, 12, ExplanationVerdict.INCIDENT),
        (4.0, 1, ExplanationVerdict.INCIDENT),
    ],
)
def test_requests_delayed_by_the_same_step_are_one_event(
    times_the_slowest: float, steps: int, verdict: ExplanationVerdict
) -> None:
    """In one minute of the window, long steps delay 40 requests at once."""
    requests = quiet()
    gaps_s = requests.numbers["itl_max_s"].copy()
    in_window = requests.received_unix_ns >= WINDOW.from_unix_ns
    delayed = np.flatnonzero(requests.received_unix_ns >= WINDOW.from_unix_ns + 301 * S)[:40]
    factors = times_the_slowest + 0.01 * (np.arange(delayed.size) % steps)
    gaps_s[delayed] = gaps_s[~in_window].max() * factors
    delayed_requests = replace(requests, numbers={**requests.numbers, "itl_max_s": gaps_s})
    assert asked(delayed_requests, Metric.ITL_MAX).verdict is verdict


def test_too_few_requests_are_reported_with_the_number_needed() -> None:
    answer = asked(quiet(40))
    assert answer.verdict is ExplanationVerdict.INSUFFICIENT_DATA
    assert answer.requests < answer.needed == 30
    assert not answer.causes


def test_an_empty_store_is_insufficient_data() -> None:
    assert (
        asked(Requests(np.zeros(0, dtype=np.int64))).verdict is ExplanationVerdict.INSUFFICIENT_DATA
    )


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), metric=st.sampled_from(list(Metric)))
def test_the_parts_growth_sums_to_the_gap(seed: int, metric: Metric) -> None:
    answer = asked(later(quiet(3_000, seed), queue_kv_s=0.3, decode_stall_s=0.2), metric)
    assert answer.excess_s is not None
    assert sum(part.excess_s for part in answer.parts) == pytest.approx(answer.excess_s, abs=1e-9)


@pytest.mark.parametrize("factor", [0.1, 1e3])
def test_scaling_all_times_scales_all_excesses(factor: float) -> None:
    """A fleet that is a thousand times slower has the same causes and shares."""
    requests = later(quiet(), queue_kv_s=lambda s: s + 0.4, frontend_s=lambda s: s + 0.2)
    scaled = summed(
        replace(
            requests,
            numbers={
                name: values * factor if name.endswith("_s") else values
                for name, values in requests.numbers.items()
            },
        )
    )
    # `summed` adds an unscaled millisecond of delivery to TTFT, so the test compares the queue's
    # latency.
    plain, large = asked(requests, Metric.QUEUE), asked(scaled, Metric.QUEUE)
    assert large.excess_s == pytest.approx((plain.excess_s or 0) * factor)
    assert [cause.id for cause in plain.causes] == [cause.id for cause in large.causes]
    assert [cause.share for cause in plain.causes] == pytest.approx(
        [cause.share for cause in large.causes]
    )


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_labels_are_no_finding(seed: int) -> None:
    draw = np.random.default_rng(seed)
    requests = quiet(seed=seed)
    names = [f"t{number}" for number in draw.integers(0, 12, len(requests))]
    slow = (requests.received_unix_ns >= 900 * S) & (draw.random(len(requests)) < 0.05)
    requests = summed(
        replace(
            requests,
            numbers={
                **requests.numbers,
                "queue_kv_s": np.where(slow, 1.0, 0.0),
                # Prompt and output lengths are compared like labels, so all requests get equal
                # lengths.
                "prompt_tokens": np.full(len(requests), 100.0),
                "output_tokens": np.full(len(requests), 10.0),
            },
            labels={**requests.labels, "tenant": labels(names)},
        )
    )
    answer = asked(requests, Metric.QUEUE)
    assert answer.verdict is ExplanationVerdict.INCIDENT
    assert answer.dimensions_tested > 12
    assert not answer.dimensions


def test_the_affected_kind_is_named_with_its_risk() -> None:
    requests = quiet()
    on_r1 = requests.label("replica").is_value("r1")
    now = requests.received_unix_ns >= 900 * S
    draw = np.random.default_rng(1)
    queued = np.where(on_r1 & now & (draw.random(len(requests)) < 0.2), 2.0, 0.0)
    requests = summed(replace(requests, numbers={**requests.numbers, "queue_kv_s": queued}))
    first = asked(requests).dimensions[0]
    assert (first.dimension, first.value) == ("replica", "r1")
    assert first.low > 5


@pytest.mark.parametrize(
    ("changed", "metric", "cause"),
    [
        ({"queue_kv_s": 0.5}, Metric.TTFT, "kv_cache_exhausted"),
        ({"frontend_s": 0.5}, Metric.TTFT, "frontend_cpu"),
        ({"delivery_s": 30.0}, Metric.E2E, "network_or_client"),
        ({"decode_preempted_s": 30.0}, Metric.E2E, "preemption"),
        ({"decode_stall_s": 9.0}, Metric.TPOT, "engine_stall"),
        ({"decode_others_decode_s": lambda s: s + 9.0}, Metric.TPOT, "decode_batch_growth"),
    ],
)
def test_a_part_that_grows_alone_indicates_the_cause(
    changed: dict[str, object], metric: Metric, cause: str
) -> None:
    answer = asked(later(quiet(), **changed), metric)
    assert answer.verdict is ExplanationVerdict.INCIDENT
    assert answer.causes[0].id == cause
    assert answer.causes[0].share > 0.85


def test_longer_prompts_are_distinguished_from_a_slower_machine() -> None:
    requests = quiet()
    now = requests.received_unix_ns >= 900 * S
    prompt = np.where(now, requests.number("prompt_tokens") * 4, requests.number("prompt_tokens"))
    uncached = prompt - requests.number("cached_tokens")
    requests = summed(
        replace(
            requests,
            numbers={
                **requests.numbers,
                "prompt_tokens": prompt,
                "prefill_own_s": 0.005 + ALPHA_S * uncached,
            },
        )
    )
    first = asked(requests).causes[0]
    assert (first.id, first.share > 0.9) == ("longer_prompts", True)


def test_misses_are_distinguished_from_longer_prompts() -> None:
    draw = np.random.default_rng(0)
    requests = quiet()
    prompt = requests.number("prompt_tokens")
    before = requests.received_unix_ns < 900 * S
    cached = np.where(before & (draw.random(len(requests)) < 1.0), prompt * 0.8, 0.0)
    requests = summed(
        replace(
            requests,
            numbers={
                **requests.numbers,
                "cached_tokens": cached,
                "prefill_own_s": 0.005 + ALPHA_S * (prompt - cached),
            },
        )
    )
    first = asked(requests).causes[0]
    assert (first.id, first.share > 0.9) == ("prefix_cache_miss", True)


def test_longer_answers_are_distinguished_from_slower_tokens() -> None:
    requests = quiet()
    now = requests.received_unix_ns >= 900 * S
    times = np.where(now, 4.0, 1.0)
    columns = dict(requests.numbers)
    columns["output_tokens"] = (columns["output_tokens"] - 1) * times + 1
    for name in columns:
        if name.startswith("decode_") and name != "decode_s":
            columns[name] = columns[name] * times
    answer = asked(summed(replace(requests, numbers=columns)), Metric.E2E)
    assert answer.causes[0].id == "longer_outputs"
    assert answer.causes[0].share > 0.9
    assert asked(summed(replace(requests, numbers=columns)), Metric.TPOT).verdict is (
        ExplanationVerdict.NO_INCIDENT
    )


def test_two_causes_are_both_named() -> None:
    answer = asked(later(quiet(), queue_kv_s=0.6, frontend_s=0.3))
    assert [cause.id for cause in answer.causes] == ["kv_cache_exhausted", "frontend_cpu"]
    shares = [cause.share for cause in answer.causes]
    assert shares[0] == pytest.approx(2 * shares[1], rel=0.1)
    assert sum(shares) == pytest.approx(1.0, abs=0.1)


def test_a_growth_without_evidence_stays_unexplained() -> None:
    answer = asked(
        later(quiet(), prefill_own_s=lambda s: s * 3, decode_own_s=lambda s: s * 3), Metric.TPOT
    )
    assert answer.verdict is ExplanationVerdict.INCIDENT
    assert not answer.causes
    assert answer.unexplained == pytest.approx(1.0)


def test_a_queue_is_not_attributed_to_a_cause_that_did_not_grow() -> None:
    """Traffic, prompts and machine are unchanged, so the wait for batch slots has no cause."""
    answer = asked(later(quiet(), queue_seats_s=0.5), Metric.QUEUE)
    assert answer.verdict is ExplanationVerdict.INCIDENT
    assert not answer.causes
    assert answer.unexplained == pytest.approx(1.0)


def test_a_queue_after_a_stall_is_attributed_to_the_stall() -> None:
    """The engine stalled for a tenth of the time, and the request rate did not change."""
    stalled = later(
        quiet(),
        queue_seats_s=0.5,
        queue_budget_s=0.5,
        prefill_others_prefill_s=0.3,
        decode_stall_s=1.0,
    )
    engines = sampled_each_second(
        {
            each: {"stall_s_total": lambda second: 0.5 if second % 25 == 0 else 0.0}
            for each in REPLICAS
        },
        {"busy_s_total": 0.9, "stall_s_total": 0.0, "waiting": 0.0, "running": 8.0},
    )
    found = shares(asked(stalled, servers=servers_of(engines)))
    assert next(iter(found)) == "engine_stall"
    assert found["engine_stall"] > 0.9
    assert "load_exceeds_capacity" not in found


def test_the_onset_is_found_to_the_block() -> None:
    requests = quiet()
    late = requests.received_unix_ns >= 1_500 * S
    requests = summed(
        replace(requests, numbers={**requests.numbers, "queue_kv_s": np.where(late, 1.0, 0.0)})
    )
    assert asked(requests).onset_unix_ns == 1_500 * S


def test_a_growth_that_began_before_the_window_has_no_onset() -> None:
    requests = later(quiet(), queue_kv_s=0.5)
    late = requests.received_unix_ns >= 1_500 * S
    worse = np.where(late, 2.0, requests.number("queue_kv_s"))
    draw = np.random.default_rng(0)
    worse = np.where(~late & (draw.random(len(requests)) < 0.5), 0.0, worse)
    requests = summed(replace(requests, numbers={**requests.numbers, "queue_kv_s": worse}))
    answer = asked(requests)
    assert answer.verdict is ExplanationVerdict.INCIDENT
    assert answer.onset_unix_ns is None


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_holes_in_the_columns_are_survived(seed: int) -> None:
    """Rows of different sources have different columns."""
    draw = np.random.default_rng(seed)
    requests = later(quiet(2_500, seed), queue_seats_s=0.5)
    holed = {
        name: np.where(draw.random(len(requests)) < 0.3, np.nan, values)
        for name, values in requests.numbers.items()
        if draw.random() < 0.9
    }
    answer = asked(replace(requests, numbers=holed))
    assert all(0 <= cause.share <= 1 for cause in answer.causes)
    assert all(np.isfinite(part.excess_s) for part in answer.parts)


def _flood(extra: int = 5) -> Requests:
    return later(busier(quiet(12_000), extra, tenant="acme"), queue_seats_s=1.0)


@pytest.mark.parametrize("tenant", ["acme", "globex", "hooli"])
def test_a_filter_selects_the_latency_and_not_the_evidence(tenant: str) -> None:
    everybody = asked(_flood()).causes[0]
    answer = asked(_flood(), where={"tenant": tenant})
    assert answer.causes[0].id == "tenant_flood"
    assert answer.causes[0].where == {"tenant": "acme"}
    assert answer.causes[0].evidence == everybody.evidence
    assert answer.requests < asked(_flood()).requests


def test_a_healthy_replica_is_not_blamed_for_another_replicas_fault() -> None:
    requests = quiet()
    there = at_replica(requests, "r1")
    queued = later(requests, queue_kv_s=np.where(there, 2.0, 0.0))
    assert asked(queued, where={"replica": "r0"}).verdict is ExplanationVerdict.NO_INCIDENT
    sick = asked(queued, where={"replica": "r1"})
    assert sick.causes[0].id == asked(queued).causes[0].id == "kv_cache_exhausted"


def test_the_hit_group_is_searched_within_the_filter() -> None:
    answer = asked(_flood(), where={"tenant": "globex"})
    assert all("tenant" not in hit.dimension for hit in answer.dimensions)


def test_requests_without_the_latency_make_no_group_fast() -> None:
    """All tenants wait for one more second, but most responses to hooli are not streamed and have
    no TTFT."""
    requests = later(quiet(), queue_seats_s=lambda old: old + 1.0)
    some = np.random.default_rng(1).random(len(requests)) < 0.9
    streamed = ~(requests.label("tenant").is_value("hooli") & some)
    numbers = {**requests.numbers, "streamed": streamed.astype(np.float64)}
    answer = asked(replace(requests, numbers=numbers))
    assert answer.verdict is ExplanationVerdict.INCIDENT
    assert all(hit.dimension != "tenant" for hit in answer.dimensions)


def test_traffic_of_other_models_is_no_evidence() -> None:
    """Two models have separate servers. If one model gets more requests, the load is not skewed."""
    requests = quiet(12_000)
    there = at_replica(requests, "r1")
    models = labels(np.where(there, "large", "small").tolist())
    requests = replace(requests, labels={**requests.labels, "model": models})
    queued = busier(requests, 2, model="large")
    late = at_replica(queued, "r1")
    queued = later(queued, queue_seats_s=np.where(late, 1.0, 0.0))
    found = shares(asked(queued, where={"model": "large"}))
    assert next(iter(found)) == "load_exceeds_capacity"
    assert "replica_imbalance" not in found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), metric=st.sampled_from(list(Metric)))
def test_shares_are_between_0_and_1_and_sum_to_at_most_1(seed: int, metric: Metric) -> None:
    """A part may shrink for one request while its mean over all requests grows."""
    draw = np.random.default_rng(seed)

    def changed(old: FloatArray) -> FloatArray:
        some = draw.random(old.size) < 0.3
        return np.asarray(old * draw.lognormal(0.0, 2.0) + draw.exponential(0.2) * some)

    parts = [name for name in quiet().numbers if name.endswith("_s") and "_" in name[:-2]]
    some = {name: changed for name in parts if draw.random() < 0.5}
    answer = asked(later(quiet(3_000, seed), **some), metric)
    assert all(0 < cause.share <= 1 for cause in answer.causes)
    assert sum(cause.share for cause in answer.causes) <= 1 + 1e-9
    assert answer.unexplained is None or 0 <= answer.unexplained <= 1
