import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from store.database import open_database
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import Outcome, RequestTimeline
from telemetry.starts import EngineStart

Run = Callable[..., Result]
Requests = Callable[..., RequestTimeline]
Serve = Callable[..., None]

START_S = 1_763_634_000
NS = 10**9
KEYS = [
    "from", "to", "simulated", "apportioned", "engines_from", "gaps_s", "total", "contradicted_s",
    "usd_per_hour", "mean_engines", "rates", "unpriced", "by", "groups", "lines", "managed",
    "not_compared", "break_even", "energy",
]  # fmt: skip


@pytest.fixture
def serve(url: str, request_row: Requests) -> Serve:
    """An engine that was up for ten minutes and half busy, with three requests."""

    def make(device: str | None = "NVIDIA H100 80GB HBM3", **about: Any) -> None:
        samples = [
            EngineSample(
                replica="r",
                engine=0,
                process=1,
                at_unix_ns=(START_S + second) * NS,
                started_unix_ns=START_S * NS,
                busy_s_total=second / 2,
            )
            for second in range(0, 601, 10)
        ]
        start = EngineStart(
            replica="r",
            engine=0,
            process=1,
            at_unix_ns=START_S * NS,
            config="c",
            arguments="{}",
            device=device,
            gpus=2,
        )
        told: dict[str, Any] = {
            "replica": "r",
            "engine": 0,
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "billed_s": 80.0,
            "wasted_s": 10.0,
            "prompt_tokens": 1_000,
            "cached_tokens": 500,
            "output_tokens": 200,
            **about,
        }
        rows = [
            request_row(1, tenant="acme", **told),
            request_row(2, tenant="acme", **told),
            request_row(3, tenant="globex", **{**told, "outcome": Outcome.ABORT}),
        ]
        engine = open_database(url)
        with Writer(engine) as writer:
            writer.submit(rows, samples, [start]).result(10)
        engine.dispose()

    return make


def told(result: Result) -> dict[str, Any]:
    """The one object."""
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_is_one_object_with_the_contracts_keys(run: Run, serve: Serve) -> None:
    """And the bill is price × wall: 600 s of two H100s."""
    serve()
    found = told(run("cost", "--by", "tenant", "--format", "json"))
    assert list(found) == KEYS
    total = found["total"]
    usd_per_s = 2 * 3.99 / 3_600
    assert total["bill_usd"] == pytest.approx(600 * usd_per_s)
    assert total["idle_usd"] == pytest.approx(300 * usd_per_s)
    assert total["requests_usd"] == pytest.approx(240 * usd_per_s)
    assert total["lost_usd"] == pytest.approx(80 * usd_per_s)
    assert total["wasted_usd"] == pytest.approx(30 * usd_per_s)
    assert total["unbilled_usd"] == pytest.approx(30 * usd_per_s)
    assert [(g["tenant"], g["requests"]) for g in found["groups"]] == [("acme", 2), ("globex", 1)]
    assert found["groups"][0]["cost_usd"] == pytest.approx(180 * usd_per_s)
    assert found["managed"][0]["managed_model"] == "meta-llama/llama-3.1-8b-instruct"
    assert found["break_even"]["reachable"] is None


def test_what_gpus_drew_is_told_by_group_where_they_tell(run: Run, serve: Serve, url: str) -> None:
    """Two GPUs at 300 W, idle time taken off: in JSON, and as a column."""
    serve()
    assert "Wh" not in run("cost", "--by", "tenant").stdout.split()
    assert told(run("cost", "--by", "tenant", "--format", "json"))["groups"][0]["joules"] is None
    engine = open_database(url)
    gpus = [
        GpuSample(
            replica="r",
            gpu=gpu,
            at_unix_ns=(START_S + second) * NS,
            energy_j_total=300.0 * second,
        )
        for gpu in ("GPU-1", "GPU-2")
        for second in range(0, 601, 10)
    ]
    with Writer(engine) as writer:
        writer.submit([], [], (), gpus).result(10)
    engine.dispose()
    found = told(run("cost", "--by", "tenant", "--format", "json"))
    acme = found["groups"][0]
    at_work_j = found["energy"]["joules"] - found["energy"]["idle_joules"]
    assert acme["joules"] == pytest.approx(at_work_j * 180 / 300, rel=1e-6)
    shown = run("cost", "--by", "tenant").stdout
    assert f"{acme['joules'] / 3_600:,.3g}" in shown
    assert "Wh" in shown.split()


def test_text_leads_with_the_sum_and_names_every_part(run: Run, serve: Serve) -> None:
    """What a platform engineer reads in ten seconds."""
    serve()
    shown = run("cost", "--by", "tenant").stdout
    for words in (
        "What serving cost, 2025-11-20 10:20:00 to 10:30:00 UTC (10m)",
        "requests     $0.532  40.0 %  3, $177.33 per 1,000; by their share of each engine step",
        "recomputed",
        "idle         $0.665  50.0 %",
        "unbilled",
        "= bill",
        "went to undelivered answers",
        "Priced at H100 SXM $3.99 an hour (RunPod: Pricing, Secure Cloud, 2026-11-09)",
        "acme",
        "would have cost",
        "Break-even",
    ):
        assert words in shown


def test_an_engine_without_a_price_is_named_and_the_way_to_give_it_one(
    run: Run, serve: Serve, tmp_path: Path
) -> None:
    """A line to paste, which then works."""
    serve("cpu")
    shown = run("cost").stdout
    assert "No price: r runs on 'cpu', which has no price; 3 requests are not in the bill." in shown
    assert 'devices: [{match: "cpu", usd_per_hour: 1.50}]' in shown
    assert "= bill" not in shown
    path = tmp_path / "prices.yaml"
    path.write_text('devices: [{match: "cpu", usd_per_hour: 1.50}]')
    found = told(run("cost", "--prices", str(path), "--format", "json"))
    assert found["total"]["bill_usd"] == pytest.approx(600 * 2 * 1.5 / 3_600)
    assert found["unpriced"] == []


def test_an_engine_that_tells_no_device_can_be_priced_by_its_replica(
    run: Run, serve: Serve
) -> None:
    """The line to paste names it."""
    serve(None)
    assert 'replicas: [{match: "r", usd_per_hour: 1.50}]' in run("cost").stdout


def test_a_server_whose_engine_nobody_sees_is_told_how_to_be_seen(
    run: Run, fill: Callable[..., None], request_row: Requests
) -> None:
    """vLLM's own spans tell no engine; a client's tell no server even."""
    fill(request_row(1, replica="bare", prompt_tokens=5, output_tokens=5), request_row(2))
    shown = run("cost").stdout
    assert "No price: requests from clients alone name no server; 1 request is" in shown
    assert "No price: no engine of bare was seen; 1 request is" in shown
    assert "tailspan up --scrape" in shown
    assert "--prices" not in shown


def test_requests_without_accounts_are_priced_by_tokens_and_say_so(run: Run, serve: Serve) -> None:
    """All busy time is theirs."""
    serve(billed_s=None, wasted_s=None)
    found = told(run("cost", "--format", "json"))
    assert found["total"]["priced_by"] == "tokens"
    assert found["total"]["requests_usd"] == pytest.approx(300 * 2 * 3.99 / 3_600)
    assert "by weighted tokens" in run("cost").stdout


def test_a_window_without_engines_says_what_to_do(run: Run, url: str, serve: Serve) -> None:
    """Nothing yet; or another time."""
    open_database(url).dispose()
    assert "connect a server" in run("cost").stderr
    serve()
    later = run("cost", "--from", str(START_S + 7_200), "--to", str(START_S + 7_260), window=False)
    assert "try --from" in later.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--by", "colour"], "'colour' is no label to group costs by; allowed: tenant, model"),
        (["--by", "hour,hour"], "hour is given twice"),
        (["--prices", "/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(
    run: Run, serve: Serve, words: list[str], complaint: str
) -> None:
    """Exit 2."""
    serve()
    result = run("cost", *words)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_hours_and_models_can_be_told_apart(run: Run, serve: Serve) -> None:
    """`hour` is no label of a request, and groups all the same."""
    serve()
    (group,) = told(run("cost", "--by", "hour,model", "--format", "json"))["groups"]
    assert group["hour"] == START_S // 3_600 * 3_600
    assert group["model"] == "meta-llama/Llama-3.1-8B-Instruct"


def test_doctor_says_what_each_engine_costs_or_that_nobody_knows(run: Run, serve: Serve) -> None:
    """By the telemetry of last; what has no price is no failure."""
    serve()
    result = run("doctor", "--format", "json", "--no-explorer", window=False)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    (priced,) = [each for each in found if each["check"] == "prices"]
    assert priced["ok"] is True
    assert priced["detail"].startswith("an engine on 2 × H100 SXM: $7.98 an hour (RunPod")


def test_doctor_names_a_device_that_has_no_price(run: Run, serve: Serve) -> None:
    """And how to give it one."""
    serve("cpu")
    shown = run("doctor", "--no-explorer", window=False).stdout
    assert "?     prices     r runs on 'cpu', which has no price" in shown
    assert "→ give it one: --prices FILE or TAILSPAN_PRICES" in shown


def test_requests_are_shown_with_their_cost_where_it_is_known(run: Run, serve: Serve) -> None:
    """The last column, absent where no row has one."""
    serve(cost_usd=0.01234)
    shown = run("requests").stdout
    assert "cost" in shown
    assert "$0.0123" in shown
