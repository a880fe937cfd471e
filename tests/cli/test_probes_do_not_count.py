"""The prober's requests change no objective, bill, diagnosis or percentile."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.evaluation.counting import counts_between
from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput
from analysis.counterfactual import replay_process
from collector.normalise.spans import normalise_spans
from exporters.prometheus import PrometheusExporter
from probe.otlp_spans import message
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from store.writer import Writer
from telemetry.in_flight import InFlightRequest
from telemetry.probes import PROBE_TENANT, Probe, ProbeOutcome
from telemetry.requests import RequestTimeline, Source
from telemetry.starts import EngineStart
from tests.cli.output import START_S, printed
from tests.conftest import a_request
from tests.probe.results import EXAMPLE
from tests.replaying import answer_here

NS = 10**9

Row = Callable[..., RequestTimeline]


def _rows(request_row: Row) -> list[RequestTimeline]:
    rows = []
    for number in range(800):
        late_s = 2.0 if number >= 400 else 0.0
        rows.append(
            request_row(
                number,
                replica="r0",
                tenant=("acme", "globex")[number % 2],
                streamed=True,
                frontend_s=0.01,
                queue_s=late_s,
                queue_kv_s=late_s,
                **dict.fromkeys(
                    ("queue_seats_s", "queue_budget_s", "queue_held_s", "queue_step_s"), 0.0
                ),
                prefill_s=0.05,
                decode_s=0.5,
                delivery_s=0.01,
                ttft_s=0.07 + late_s + 0.001 * (number % 10),
                e2e_s=0.57 + late_s,
                prompt_tokens=100 + number % 50,
                output_tokens=20,
                billed_s=0.2,
                cost_usd=0.001,
                received_unix_ns=(START_S - 600) * NS + number * 15 * 10**8,
            )
        )
    return rows


def _of_the_prober(rows: list[RequestTimeline]) -> list[RequestTimeline]:
    """Return as many requests, but of the prober's tenant and much slower."""
    return [
        replace(
            row,
            trace_id=f"{number + 1:016x}" + "f" * 16,
            request_id=f"chatcmpl-probe-{number}",
            tenant=PROBE_TENANT,
            received_unix_ns=row.received_unix_ns + 1_000,
            ttft_s=60.0,
            e2e_s=90.0,
            decode_s=None,
        )
        for number, row in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    """Return two databases; only the second has the prober's requests and probes. Tests only read
    them."""
    folder = tmp_path_factory.mktemp("probes")
    rows = _rows(a_request)
    start = EngineStart(
        replica="r0",
        engine=0,
        process=1,
        at_unix_ns=(START_S - 900) * NS,
        config="c",
        arguments="{}",
        device="NVIDIA H100 80GB HBM3",
        gpus=1,
    )
    engines = []
    for name, extra in (("plain", []), ("probed", _of_the_prober(rows))):
        engine = open_database(f"sqlite:///{folder}/{name}.db")
        probes = [
            replace(EXAMPLE, trace_id=each.trace_id, at_unix_ns=each.received_unix_ns)
            for each in extra
        ]
        with Writer(engine) as writer:
            writer.submit([*rows, *extra], [], [start], probes=probes).result(10)
        build_marked(engine, START_S + 3_600)
        engines.append(engine)
    yield engines[0], engines[1]
    for engine in engines:
        engine.dispose()


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "--by", "tenant"),
        ("stats", "--by", "tenant", "--precision", "sketch"),
        ("cost", "--by", "tenant"),
        ("explain", "--baseline", f"{START_S - 600}/{START_S}"),
        ("requests",),
    ],
    ids=" ".join,
)
def test_probes_do_not_change_any_output(
    words: tuple[str, ...], two: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_process, "answer_in_child", answer_here)
    plain, probed = (printed(each, *words, "--format", "json") for each in two)
    assert len(plain) > 500
    assert probed == plain


def test_objectives_count_no_probes(two: tuple[Engine, Engine]) -> None:
    goodput = Goodput(None, parse("ttft_s <= 0.5", GOOD))
    counts = [counts_between(each, goodput, START_S - 600, START_S + 700) for each in two]
    assert counts[0].events == 800
    assert counts[0].bad == 400
    assert counts[1] == counts[0]


def test_probes_in_flight_are_not_counted_as_bad(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/t.db")
    report = InFlightRequest(
        span_id="1" * 16,
        trace_id="1" * 32,
        received_unix_ns=START_S * NS,
        seen_unix_ns=(START_S + 30) * NS,
        source=Source.INSTRUMENTATION,
        tenant=PROBE_TENANT,
        replica="r0",
    )
    goodput = Goodput(None, parse("ttft_s <= 0.5", GOOD))
    with Writer(engine) as writer:
        writer.submit([], [], in_flight=[report]).result(10)
        assert counts_between(engine, goodput, START_S, START_S + 60).events == 0
        other = replace(report, tenant="acme", trace_id="2" * 32, span_id="2" * 16)
        writer.submit([], [], in_flight=[other]).result(10)
    assert counts_between(engine, goodput, START_S, START_S + 60).bad == 1
    engine.dispose()


def test_metrics_count_no_probes(request_row: Row) -> None:
    exporters = []
    for extra in (False, True):
        exporter = PrometheusExporter(
            clock_unix_ns=lambda: (START_S + 700) * NS,
            objectives={"chat": Goodput(None, parse("ttft_s <= 0.5", GOOD))},
        )
        rows = _rows(request_row)
        exporter.on_stored([*rows, *(_of_the_prober(rows) if extra else [])], [])
        exporters.append(
            [
                sample
                for family in exporter.registry.collect()
                for sample in family.samples
                if not sample.name.startswith(("tailspan_exporter", "tailspan_build"))
            ]
        )
    assert len(exporters[0]) > 20
    assert exporters[1] == exporters[0]


def test_probes_are_shown_if_asked_for(two: tuple[Engine, Engine]) -> None:
    asked = ("--where", f"tenant={PROBE_TENANT}", "--format", "json")
    found = json.loads(printed(two[1], "stats", *asked))
    assert found["requests"] == 400
    lines = printed(two[1], "requests", *asked, "--limit", "3").splitlines()
    assert {json.loads(each)["tenant"] for each in lines} == {PROBE_TENANT}
    one = ("--where", "request_id=chatcmpl-probe-700", "--format", "json")
    assert len(printed(two[1], "requests", *one).splitlines()) == 1


@pytest.mark.parametrize("by_id", [True, False])
def test_network_time_is_that_of_the_very_request(
    by_id: bool, tmp_path: Path, request_row: Row
) -> None:
    """The network time excludes connection setup and does not depend on clocks.

    The server's row is found by request id or trace id.
    """
    engine = open_database(f"sqlite:///{tmp_path}/t.db")
    server = [
        request_row(
            number,
            trace_id=f"{number + 1:032x}",
            request_id=f"chatcmpl-probe-{number}",
            tenant=PROBE_TENANT,
            received_unix_ns=(START_S + number) * NS,
            ttft_s=0.2 + 0.1 * number,
            e2e_s=1.0 + number,
            streamed=True,
        )
        for number in range(3)
    ]
    probes = [
        replace(
            EXAMPLE,
            trace_id=each.trace_id if not by_id else "f" * 31 + str(number),
            request_id=each.request_id if by_id else None,
            at_unix_ns=(START_S + 120) * NS,  # the prober's clock is two minutes ahead
            connect_s=5.0,
            first_event_s=(each.ttft_s or 0) + 0.03 * (number + 1),
            e2e_s=each.e2e_s + 0.5,
        )
        for number, each in enumerate(server[:2])
    ]
    with Writer(engine) as writer:
        writer.submit(server, [], probes=probes).result(10)
    asked = ("--where", f"tenant={PROBE_TENANT}", "--sort", "started_at", "--format", "json")
    found = [json.loads(each) for each in printed(engine, "requests", *asked).splitlines()]
    assert [each["network_s"] for each in found] == [
        pytest.approx(0.03),
        pytest.approx(0.06),
        None,
    ]
    engine.dispose()


def test_spans_of_the_prober_are_stored_as_probes() -> None:
    """The collector rejects spans that the prober cannot send."""
    results = [
        EXAMPLE,
        replace(EXAMPLE, trace_id="2" * 32, outcome=ProbeOutcome.MISSED, **_nothing_measured()),
    ]
    batch = normalise_spans(message("eu-west", results), (START_S + 100) * NS)
    assert batch.probes == results
    assert (batch.accepted, len(batch.requests)) == (2, 0)
    bad = [
        replace(EXAMPLE, dns_s=-1.0),
        replace(EXAMPLE, output_tokens=-1),
        replace(EXAMPLE, cost_usd=float("nan")),
        replace(EXAMPLE, endpoint=""),
        replace(EXAMPLE, trace_id="0" * 32),
        replace(EXAMPLE, at_unix_ns=1),
    ]
    refused = normalise_spans(message("eu-west", bad), (START_S + 100) * NS)
    assert refused.probes == []
    assert refused.refused.total() == len(bad)


def _nothing_measured() -> dict[str, Any]:
    kept = ("trace_id", "span_id", "at_unix_ns", "endpoint", "kind", "outcome", "region", "late_s")
    return {name: None for name in Probe.__dataclass_fields__ if name not in kept}
