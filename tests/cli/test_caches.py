"""Cache lookups, from the spans of gateways to the output of commands."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from sqlalchemy import Engine

from alerts.evaluation.counting import counts_between
from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput
from cli.main import tailspan
from collector.server import Collector
from collector.testing import running
from exporters.prometheus import PrometheusExporter
from store.database import open_database
from store.queries import request_table
from store.requests.network_time import networks
from store.retention import delete_older
from store.rollups.bucket_builder import build_marked
from store.writer import Writer
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.cache_spans import CALL, HEADER, HTTP, SHAPES, message, of_every_cache, span
from tests.cli.busy_engine import samples, start
from tests.cli.output import START_S, printed

NS = 10**9
AT = (START_S + 60) * NS
HIT = {**HTTP, f"{HEADER}x-portkey-cache-status": ["HIT"]}

Row = Callable[..., RequestTimeline]


def send(engine: Engine, *spans: Span, service: str = "shop") -> httpx.Response:
    with Writer(engine) as writer:
        collector = Collector(writer, grpc_port=0, http_port=0, clock_unix_ns=lambda: AT + 600 * NS)
        with running(collector):
            return httpx.post(
                f"http://127.0.0.1:{collector.http_port}/v1/traces",
                content=message(*spans, service=service).SerializeToString(),
                headers={"Content-Type": "application/x-protobuf"},
            )


def serve(engine: Engine, request_row: Row, requests: int = 40) -> None:
    """Store requests of an engine at $3.99 per hour, with 0.5 s of engine time each."""
    rows = [
        request_row(
            number,
            replica="r",
            engine=0,
            model="tiny",
            tenant=("acme", "globex")[number % 2],
            billed_s=0.5 + number % 2,
            wasted_s=0.0,
            prompt_tokens=100,
            output_tokens=10,
            received_unix_ns=(START_S + number) * NS,
        )
        for number in range(requests)
    ]
    with Writer(engine) as writer:
        writer.submit(rows, samples(), [start("NVIDIA H100 80GB HBM3", gpus=1)]).result(10)
    build_marked(engine, START_S + 3_600)


def answer(engine: Engine, *words: str) -> Any:
    return json.loads(printed(engine, "caches", "--format", "json", *words))


def test_the_spans_of_every_gateway_reach_the_command(engine: Engine) -> None:
    assert send(engine, *of_every_cache(AT)).status_code == 200
    found = answer(engine, "--by", "cache")
    assert {each["cache"] for each in found["groups"]} == set(SHAPES)
    assert [(each["hits"], each["misses"]) for each in found["groups"]] == [(1, 1)] * len(SHAPES)
    assert (found["total"]["hits"], found["total"]["hit_ratio"]) == (len(SHAPES), 0.5)
    assert found["total"]["hit_ratio_low"] < 0.5 < found["total"]["hit_ratio_high"]
    assert found["similarity_of"] in SHAPES
    text = printed(engine, "caches", "--by", "cache")
    assert "10 hits of 20 lookups, 50.0% [29.9% to 70.1%]" in text
    assert (
        "Saved: unknown, because no answered request to the models of these hits has a cost."
        in text
    )


def test_what_hits_saved_is_the_mean_request_of_their_tenant_and_model(
    engine: Engine, request_row: Row
) -> None:
    serve(engine, request_row)
    of = {"gen_ai.cache.hit": True, **CALL}
    hits = [
        span(1, {**of, "tailspan.tenant": "acme"}, at_unix_ns=AT),
        span(2, {**of, "tailspan.tenant": "globex"}, at_unix_ns=AT),
        span(3, {**of, "tailspan.tenant": "initech"}, at_unix_ns=AT),
        span(4, {**of, "gen_ai.request.model": "other"}, at_unix_ns=AT),
    ]
    send(engine, *hits)
    found = answer(engine, "--by", "tenant")
    saved = {each["tenant"]: each["saved_engine_s"] for each in found["groups"]}
    assert saved == {
        "acme": pytest.approx(0.5),
        "globex": pytest.approx(1.5),
        "initech": pytest.approx(1.0),
        None: None,
    }
    total = found["total"]
    assert total["saved_engine_s"] == pytest.approx(3.0)
    assert total["saved_usd"] == pytest.approx(3.0 * 3.99 / 3_600)
    assert (total["hits"], total["saved_usd_hits"], total["saved_engine_s_hits"]) == (4, 3, 3)
    assert "for 3 of 4 hits, 3.00 s of engine time for 3 of 4 hits; an estimate" in printed(
        engine, "caches"
    )


def _calls(answered: str) -> list[Span]:
    """Return the spans of 40 calls that take 2 s, and of ten that take 1 ms.

    Each call contains an HTTP span.

    Args:
        answered: the span in which a cache reports that it answered the fast calls: `call`, `http`,
            or any other text for no span.
    """
    spans = []
    for number in range(50):
        fast = number >= 40
        about: dict[str, Any] = {"duration_s": 0.001 if fast else 2.0, "trace": 10_000 + number}
        call = {**CALL, "gen_ai.response.id": f"chatcmpl-{number % 40}"}
        inside = dict(HTTP)
        if fast and answered == "call":
            call["gen_ai.cache.hit"] = True
        if fast and answered == "http":
            inside = dict(HIT)
        at = AT + number * NS
        spans.append(span(2 * number + 1, call, at_unix_ns=at, **about))
        spans.append(span(2 * number + 2, inside, at_unix_ns=at, parent=2 * number + 1, **about))
    return spans


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the URLs of three databases: without the fast calls, and with fast calls that hit the
    cache, as the span `call` or as the span `http` reports it. Tests only read them."""
    folder = tmp_path_factory.mktemp("hits")
    urls = {}
    for name, spans in (
        ("none", [each for each in _calls("") if int.from_bytes(each.span_id, "big") <= 80]),
        ("call", _calls("call")),
        ("http", _calls("http")),
    ):
        urls[name] = f"sqlite:///{folder}/{name}.db"
        engine = open_database(urls[name])
        send(engine, *spans)
        build_marked(engine, START_S + 3_600)
        engine.dispose()
    return urls


@pytest.mark.parametrize(
    "words",
    [
        ("stats",),
        ("stats", "--by", "model", "--precision", "sketch"),
        ("cost", "--by", "model"),
        ("requests", "--sort", "e2e_s"),
        ("explain", "--baseline", f"{START_S - 600}/{START_S}"),
    ],
    ids=" ".join,
)
def test_hits_change_no_other_answer(words: tuple[str, ...], databases: dict[str, str]) -> None:
    """The result is the same if only the HTTP span inside the call reports the hit."""
    found = {}
    for name, url in databases.items():
        engine = open_database(url, create=False)
        found[name] = printed(engine, *words, "--format", "json")
        engine.dispose()
    assert found["call"] == found["none"]
    assert found["http"] == found["none"]
    assert len(found["none"]) > 300


def test_objectives_count_no_hits(engine: Engine) -> None:
    send(engine, *_calls("http"))
    goodput = Goodput(None, parse("e2e_s <= 0.5", GOOD))
    counted = counts_between(engine, goodput, START_S, START_S + 600)
    assert (counted.events, counted.bad) == (40, 40)


def test_a_hit_of_embeddings_inside_a_call_leaves_the_call_a_request(engine: Engine) -> None:
    embeds = {"gen_ai.operation.name": "embeddings", "gen_ai.cache.hit": True}
    send(engine, span(1, CALL, at_unix_ns=AT), span(2, embeds, at_unix_ns=AT, trace=1, parent=1))
    assert json.loads(printed(engine, "stats", "--format", "json"))["requests"] == 1
    assert answer(engine, "--by", "kind")["groups"][0]["kind"] == "embedding"


def test_a_hit_does_not_take_the_network_time_of_the_request_it_repeats(
    engine: Engine, request_row: Row
) -> None:
    """A cached response has the id of the response that was stored."""
    with Writer(engine) as writer:
        server = request_row(
            1, request_id="chatcmpl-0", received_unix_ns=AT, e2e_s=1.5, ttft_s=None, streamed=False
        )
        writer.submit([server], []).result(10)
    send(engine, *_calls("http")[:2], *_calls("http")[80:82])
    window = Window(START_S * NS, (START_S + 600) * NS)
    table = request_table(engine, window, equals={"replica": server.replica})
    assert networks(engine, window, table) == [pytest.approx(0.5)]


def test_one_lookup_counts_once_however_many_spans_report_it(engine: Engine) -> None:
    call = {**CALL, "gen_ai.cache.hit": True}
    send(
        engine,
        span(1, call, at_unix_ns=AT, trace=1),
        span(2, HIT, at_unix_ns=AT + 1, trace=1, parent=1),
    )
    at_gateway = {**CALL, "litellm.cache.hit": "True"}
    send(
        engine,
        span(3, {**HTTP, **at_gateway}, at_unix_ns=AT + 2, trace=1, parent=2),
        span(4, at_gateway, at_unix_ns=AT + 3, trace=1, parent=3),
        service="litellm",
    )
    found = answer(engine, "--by", "service,model")
    assert (found["reports"], found["total"]["hits"]) == (4, 1)
    assert (found["groups"][0]["service"], found["groups"][0]["model"]) == ("shop", "tiny")


def test_a_flood_of_names_is_one_group(engine: Engine) -> None:
    spans = [
        span(number + 1, {**HIT, "http.route": f"/<b>{number}</b>"}, at_unix_ns=AT + number)
        for number in range(1_000)
    ]
    send(engine, *spans)
    found = answer(engine)
    assert len(found["groups"]) == 200
    assert sum(each["hits"] for each in found["groups"]) == found["total"]["hits"] == 1_000
    assert (found["groups"][-1]["route"], found["groups"][-1]["hits"]) == ("_other", 801)


def test_more_reports_than_are_read_are_stated(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.caches.MAX_READ", 5)
    send(engine, *(span(number, HIT, at_unix_ns=AT + number * NS) for number in range(1, 21)))
    found = answer(engine)
    assert (found["reports"], found["reports_read"], found["total"]["hits"]) == (20, 5, 5)
    assert found["from"] == START_S + 60 + 16
    assert "the newest 5 of 20 reports in the range were read" in printed(engine, "caches")


def test_similarities_near_the_threshold_are_shown(engine: Engine) -> None:
    spans = [
        span(
            number + 1,
            {**CALL, "gen_ai.cache.hit": similarity >= 0.9, "gen_ai.cache.similarity": similarity},
            at_unix_ns=AT + number,
        )
        for number, similarity in enumerate([0.29, 0.88, 0.89, 0.9, 0.905, 0.96, 1.0])
    ]
    send(engine, *spans)
    found = answer(engine)
    bins = {each["from"]: (each["hits"], each["misses"]) for each in found["similarity"]}
    assert bins == {0.29: (0, 1), 0.88: (0, 1), 0.89: (0, 1), 0.9: (2, 0), 0.96: (1, 0),
                    0.99: (1, 0)}  # fmt: skip
    assert "The lowest similarity of a hit is 0.900." in printed(engine, "caches")
    assert found["similarity_of"] == "gen_ai"
    apisix = {**CALL, "http.response.header.x-ai-cache-status": "HIT",
              "http.response.header.x-ai-cache-similarity": "0.5"}  # fmt: skip
    send(engine, span(20, apisix, at_unix_ns=AT + 20))
    assert answer(engine)["lowest_hit_similarity"] == 0.9
    assert "Lookups of other caches with a similarity: 1." in printed(engine, "caches")


def test_the_query_of_a_route_is_not_stored(engine: Engine) -> None:
    send(
        engine,
        span(
            1, {**HIT, "litellm.request.route": "/v1/chat/completions?key=secret#a"}, at_unix_ns=AT
        ),
    )
    (group,) = answer(engine)["groups"]
    assert group["route"] == "/v1/chat/completions"


def test_lookups_are_deleted_with_other_rows(engine: Engine) -> None:
    send(engine, *of_every_cache(AT))
    delete_older(engine, 60 * NS, AT + 3_600 * NS, pause=lambda: None)
    assert answer(engine)["total"] is None


def test_metrics_of_requests_count_no_hits(engine: Engine) -> None:
    exporter = PrometheusExporter(clock_unix_ns=lambda: AT + 60 * NS)
    with Writer(engine) as writer:
        collector = Collector(
            writer, [exporter], grpc_port=0, http_port=0, clock_unix_ns=lambda: AT + 60 * NS
        )
        with running(collector):
            httpx.post(
                f"http://127.0.0.1:{collector.http_port}/v1/traces",
                content=message(*_calls("call")).SerializeToString(),
                headers={"Content-Type": "application/x-protobuf"},
            )
    sums = [
        sample
        for family in exporter.registry.collect()
        for sample in family.samples
        if sample.name.startswith("tailspan_requests") and sample.value
    ]
    assert sums == []


def test_without_lookups_the_command_says_where_they_come_from(engine: Engine) -> None:
    def ask(*words: str) -> Result:
        return CliRunner().invoke(tailspan, ["caches", *words, "--database", str(engine.url)])

    result = ask()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No lookups in caches were reported" in result.stderr
    wrong = ask("--by", "outcome")
    assert wrong.exit_code == 2
    assert "lookups cannot be grouped by 'outcome'; allowed: tenant, route" in wrong.output
    wrong = ask("--where", "colour=red")
    assert wrong.exit_code == 2
    assert "unknown label 'colour'; allowed: tenant, route" in wrong.output
