"""Objectives on probes: verdicts, stored counts and the counts on /metrics."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.evaluation.counting import SETTLED_S, counts_between, read_tally, step_counts
from alerts.evaluation.evaluator import Evaluator
from alerts.evaluation.group_slots import groups_of
from alerts.evaluation.probe_verdicts import columns_of_probes, judge_probes, table_of_probes
from alerts.evaluation.request_verdicts import RequestVerdict
from alerts.evaluation.table_verdicts import NOT_SELECTED, VERDICTS
from alerts.expression import parse
from alerts.fields import PROBE_GOOD, PROBE_WHERE
from alerts.objectives import GoodProbes
from alerts.openslo.reader import inspect_texts
from exporters.prometheus import PrometheusExporter
from store.alerting.incidents import read_incidents
from store.database import open_database
from store.errors import RowRefused
from store.writer import Writer
from telemetry.probes import Probe, ProbeOutcome
from tests.alerts.probe_objective import DOCUMENT, objective
from tests.probe.results import EXAMPLE

S = 10**9
START_S = 1_790_000_010


def wrong(**about: str) -> str:
    plain = {"events": "probes", "where": "where: all", "good": "wait_s <= 1"}
    found = inspect_texts({"o.yaml": DOCUMENT.format(**{**plain, **about})})
    return "\n".join(map(str, found.errors))


def probe(number: int, **changes: Any) -> Probe:
    known = {"trace_id": f"{number + 1:032x}", "span_id": f"{number + 1:016x}"}
    return replace(EXAMPLE, **{**known, **changes})


def verdict(good: str, probe: Probe, where: str | None = None) -> RequestVerdict | None:
    condition = None if where is None else parse(where, PROBE_WHERE)
    expression = parse(good, PROBE_GOOD)
    table = table_of_probes([probe], columns_of_probes(condition, expression))
    (code,) = judge_probes(condition, expression, table).tolist()
    return None if code == NOT_SELECTED else VERDICTS[code]


CACHED = {"outcome": ProbeOutcome.CACHED}
FAILED = {"outcome": ProbeOutcome.ERROR, "e2e_s": None, "first_content_s": None}


@pytest.mark.parametrize(
    ("good", "changes", "wanted"),
    [
        ("first_content_s <= 0.08", {}, RequestVerdict.GOOD),
        ("first_content_s <= 0.079", {}, RequestVerdict.BAD),
        # `wait_s` is 1 ms late + 2 ms DNS + 3 ms connect + 4 ms TLS + 500 ms.
        ("wait_s <= 0.5101", {}, RequestVerdict.GOOD),
        ("wait_s <= 0.5099", {}, RequestVerdict.BAD),
        ("wait_s <= 0.5061", {"dns_s": None, "tls_s": None}, RequestVerdict.GOOD),
        ('outcome in ("stop", "length")', {"outcome": ProbeOutcome.LENGTH}, RequestVerdict.GOOD),
        ('outcome in ("stop", "length")', FAILED, RequestVerdict.BAD),
        ("wait_s <= 100", FAILED, RequestVerdict.BAD),
        ("not wait_s > 100", FAILED, RequestVerdict.BAD),
        (
            "wait_s <= 100",
            {"outcome": ProbeOutcome.REJECTED, "http_status": 401},
            RequestVerdict.BAD,
        ),
        ("wait_s <= 100", {"outcome": ProbeOutcome.TIMEOUT}, RequestVerdict.BAD),
        ("wait_s <= 100", {"outcome": ProbeOutcome.ABORT}, RequestVerdict.ABORTED),
        ("wait_s <= 100", {"outcome": ProbeOutcome.MISSED}, None),
        ("wait_s <= 100", {"outcome": ProbeOutcome.OVER_BUDGET}, None),
        ("first_content_s <= 1", {"first_content_s": None}, RequestVerdict.UNKNOWN),
        ("first_content_s <= 1 or wait_s <= 1", {"first_content_s": None}, RequestVerdict.GOOD),
        ("first_content_s is unknown", {"first_content_s": None}, RequestVerdict.GOOD),
        ("output_tokens >= 9 and cost_usd < 0.01", {}, RequestVerdict.GOOD),
        ("wait_s <= 1", {"e2e_s": 604_800.0}, RequestVerdict.BAD),
        # A cached answer does not measure the model.
        ("first_content_s <= 1", CACHED, RequestVerdict.UNKNOWN),
        ("first_content_s <= 0.01 and wait_s <= 5", CACHED, RequestVerdict.UNKNOWN),
        ("not e2e_s > 100", CACHED, RequestVerdict.UNKNOWN),
        ("connect_s <= 1", CACHED, RequestVerdict.GOOD),
        ('outcome in ("stop", "length", "cached")', CACHED, RequestVerdict.GOOD),
    ],
)
def test_the_verdict_on_a_probe(
    good: str, changes: dict[str, Any], wanted: RequestVerdict | None
) -> None:
    assert verdict(good, probe(1, **changes)) is wanted


def test_the_recipe_for_availability_takes_every_complete_answer() -> None:
    document = (Path(__file__).parents[3] / "docs/probe.md").read_text()
    (good,) = re.findall(r"For availability alone, write `good: (.*?)`", document)
    for outcome in ProbeOutcome:
        if outcome.succeeded:
            assert verdict(good, probe(1, outcome=outcome)) is RequestVerdict.GOOD


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        ('region == "eu-west" and endpoint == "chat"', True),
        ('region == "us"', False),
        ('endpoint in ("a", "chat") and twin == false', True),
        ("twin is unknown", False),
    ],
)
def test_where_selects_by_properties_of_the_probe(where: str, selected: bool) -> None:
    assert (verdict("wait_s <= 1", probe(1), where) is not None) is selected
    nowhere = probe(1, region=None)
    assert verdict("wait_s <= 1", nowhere, 'region != "eu-west"') is None
    assert verdict("wait_s <= 1", nowhere, "region is unknown") is RequestVerdict.GOOD


def test_wrong_keys_and_fields_name_what_is_allowed() -> None:
    assert "allowed: requests, probes" in wrong(events="traces")
    assert "'ttft_s' at character 1 is a result of requests, not of probes; allowed: wait_s" in (
        wrong(good="ttft_s <= 1").replace('"', "'")
    )
    assert "is a property of requests, not of probes; allowed: region, endpoint" in wrong(
        where="where: tenant is unknown"
    )
    assert "is a result of the probe; use it in good" in wrong(where="where: wait_s <= 1")
    assert "is a property of the probe; use it in where" in wrong(good='region == "eu"')
    assert "outcome has no value" in wrong(good='outcome == "good"')
    assert "allowed: region, endpoint, model" in wrong(where="by: [tenant]")
    assert "first_event_s" in wrong(events="requests", good="first_event_s <= 1")


def test_the_statement_names_probes() -> None:
    found = objective(where='where: endpoint == "chat", by: [region]')
    assert found.statement == (
        'Objective: 0.99 of probes with first_content_s <= 0.5 (where endpoint == "chat") for each'
        " region over 30d."
    ).replace("0.99 of", f"{found.target_written} of")
    assert found.counted_in == found.rows == "probes"
    assert isinstance(found.indicator, GoodProbes)
    same = objective(events="requests", good="e2e_s <= 1")
    assert objective(good="e2e_s <= 1").indicator.digest != same.indicator.digest  # type: ignore[union-attr]


def test_a_limit_in_milliseconds_is_noted() -> None:
    text = DOCUMENT.format(events="probes", where="where: all", good="wait_s <= 500000")
    (note,) = inspect_texts({"o.yaml": text}).spec.notes
    assert "latencies are in seconds" in note


@pytest.fixture
def store(tmp_path: Path) -> Callable[[list[Probe]], Engine]:
    def make(results: list[Probe]) -> Engine:
        engine = open_database(f"sqlite:///{tmp_path}/{len(results)}.db")
        with Writer(engine) as writer:
            writer.submit([], [], probes=results).result(30)
        return engine

    return make


def _history(hours: int = 2, every_s: int = 15) -> list[Probe]:
    """Return probes of two regions; those of ap-south are slow for the last half hour."""
    found = []
    for number, at_s in enumerate(range(START_S, START_S + hours * 3600, every_s)):
        slow = at_s >= START_S + hours * 3600 - 1800
        for place, region in enumerate(("eu-west", "ap-south")):
            content_s = 2.0 if slow and region == "ap-south" else 0.1
            found.append(
                probe(
                    2 * number + place,
                    region=region,
                    at_unix_ns=at_s * S,
                    first_event_s=content_s,
                    first_content_s=content_s,
                    e2e_s=3.0,
                )
            )
    return found


def test_the_evaluator_opens_an_incident(store: Callable[[list[Probe]], Engine]) -> None:
    engine = store(_history())
    end_s = START_S + 2 * 3600
    asked = objective(where='where: region == "ap-south"')
    evaluator = Evaluator(engine, [asked])
    for at_s in range(end_s - 1500, end_s + 31, 300):
        evaluator.evaluate(at_s)
    (row,) = [each for each in read_incidents(engine, "outside") if each.severity == "page"]
    assert row.ended_unix_s is None
    assert asked.indicator is not None
    tally = read_tally(engine, asked.indicator, 0, end_s + 30)  # type: ignore[arg-type]
    # The probes of the last half hour, which end 3 s after they were due.
    assert tally.history.counts(0, end_s + 30) == EventCounts(120, 480)
    engine.dispose()


def test_a_probe_counts_in_the_step_in_which_it_ended(
    store: Callable[[list[Probe]], Engine],
) -> None:
    late = probe(1, at_unix_ns=START_S * S, connect_s=100.0, e2e_s=200.0, late_s=0.0)
    refused = probe(
        2, at_unix_ns=START_S * S, outcome=ProbeOutcome.ERROR, e2e_s=None, connect_s=50.0
    )
    engine = store([late, refused])
    goodput = objective(good="wait_s <= 1000").indicator
    assert isinstance(goodput, GoodProbes)
    buckets = step_counts(engine, goodput, START_S - 15, START_S + 600, 15)
    assert [(each.until_s - START_S, each.counts) for each in buckets] == [
        (60, EventCounts(1, 1)),
        (315, EventCounts(0, 1)),
    ]
    assert counts_between(engine, goodput, START_S, START_S + 600) == EventCounts(1, 2)
    engine.dispose()


def test_probes_that_arrive_late_are_counted(
    tmp_path: Path, store: Callable[[list[Probe]], Engine]
) -> None:
    """The prober keeps results while the collector does not answer, and sends them later."""
    results = _history(1)
    engine = store(results[:40])
    asked = objective(where="where: all, by: [region]")
    now_s = START_S + 3600 + 4 * SETTLED_S
    evaluator = Evaluator(engine, [asked, objective()])
    evaluator.evaluate(now_s)
    whole = objective().indicator
    assert isinstance(whole, GoodProbes)
    with Writer(engine) as writer:
        writer.submit([], [], probes=results).result(30)
    evaluator.evaluate(now_s + 15)
    tally = read_tally(engine, whole, 0, now_s)
    assert tally.history.counts(0, now_s).events == len(results)
    by_region = {
        each.group: read_tally(engine, each.indicator, 0, now_s).history.counts(0, now_s).events  # type: ignore[arg-type]
        for each in groups_of(engine, asked)
    }
    assert sum(by_region.values()) >= len(results)
    engine.dispose()


@pytest.mark.parametrize("by", ["", ", by: [region]"])
def test_older_requests_do_not_move_the_start_of_the_counts(
    store: Callable[[list[Probe]], Engine], request_row: Callable[..., Any], by: str
) -> None:
    """Time before the first probe must not count as time without bad probes."""
    engine = store(_history())
    now_s = START_S + 2 * 3600 + 4 * SETTLED_S
    asked = objective(where=f"where: all{by}")
    evaluator = Evaluator(engine, [asked, objective(events="requests", good="e2e_s <= 5")])
    evaluator.evaluate(now_s)
    with Writer(engine) as writer:
        backfilled = request_row(received_unix_ns=(START_S - 5 * 86_400) * S)
        writer.submit([backfilled], []).result(10)
    evaluator.evaluate(now_s + 15)
    for each in groups_of(engine, asked) if by else [asked]:
        tally = read_tally(engine, each.indicator, 0, now_s)  # type: ignore[arg-type]
        assert tally.since_s == pytest.approx(START_S, abs=30)
    engine.dispose()


def test_each_region_has_a_budget_of_its_own(store: Callable[[list[Probe]], Engine]) -> None:
    engine = store(_history())
    end_s = START_S + 2 * 3600
    evaluator = Evaluator(engine, [objective(where="where: all, by: [region]")])
    for at_s in range(end_s - 1500, end_s + 31, 300):
        evaluator.evaluate(at_s)
    paging = {
        region: [each.severity for each in read_incidents(engine, f'outside{{region="{region}"}}')]
        for region in ("eu-west", "ap-south")
    }
    assert "page" in paging["ap-south"]
    assert paging["eu-west"] == []
    engine.dispose()


def test_metrics_and_the_store_have_the_same_counts(
    store: Callable[[list[Probe]], Engine],
) -> None:
    rng = np.random.default_rng(3)
    outcomes = list(ProbeOutcome)
    results = [
        probe(
            number,
            at_unix_ns=(START_S + number) * S,
            outcome=outcomes[rng.integers(len(outcomes))],
            first_content_s=None if number % 7 == 0 else float(rng.exponential(0.5)),
            region=["eu", None, "<b>"][number % 3],
        )
        for number in range(300)
    ]
    asked = objective(where='where: endpoint == "chat"')
    goodput = asked.indicator
    assert isinstance(goodput, GoodProbes)
    exporter = PrometheusExporter(
        clock_unix_ns=lambda: (START_S + 310) * S, objectives={"outside": goodput}
    )
    exporter.on_probes_stored(results)
    exporter.on_probes_stored(results[:50])  # sent twice
    samples = {
        (sample.name, sample.labels.get("reason")): sample.value
        for family in exporter.registry.collect()
        for sample in family.samples
        if sample.name.startswith("tailspan_slo")
    }
    engine = store(results)
    counts = counts_between(engine, goodput, START_S - 15, START_S + 600)
    late = samples["tailspan_slo_excluded_events_total", "late"]
    assert late < 20
    assert samples["tailspan_slo_events_total", None] == pytest.approx(counts.events, abs=late)
    good = samples["tailspan_slo_good_events_total", None]
    assert samples["tailspan_slo_events_total", None] - good == pytest.approx(counts.bad, abs=late)
    tally = read_tally(engine, goodput, 0, START_S + 600)
    for reason in ("aborted", "unknown"):
        reported = samples["tailspan_slo_excluded_events_total", reason]
        assert reported == pytest.approx(tally.excluded()[reason], abs=late)
    engine.dispose()


def test_a_request_is_no_probe_and_a_probe_no_request(
    store: Callable[[list[Probe]], Engine], request_row: Callable[..., Any]
) -> None:
    engine = store([probe(1, at_unix_ns=START_S * S)])
    with Writer(engine) as writer:
        writer.submit([request_row(received_unix_ns=START_S * S)], []).result(10)
    of_requests, of_probes = (
        objective(events=each, good="e2e_s <= 5").indicator for each in ("requests", "probes")
    )
    for each in (of_requests, of_probes):
        assert counts_between(engine, each, START_S - 60, START_S + 60) == EventCounts(0, 1)  # type: ignore[arg-type]
    engine.dispose()


def test_huge_durations_do_not_stop_the_writer(store: Callable[[list[Probe]], Engine]) -> None:
    engine = store([probe(1, at_unix_ns=START_S * S, e2e_s=1e300)])
    with Writer(engine) as writer, pytest.raises(RowRefused, match="e2e_s"):
        writer.submit([], [], probes=[probe(2, e2e_s=math.nan)]).result(10)
    engine.dispose()
