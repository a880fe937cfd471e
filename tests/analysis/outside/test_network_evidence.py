from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.cause_sentences import network_sentence
from analysis.outside.network_evidence import NetworkTimes, network_times, with_network_times
from diagnosis.claim import Evidence
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict
from diagnosis.question import Metric, Question, Span
from store.database import open_database
from telemetry.requests import RequestTimeline
from tests.analysis.outside.probed import LENGTH_S, NS, START_S, probes, rows, store

HALF_S = LENGTH_S // 2
QUESTION = Question(
    Metric.E2E,
    Span((START_S + HALF_S) * NS, (START_S + LENGTH_S) * NS),
    Span(START_S * NS, (START_S + HALF_S) * NS),
)


def _explanation(*causes: str) -> Explanation:
    known = Evidence("seconds from last token to last byte", 0.1, 0.2)
    found = tuple(Cause(each, 0.5, [known], [], {}) for each in causes)
    return Explanation(QUESTION, ExplanationVerdict.INCIDENT, 100, 100, 100, causes=found)


def test_the_network_time_of_the_region_that_grew_comes_first(
    tmp_path: Path, request_row: Callable[..., RequestTimeline]
) -> None:
    results = list(probes())
    server = rows(request_row, results)
    grown = [
        replace(each, first_event_s=each.first_event_s + 0.3, e2e_s=(each.e2e_s or 0) + 0.3)
        if each.at_unix_ns >= QUESTION.window.from_unix_ns
        and each.region == "eu-west"
        and each.first_event_s is not None
        else each
        for each in results
    ]
    url = f"sqlite:///{tmp_path}/t.db"
    store(url, grown, server)
    engine = open_database(url, create=False)
    explained = with_network_times(
        _explanation("network_or_client", "frontend_cpu"), network_times(engine, QUESTION)
    )
    engine.dispose()
    found = explained.causes[0].evidence[1:]
    assert [each.what for each in found] == [
        "seconds outside the server, P50 of probes from eu-west (60 before, 60 now)",
        "seconds outside the server, P50 of probes from ap-south (60 before, 60 now)",
    ]
    assert [found[0].baseline, found[0].now] == pytest.approx([0.02, 0.32])
    assert [found[1].baseline, found[1].now] == pytest.approx([0.2, 0.2])
    assert len(explained.causes[1].evidence) == 1
    (growth,) = explained.network
    assert (growth.region, growth.baseline_probes, growth.probes) == ("eu-west", 60, 60)
    assert (growth.baseline_s, growth.now_s) == pytest.approx((0.02, 0.32))
    assert "network_or_client" in network_sentence(growth, str)


def test_without_pairs_there_is_no_evidence(tmp_path: Path) -> None:
    for number, results in enumerate(([], list(probes()))):
        url = f"sqlite:///{tmp_path}/{number}.db"
        store(url, results, [])
        engine = open_database(url, create=False)
        assert network_times(engine, QUESTION) == []
        engine.dispose()


def test_a_growth_that_may_be_chance_is_not_reported() -> None:
    draw = np.random.default_rng(5)
    grown = 0
    for _ in range(400):
        before_s, now_s = draw.lognormal(-4, 0.5, (2, 80))
        explained = with_network_times(_explanation(), [NetworkTimes("eu", before_s, now_s)])
        grown += len(explained.network)
    assert grown <= 6  # 0.3 % of 400 are expected by chance; a decrease is no growth
    few = [NetworkTimes("eu", np.full(5, 0.01), np.full(5, 1.0))]
    assert not with_network_times(_explanation(), few).network


def test_many_regions_and_hostile_names_are_a_few_plain_lines(
    tmp_path: Path, request_row: Callable[..., RequestTimeline]
) -> None:
    results = [
        replace(each, region=f"\x1b[31m<b>{number // 4 % 6}" + "w" * 200)
        for number, each in enumerate(probes())
        if each.endpoint == "chat" and each.region == "eu-west"
    ]
    server = [
        request_row(
            number,
            trace_id=each.trace_id,
            request_id=each.request_id,
            tenant="tailspan-probe",
            received_unix_ns=each.at_unix_ns,
            ttft_s=0.01,
            e2e_s=0.3,
            streamed=True,
        )
        for number, each in enumerate(results)
    ]
    url = f"sqlite:///{tmp_path}/t.db"
    store(url, results, server)
    engine = open_database(url, create=False)
    times = network_times(engine, QUESTION)
    found = with_network_times(_explanation("network_or_client"), times).causes[0].evidence[1:]
    assert len(found) == 4
    assert all("\x1b" not in each.what and len(each.what) < 160 for each in found)
    engine.dispose()
