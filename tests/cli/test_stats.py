from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from store.database import open_database
from store.queries import request_count
from store.retention import delete_older
from store.rollups import request_rollups
from store.rollups.bucket_builder import build_marked
from store.rollups.label_sets import LabelSets
from telemetry.labels import OTHER
from telemetry.requests import LATENCIES, STORED_LATENCIES, Basis, Outcome, RequestTimeline, Source
from telemetry.window import Window
from tests.cli.output import objects

Run = Callable[..., Result]
Fill = Callable[..., None]
Requests = Callable[..., RequestTimeline]

START_S = 1_763_634_000

COUNTS = ["requests", "errors", "aborted", "throughput_rps", "output_tokens_per_s"]
POINTS = ["p50", "p90", "p95", "p99", "p99_low", "p99_high"]


def test_json_has_the_contracts_keys_in_its_order(
    run: Run, fill: Fill, request_row: Requests
) -> None:
    fill(request_row(1, tenant="a", model="m"))
    (group,) = objects(run("stats", "--by", "tenant,model", "--format", "json"))
    keys = ["tenant", "model", *COUNTS, *STORED_LATENCIES, "partial", "precision", "counted_as"]
    assert list(group) == keys
    assert all(list(group[latency]) == POINTS for latency in STORED_LATENCIES)


def test_each_group_has_its_own_counts_rates_and_percentiles(
    run: Run, fill: Fill, request_row: Requests
) -> None:
    fill(
        *(request_row(i, tenant="a", e2e_s=i / 100, output_tokens=6) for i in range(1, 501)),
        request_row(501, tenant="b", outcome=Outcome.ERROR, e2e_s=0.5),
        request_row(502, tenant="b", outcome=Outcome.ABORT, e2e_s=0.7, output_tokens=60),
        request_row(503, outcome=Outcome.REJECTED, e2e_s=0.1),
    )
    a, b, unknown = objects(run("stats", "--by", "tenant", "--format", "json"))
    assert [a["tenant"], b["tenant"], unknown["tenant"]] == ["a", "b", None]
    assert [a[name] for name in COUNTS] == [500, 0, 0, 500 / 600, 5.0]
    assert [b[name] for name in COUNTS] == [2, 1, 1, 2 / 600, 0.1]
    assert [unknown[name] for name in COUNTS] == [1, 0, 0, 1 / 600, None]
    assert a["e2e_s"] == {
        "p50": 2.5, "p90": 4.5, "p95": 4.75, "p99": 4.95, "p99_low": 4.9, "p99_high": 5.0,
    }  # fmt: skip
    assert b["e2e_s"]["p50"] == 0.5
    assert b["e2e_s"]["p99_low"] is None  # too few requests
    assert set(a["ttft_s"].values()) == {None}  # no request has a TTFT


def test_without_labels_all_is_one_group(run: Run, fill: Fill, request_row: Requests) -> None:
    fill(request_row(1, tenant="a"), request_row(2, tenant="b", outcome=Outcome.ERROR))
    (group,) = objects(run("stats", "--format", "json"))
    assert group["requests"] == 2
    (group,) = objects(run("stats", "--format", "json", "--where", "tenant=b"))
    assert group["requests"] == 1
    # grouped by what is also counted
    found = objects(run("stats", "--by", "outcome,streamed", "--format", "json"))
    assert [(group["outcome"], group["errors"]) for group in found] == [("error", 1), ("stop", 0)]


def many(request_row: Requests) -> list[RequestTimeline]:
    """Return requests of two tenants; some have no latency, and some failed."""
    return [
        request_row(
            i,
            received_unix_ns=START_S * 10**9 + i * 500_000_000,
            tenant="ab"[i % 2],
            streamed=i % 3 == 0,
            ttft_s=0.1 + i / 1000 if i % 5 else None,
            e2e_s=1 + i / 100,
            queue_s=0.0,
            output_tokens=i % 7 or None,
            outcome=Outcome.ERROR if i % 11 == 0 else Outcome.STOP,
        )
        for i in range(1_000)
    ]


def test_rollups_agree_to_within_a_hundredth(
    run: Run, fill: Fill, request_row: Requests, url: str
) -> None:
    fill(*many(request_row))
    engine = open_database(url)
    build_marked(engine, START_S + 86_400)
    engine.dispose()
    for by in ("", "tenant,outcome", "streamed"):
        words = ("stats", "--by", by, "--format", "json", "--precision")
        exact, sketched = objects(run(*words, "exact")), objects(run(*words, "sketch"))
        assert {group["precision"] for group in exact} == {"exact"}
        assert {group["precision"] for group in sketched} == {"sketch"}
        for one, other in zip(exact, sketched, strict=True):
            for name in (*by.split(","), *COUNTS) if by else COUNTS:
                assert other[name] == (one[name] if name in by else pytest.approx(one[name]))
            for latency in LATENCIES:
                assert list(other[latency]) == POINTS
                for point, value in one[latency].items():
                    assert other[latency][point] == (value and pytest.approx(value, rel=0.01))
            assert other["first_content_s"] == dict.fromkeys(POINTS)


def test_deleted_requests_are_shown_from_rollups(
    run: Run, fill: Fill, request_row: Requests, url: str
) -> None:
    fill(*many(request_row))
    engine = open_database(url)
    delete_older(engine, 86_400 * 10**9, (START_S + 2 * 86_400) * 10**9, pause=lambda: None)
    assert request_count(engine, Window(0, 2**63 - 1)) == 0
    engine.dispose()
    shown = run("stats", "--by", "tenant").stdout
    assert "1,000 in 2 groups" in shown
    assert (
        "percentiles within 1 %, from per-minute and hourly rollups, without the time to" in shown
    )
    assert "\nfirst content" not in shown
    assert "simulated data" not in shown


def test_a_question_that_rollups_cannot_answer_reads_requests(
    run: Run, fill: Fill, request_row: Requests
) -> None:
    fill(request_row(1))
    (group,) = objects(run("stats", "--by", "config", "--format", "json"))
    assert group["precision"] == "exact"
    refused = run("stats", "--by", "config", "--precision", "sketch")
    assert refused.exit_code == 2
    assert "rollups do not have config; allowed: model, lora" in refused.output


def test_text_is_two_tables_under_a_heading(run: Run, fill: Fill, request_row: Requests) -> None:
    fill(
        *(request_row(i, tenant="a", queue_s=i / 1000) for i in range(1, 501)),
        request_row(501, tenant="b", source=Source.SIMULATOR, queue_s=2.0),
    )
    lines = run("stats", "--by", "tenant").stdout.splitlines()
    assert lines[:9] == [
        "Requests received 2025-11-20 10:20:00 to 10:30:00 UTC (10m)",
        "501 in 2 groups",
        "simulated data",
        "",
        "tenant  requests  errors  aborted    req/s  output tokens/s",
        "a            500       0        0    0.833                -",
        "b              1       0        0  0.00167                -",
        "",
        "latency  tenant     p50     p90     p95     p99  p99 interval (95 %)",
    ]
    assert lines[-2:] == [
        "queue    a       250 ms  450 ms  475 ms  495 ms     490 ms to 500 ms",
        "queue    b       2.00 s  2.00 s  2.00 s  2.00 s     too few requests",
    ]


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("colour", "requests cannot be grouped by 'colour'; allowed: outcome"),
        ("tenant,", "requests cannot be grouped by ''"),
        ("tenant,tenant", "tenant is given twice"),
    ],
)
def test_wrong_labels_exit_2_with_those_allowed(run: Run, fill: Fill, by: str, wanted: str) -> None:
    fill()
    result = run("stats", "--by", by)
    assert (result.exit_code, result.stdout) == (2, "")
    assert wanted in result.stderr


def test_an_empty_result_has_a_hint(run: Run, fill: Fill) -> None:
    fill()
    result = run("stats", "--format", "json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no requests yet" in result.stderr


def test_weaker_sources_are_marked(run: Any, fill: Any, request_row: Any) -> None:
    fill(request_row(1), request_row(2, source=Source.NATIVE, basis=Basis.ENGINE))
    printed = run("stats").output
    assert "1 from the engine's native spans" in printed
    assert "clients" not in printed


def test_the_first_content_has_percentiles_where_it_is_known(
    run: Run, fill: Fill, request_row: Requests
) -> None:
    """A row without a first content, such as a tool call, is not counted as fast."""
    fill(request_row(101))
    assert "first content" not in run("stats").stdout
    fill(*(request_row(i, first_content_s=float(i)) for i in range(1, 101)))
    (group,) = objects(run("stats", "--format", "json"))
    assert group["first_content_s"]["p50"] == 50.0
    assert "\nfirst content  50.0 s" in run("stats").stdout


def test_incomplete_groups_are_marked(
    run: Run,
    fill: Fill,
    request_row: Requests,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rollups omit some combinations of labels. The requests with such a combination may be counted
    in another group."""
    rows = [(f"t{n % 4}", f"r{n % 3}") for n in range(24)]
    fill(
        *(
            request_row(
                n, received_unix_ns=START_S * 10**9, e2e_s=0.1, tenant=tenant, replica=replica
            )
            for n, (tenant, replica) in enumerate(rows)
        )
    )
    monkeypatch.setattr(request_rollups, "LabelSets", lambda **about: LabelSets(**about, sets=6))
    engine = open_database(url)
    build_marked(engine, START_S + 86_400)
    engine.dispose()
    words = ("stats", "--precision", "sketch", "--by")
    whole = objects(run(*words, "tenant", "--format", "json"))
    assert [(group["requests"], group["partial"]) for group in whole] == [(6, False)] * 4
    both = objects(run(*words, "tenant,replica", "--format", "json"))
    assert sum(group["requests"] for group in both) == 24
    assert any(group["partial"] for group in both)
    for group in both:
        assert group["requests"] == 2 or group["partial"] or group["replica"] == OTHER
    text = run(*words, "tenant,replica").stdout
    assert "groups, marked with +. Up to 12 requests of _other may belong to these groups" in text
    filtered = run(*words, "model", "--where", "tenant=elsewhere").stderr
    assert "may match the filter" not in filtered
