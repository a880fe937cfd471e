import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

from analysis.outside import outside
from analysis.outside.answer import PHASES, OutsideAnswer, OutsideQuestion
from analysis.outside.as_json import as_json
from analysis.outside.outside import answer_outside
from store import probes as store_probes
from store.database import open_database
from telemetry.probes import Probe, ProbeOutcome
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.analysis.outside.probed import (
    LENGTH_S,
    NETWORK_S,
    NS,
    REFUSED,
    START_S,
    failed,
    probe,
    probes,
    rows,
    store,
)

WINDOW = Window(START_S * NS, (START_S + LENGTH_S) * NS)
Answer = Callable[..., OutsideAnswer]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def open_(results: list[Probe], server: list[RequestTimeline] | None = None) -> Engine:
        url = f"sqlite:///{tmp_path}/{len(engines)}.db"
        store(url, results, server or [])
        engines.append(open_database(url, create=False))
        return engines[-1]

    yield open_
    for each in engines:
        each.dispose()


def _ask(engine: Engine, **equals: str | None) -> OutsideAnswer:
    return answer_outside(engine, OutsideQuestion(WINDOW, equals))


@pytest.fixture
def answer(
    opened: Callable[..., Engine], request_row: Callable[..., RequestTimeline]
) -> OutsideAnswer:
    results = list(probes())
    return _ask(opened(results, rows(request_row, results)))


def test_phases_sum_to_the_whole_wait(answer: OutsideAnswer) -> None:
    assert [(p.endpoint, p.region) for p in answer.endpoints] == [
        (endpoint, region) for endpoint in ("chat", "claude") for region in ("ap-south", "eu-west")
    ]
    for place in answer.endpoints:
        assert place.phases_s is not None
        assert tuple(place.phases_s) == PHASES
        assert sum(place.phases_s.values()) == pytest.approx(place.wait_mean_s)
        network_s = NETWORK_S[place.region or ""]
        assert place.phases_s["connect"] == pytest.approx(network_s)
        if place.endpoint == "chat":
            assert place.phases_s["network"] == pytest.approx(network_s)
            assert place.phases_s["server"] == pytest.approx(0.075)
            assert place.phases_s["not_split"] == 0
        else:
            assert place.phases_s["server"] == place.phases_s["network"] == 0
            assert place.phases_s["not_split"] == pytest.approx(network_s + 0.075, abs=0.001)


def test_a_pair_is_the_very_request_whatever_the_clocks(answer: OutsideAnswer) -> None:
    chat = {p.region: p for p in answer.endpoints if p.endpoint == "chat"}
    for region, network_s in NETWORK_S.items():
        found = chat[region].network
        assert found is not None
        assert found.probes == 120
        assert found.p50_s == pytest.approx(network_s)
        assert found.p99_s is None  # needs 381 probes
    assert {p.hosting for p in chat.values()} == {"self-hosted"}
    assert {p.hosting for p in answer.endpoints if p.endpoint == "claude"} == {"managed"}


def test_a_repeated_prompt_shows_the_effect_of_the_cache(answer: OutsideAnswer) -> None:
    for place in answer.endpoints:
        assert place.cache is not None
        assert place.cache.difference_s == pytest.approx(-0.05)
        assert place.cache.cached_ratio == pytest.approx(0.64)
    assert answer.endpoints[0].cache is not None
    assert answer.endpoints[0].cache.pairs == 60


def test_a_gateways_cache_is_no_latency_of_the_model(
    opened: Callable[..., Engine], answer: OutsideAnswer
) -> None:
    """Latencies do not include the cached answers, which take 1 ms. `cached` counts these
    answers."""
    (model,) = [p for p in answer.endpoints if (p.endpoint, p.region) == ("chat", "eu-west")]
    of_model = [p for p in probes() if (p.endpoint, p.region) == ("chat", "eu-west")]
    fast: dict[str, Any] = {"first_event_s": 0.001, "first_content_s": 0.001, "e2e_s": 0.001}
    of_cache = [
        replace(each, outcome=ProbeOutcome.CACHED, **fast) if each.twin else each
        for each in of_model
    ]
    (place,) = _ask(opened(of_cache)).endpoints
    assert (place.sent, place.answered, place.cached) == (120, 120, 60)
    assert place.cache is None
    assert place.first_content is not None
    assert place.first_content.probes == 60
    assert place.first_content.p50_s == pytest.approx(0.13)
    assert place.wait is not None
    assert place.wait.p50_s > 0.4
    assert place.wait_mean_s is not None
    assert model.wait_mean_s is not None
    assert place.wait_mean_s > model.wait_mean_s
    assert all(step.wait_p50_s is None or step.wait_p50_s > 0.4 for step in place.steps)
    every = [replace(each, outcome=ProbeOutcome.CACHED, **fast) for each in of_model]
    (place,) = _ask(opened(every)).endpoints
    assert (place.success_ratio, place.cached) == (1, 120)
    assert (place.wait, place.first_content, place.phases_s, place.cache) == (None,) * 4


def test_no_effect_of_the_prefix_cache_is_none(opened: Callable[..., Engine]) -> None:
    rng = np.random.default_rng(5)

    def effect(pairs: int, faster_s: float) -> tuple[str | None, bool]:
        results = [
            probe(
                number,
                at_unix_ns=(START_S + 10 * number) * NS,
                twin=number % 2 == 1,
                first_event_s=float(rng.exponential(0.05)) + 0.1 - faster_s * (number % 2),
            )
            for number in range(2 * pairs)
        ]
        (place,) = _ask(opened(results)).endpoints
        assert place.cache is not None
        return place.cache.effect, place.cache.difference_low_s is None

    assert effect(100, 0.0) == ("none found", False)
    assert effect(100, 0.09) == ("faster", False)
    assert effect(100, -0.09) == ("slower", False)
    assert effect(7, 0.09) == (None, True)


def test_failures_have_their_sentences_and_their_share(answer: OutsideAnswer) -> None:
    claude = next(p for p in answer.endpoints if (p.endpoint, p.region) == ("claude", "ap-south"))
    assert (claude.sent, claude.answered) == (120, 110)
    assert claude.success_ratio == pytest.approx(110 / 120)
    (failure,) = claude.failures
    assert (failure.error_type, failure.sentence, failure.probes) == ("connect", REFUSED, 10)
    assert sum(step.sent - step.answered for step in claude.steps[-5:]) == 10
    assert sum(step.sent for step in claude.steps) == 120
    assert claude.cost_usd == pytest.approx(0.120)  # a failed probe may cost money, too


def test_the_json_has_no_value_that_json_lacks(answer: OutsideAnswer) -> None:
    written = json.loads(json.dumps(as_json(answer), allow_nan=False))
    assert [p["region"] for p in written["places"]] == ["ap-south", "eu-west"] * 2
    assert written["places"][0]["phases_s"]["server"] == pytest.approx(0.075)
    claude = written["places"][2]["phases_s"]
    assert (claude["server"], claude["network"]) == (None, None)
    assert claude["not_split"] > 0


def test_labels_select_probes(opened: Callable[..., Engine]) -> None:
    engine = opened([*probes(), probe(900, region=None, at_unix_ns=START_S * NS)])
    (place,) = _ask(engine, region="eu-west", endpoint="chat").endpoints
    assert place.sent == 120
    (place,) = _ask(engine, region=None).endpoints
    assert place.region is None
    with pytest.raises(ValueError, match=r"unknown label 'tenant'; allowed: region, endpoint"):
        _ask(engine, tenant="acme")
    assert _ask(engine, endpoint="other").endpoints == ()


def test_probes_that_were_not_sent_do_not_count(opened: Callable[..., Engine]) -> None:
    results = [
        failed(number, outcome=outcome, at_unix_ns=(START_S + number) * NS, error_type=None)
        for number, outcome in enumerate(
            (ProbeOutcome.MISSED, ProbeOutcome.OVER_BUDGET, ProbeOutcome.ABORT)
        )
    ]
    (place,) = _ask(opened(results)).endpoints
    assert (place.sent, place.answered, place.success_ratio) == (0, 0, None)
    assert place.not_sent == {"missed": 1, "over_budget": 1, "abort": 1}
    assert place.failures == []
    assert (place.wait, place.phases_s, place.cost_usd) == (None, None, None)


def test_instants_out_of_order_still_sum(opened: Callable[..., Engine]) -> None:
    """In a probe of Tailspan's prober, the first event is not after the first content. Another
    sender may violate this order."""
    results = [
        probe(
            number,
            at_unix_ns=(START_S + number) * NS,
            first_event_s=first_s,
            first_content_s=content_s,
            e2e_s=e2e_s,
        )
        for number, (first_s, content_s, e2e_s) in enumerate(
            [(5.0, 1.0, 2.0), (None, None, 1.0), (0.5, None, 1.0), (600_000.0, 0.0, 604_800.0)]
        )
    ]
    (place,) = _ask(opened(results)).endpoints
    assert place.phases_s is not None
    assert min(place.phases_s.values()) >= 0
    assert sum(place.phases_s.values()) == pytest.approx(place.wait_mean_s)


def test_a_pair_with_a_gap_between_is_no_pair(opened: Callable[..., Engine]) -> None:
    at = [0, 30, 60, 90, 300, 330]
    twins = [False, True, False, True, True, False]
    results = [
        probe(number, at_unix_ns=(START_S + each) * NS, twin=twin, cached_tokens=None)
        for number, (each, twin) in enumerate(zip(at, twins, strict=True))
    ]
    results.append(probe(9, at_unix_ns=(START_S + 900) * NS, twin=True))  # its first was missed
    (place,) = _ask(opened(results)).endpoints
    assert place.cache is not None
    assert place.cache.pairs == 2


def test_ten_thousand_endpoints_are_a_short_answer(opened: Callable[..., Engine]) -> None:
    results = [
        probe(number, endpoint=f"<b>{number}</b>", at_unix_ns=(START_S + number % 3000) * NS)
        for number in range(10_000)
    ]
    bad = failed(10_001, endpoint="\u202ebad", at_unix_ns=START_S * NS)
    found = _ask(opened([*results, bad]))
    assert len(found.endpoints) == outside.MAX_ENDPOINTS
    assert found.left_out == 10_001 - outside.MAX_ENDPOINTS
    assert found.read == 10_001
    assert any(each.endpoint == bad.endpoint for each in found.endpoints)


def test_probes_that_were_not_sent_are_no_reason_to_show_a_place(
    opened: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "MAX_ENDPOINTS", 1)
    outcomes = [ProbeOutcome.OVER_BUDGET, ProbeOutcome.MISSED, ProbeOutcome.ABORT]
    results = [
        failed(number, endpoint="paused", outcome=outcome, at_unix_ns=(START_S + number) * NS)
        for number, outcome in enumerate(3 * outcomes)
    ]
    for number in range(10, 12):
        results.append(failed(number, endpoint="broken", at_unix_ns=(START_S + number) * NS))
    (place,) = _ask(opened(results)).endpoints
    assert place.endpoint == "broken"


def test_a_long_window_is_a_sample_with_all_failures(
    opened: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes have a fixed schedule. The sample of probes must not depend on it."""
    monkeypatch.setattr(outside, "probe_sample", partial(store_probes.probe_sample, max_rows=2_000))
    rng = np.random.default_rng(11)
    long = Window(START_S * NS, (START_S + 86_400) * NS)
    results: list[Probe] = []
    for step in range(86_400 // 16):
        for endpoint in ("a", "b"):
            number = len(results)
            at = (START_S + 16 * step) * NS
            late = float(rng.exponential(0.1))
            each = probe(number, endpoint=endpoint, at_unix_ns=at, late_s=late, twin=step % 2 == 1)
            results.append(each)
    for number in range(5):
        at = results[2 * 1_000 * number].at_unix_ns
        results[2 * 1_000 * number] = failed(2 * 1_000 * number, endpoint="a", at_unix_ns=at)
    engine = opened(results)
    found = answer_outside(engine, OutsideQuestion(long, {}))
    assert found.read == pytest.approx(2_000, rel=0.15)
    assert found.scale == pytest.approx(10_800 / 2_000)
    a, b = found.endpoints
    assert sum(each.probes for each in a.failures) == 5
    for place in (a, b):
        assert place.sent == pytest.approx(5_400, rel=0.15)
        assert place.phases_s is not None
        assert place.phases_s["late"] == pytest.approx(0.1, rel=0.15)
        assert place.cache is not None
        assert place.cache.pairs > 200


def test_a_sample_with_many_failures_estimates_their_number(
    opened: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "probe_sample", partial(store_probes.probe_sample, max_rows=1_000))
    long = Window(START_S * NS, (START_S + 40_000) * NS)
    outcomes = [ProbeOutcome.ERROR, ProbeOutcome.STOP, ProbeOutcome.ERROR, ProbeOutcome.OVER_BUDGET]
    results = [
        probe(number, outcome=outcomes[number % 4], at_unix_ns=(START_S + 10 * number) * NS)
        for number in range(4_000)
    ]
    engine = opened(results)
    found = answer_outside(engine, OutsideQuestion(long, {}))
    assert found.read == pytest.approx(1_000, rel=0.15)
    assert (found.scale, found.unanswered_scale) == (4.0, 4.0)
    (place,) = found.endpoints
    assert place.sent == pytest.approx(3_000, rel=0.15)
    assert place.answered == pytest.approx(1_000, rel=0.2)
    assert sum(each.probes for each in place.failures) == place.sent - place.answered
    assert sum(step.sent for step in place.steps) == place.sent
    assert place.not_sent["over_budget"] == pytest.approx(1_000, rel=0.2)
    monkeypatch.setattr(outside, "probe_sample", partial(store_probes.probe_sample, max_rows=6_000))
    whole = answer_outside(engine, OutsideQuestion(long, {}))
    assert (whole.scale, whole.unanswered_scale) == (1.0, 1.0)
    assert whole.endpoints[0].sent == 3_000


def test_no_probe_is_an_empty_answer(opened: Callable[..., Engine]) -> None:
    found = _ask(opened([]))
    assert (found.endpoints, found.read, found.left_out) == ((), 0, 0)
