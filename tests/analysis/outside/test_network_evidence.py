from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.outside.network_evidence import network_evidence, with_network_evidence
from diagnosis.claim import Evidence
from diagnosis.explanation import Cause, Explanation, Verdict
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
    return Explanation(QUESTION, Verdict.INCIDENT, 100, 100, 100, causes=found)


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
    found = network_evidence(engine, QUESTION)
    assert [each.what for each in found] == [
        "seconds outside the server, P50 of probes from eu-west (60 before, 60 now)",
        "seconds outside the server, P50 of probes from ap-south (60 before, 60 now)",
    ]
    assert [found[0].baseline, found[0].now] == pytest.approx([0.02, 0.32])
    assert [found[1].baseline, found[1].now] == pytest.approx([0.2, 0.2])
    engine.dispose()


def test_without_pairs_there_is_no_evidence(tmp_path: Path) -> None:
    for number, results in enumerate(([], list(probes()))):
        url = f"sqlite:///{tmp_path}/{number}.db"
        store(url, results, [])
        engine = open_database(url, create=False)
        assert network_evidence(engine, QUESTION) == []
        engine.dispose()


def test_only_the_cause_in_the_network_gets_the_evidence() -> None:
    more = [Evidence("seconds outside the server", 0.1, 0.5)]
    found = with_network_evidence(_explanation("network_or_client", "frontend_cpu"), lambda: more)
    assert [len(each.evidence) for each in found.causes] == [2, 1]

    def never() -> list[Evidence]:
        raise AssertionError("probes are not read")

    assert with_network_evidence(_explanation("frontend_cpu"), never) == _explanation(
        "frontend_cpu"
    )


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
    found = network_evidence(engine, QUESTION)
    assert len(found) == 4
    assert all("\x1b" not in each.what and len(each.what) < 160 for each in found)
    engine.dispose()
