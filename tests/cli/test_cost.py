import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from store.database import open_database
from store.writer import Writer
from telemetry.gpus import GpuSample
from telemetry.requests import Outcome, RequestTimeline
from tests.cli import busy_engine

Run = Callable[..., Result]
Requests = Callable[..., RequestTimeline]
Serve = Callable[..., None]

START_S = 1_763_634_000
NS = 10**9
KEYS = [
    "from", "to", "simulated", "apportioned", "engines_from", "gaps_s", "total", "contradicted_s",
    "usd_per_hour", "mean_engines", "rates", "unpriced", "by", "groups", "lines", "engines",
    "sides", "undivided_usd", "managed",
    "not_compared", "break_even", "energy", "where", "selected",
]  # fmt: skip


@pytest.fixture
def serve(url: str, request_row: Requests) -> Serve:
    """Store three requests of an engine that ran for ten minutes and was half busy."""

    def make(device: str | None = "NVIDIA H100 80GB HBM3", **about: Any) -> None:
        printed: dict[str, Any] = {
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
            request_row(1, tenant="acme", **printed),
            request_row(2, tenant="acme", **printed),
            request_row(3, tenant="globex", **{**printed, "outcome": Outcome.ABORT}),
        ]
        engine = open_database(url)
        with Writer(engine) as writer:
            writer.submit(rows, busy_engine.samples(), [busy_engine.start(device, gpus=2)]).result(
                10
            )
        engine.dispose()

    return make


def printed(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_is_one_object_with_the_contracts_keys(run: Run, serve: Serve) -> None:
    """The bill is 600 s of two H100s at their price."""
    serve()
    found = printed(run("cost", "--by", "tenant", "--format", "json"))
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


def test_energy_is_shown_by_group_where_it_is_measured(run: Run, serve: Serve, url: str) -> None:
    """Two GPUs draw 300 W each, and idle power is subtracted."""
    serve()
    assert "Wh" not in run("cost", "--by", "tenant").stdout.split()
    assert printed(run("cost", "--by", "tenant", "--format", "json"))["groups"][0]["joules"] is None
    engine = open_database(url)
    gpus = [
        GpuSample(
            replica="r", gpu=gpu, at_unix_ns=(START_S + second) * NS, energy_j_total=300.0 * second
        )
        for gpu in ("GPU-1", "GPU-2")
        for second in range(0, 601, 10)
    ]
    with Writer(engine) as writer:
        writer.submit([], [], (), gpus).result(10)
    engine.dispose()
    found = printed(run("cost", "--by", "tenant", "--format", "json"))
    acme = found["groups"][0]
    at_work_j = found["energy"]["joules"] - found["energy"]["idle_joules"]
    assert acme["joules"] == pytest.approx(at_work_j * 180 / 300, rel=1e-6)
    shown = run("cost", "--by", "tenant").stdout
    assert f"{acme['joules'] / 3_600:,.3g}" in shown
    assert "Wh" in shown.split()


def test_text_begins_with_the_sum_and_lists_every_part(run: Run, serve: Serve) -> None:
    serve()
    shown = run("cost", "--by", "tenant").stdout
    for words in (
        "Cost of serving, 2025-11-20 10:20:00 to 10:30:00 UTC (10m)",
        "requests     $0.532  40.0 %  3, $177.33 per 1,000 without idle time;"
        " by share of each engine step",
        "recomputed",
        "idle         $0.665  50.0 %",
        "unbilled",
        "= bill",
        "for aborted or failed answers",
        "Priced at H100 SXM $3.99 per hour (RunPod: Pricing, Secure Cloud, 2026-11-09)",
        "acme",
        "would have cost",
        "Break-even",
    ):
        assert words in shown


def test_the_idle_engine_of_a_replica_is_named(run: Run, serve: Serve, url: str) -> None:
    """Engine 0 is half busy, and engine 1 takes no step."""
    serve()
    engine = open_database(url)
    with Writer(engine) as writer:
        idle = [replace(each, engine=1, busy_s_total=0.0) for each in busy_engine.samples()]
        start = replace(busy_engine.start("NVIDIA H100 80GB HBM3", gpus=2), engine=1)
        writer.submit([], idle, [start]).result(10)
    engine.dispose()
    found = printed(run("cost", "--format", "json"))
    assert [(each["engine"], each["busy_s"]) for each in found["engines"]] == [(0, 300), (1, 0)]
    assert sum(each["bill_usd"] for each in found["engines"]) == found["total"]["bill_usd"]
    assert sum(each["idle_usd"] for each in found["engines"]) == found["total"]["idle_usd"]
    lines = run("cost").output.partition(
        "Replicas with several engines: the cost of each engine\n"
    )[2]
    first, second, *_ = lines.splitlines()
    assert first.split() == ["r,", "engine", "1", "$1.33", "100.0", "%", "idle"]
    assert second.split() == ["r,", "engine", "0", "$1.33", "50.0", "%", "idle"]


def test_an_engine_without_a_price_is_named_and_the_way_to_give_it_one(
    run: Run, serve: Serve, tmp_path: Path
) -> None:
    serve("cpu")
    shown = run("cost").stdout
    assert "No price: r runs on 'cpu', which has no price; 3 requests are not in the bill." in shown
    assert 'devices: [{match: "cpu", usd_per_hour: 1.50}]' in shown
    assert "= bill" not in shown
    path = tmp_path / "prices.yaml"
    path.write_text('devices: [{match: "cpu", usd_per_hour: 1.50}]')
    found = printed(run("cost", "--prices", str(path), "--format", "json"))
    assert found["total"]["bill_usd"] == pytest.approx(600 * 2 * 1.5 / 3_600)
    assert found["unpriced"] == []


def test_an_engine_without_a_device_can_be_priced_by_its_replica(run: Run, serve: Serve) -> None:
    serve(None)
    assert 'replicas: [{match: "r", usd_per_hour: 1.50}]' in run("cost").stdout


def test_a_server_without_engine_data_gets_a_hint(
    run: Run, fill: Callable[..., None], request_row: Requests
) -> None:
    """vLLM's native spans have no engine, and client spans have no server."""
    fill(request_row(1, replica="bare", prompt_tokens=5, output_tokens=5), request_row(2))
    shown = run("cost").stdout
    assert "No price: requests from client spans have no server name; 1 request is" in shown
    assert "No price: no engine of bare reported; 1 request is" in shown
    assert "tailspan up --scrape" in shown
    assert "--prices" not in shown


def test_costs_per_request_and_token_leave_out_requests_without_a_price(
    run: Run, serve: Serve, fill: Callable[..., None], request_row: Requests
) -> None:
    serve()
    without = run("cost", "--by", "tenant").stdout
    fill(request_row(4, tenant="acme", replica="bare", prompt_tokens=9, output_tokens=9))
    shown = run("cost", "--by", "tenant").stdout
    (before,), (now,) = (
        [line.split() for line in each.splitlines() if line.startswith("acme")]
        for each in (without, shown)
    )
    # The columns are cost, share, cost of an hour, managed, requests and cost of 1,000 requests.
    assert (before[1], before[6], before[7]) == ("$0.399", "2", "$199.50")
    assert (now[1], now[6], now[7]) == ("$0.399", "3", "$199.50")
    acme = printed(run("cost", "--by", "tenant", "--format", "json"))["groups"][0]
    assert (acme["requests"], acme["unpriced_requests"]) == (3, 1)
    assert (acme["usd_per_1k_input_tokens"], acme["usd_per_1k_output_tokens"]) == (None, None)


def test_requests_without_accounts_are_priced_by_tokens(run: Run, serve: Serve) -> None:
    serve(billed_s=None, wasted_s=None)
    found = printed(run("cost", "--format", "json"))
    assert found["total"]["priced_by"] == "tokens"
    assert found["total"]["requests_usd"] == pytest.approx(300 * 2 * 3.99 / 3_600)
    assert "by weighted tokens" in run("cost").stdout


def test_a_window_without_engines_has_a_hint(run: Run, url: str, serve: Serve) -> None:
    open_database(url).dispose()
    assert "connect a server" in run("cost").stderr
    serve()
    later = run("cost", "--from", str(START_S + 7_200), "--to", str(START_S + 7_260), window=False)
    assert "try --from" in later.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--by", "colour"], "costs cannot be grouped by 'colour'; allowed: tenant, model"),
        (["--where", "hour=3"], "unknown label 'hour'; allowed: tenant, model, route, replica"),
        (["--prices", "/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
    ],
)
def test_a_wrong_option_is_reported_with_the_allowed_values(
    run: Run, fill: Callable[..., None], words: list[str], complaint: str
) -> None:
    fill()
    result = run("cost", *words)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_doctor_shows_the_price_of_each_engine(run: Run, serve: Serve) -> None:
    serve()
    result = run("doctor", "--format", "json", "--no-explorer", window=False)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    (priced,) = [each for each in found if each["check"] == "prices"]
    assert priced["ok"] is True
    assert priced["detail"].startswith("an engine on 2 × H100 SXM: $7.98 per hour (RunPod")


def test_doctor_names_a_device_that_has_no_price(run: Run, serve: Serve) -> None:
    serve("cpu")
    shown = run("doctor", "--no-explorer", window=False).stdout
    assert "?     prices     r runs on 'cpu', which has no price" in shown
    assert "→ set a price: --prices FILE or TAILSPAN_PRICES" in shown


def test_requests_are_shown_with_their_known_cost(run: Run, serve: Serve) -> None:
    serve(cost_usd=0.01234)
    shown = run("requests").stdout
    assert "cost" in shown
    assert "$0.0123" in shown


def test_a_filter_selects_requests_and_leaves_the_bill(run: Run, serve: Serve) -> None:
    """The engines' bill stays the same; only the selected requests are grouped and compared."""
    serve()
    every = printed(run("cost", "--by", "tenant", "--format", "json"))
    acme = printed(run("cost", "--where", "tenant=acme", "--by", "outcome", "--format", "json"))
    assert acme["where"] == {"tenant": "acme"}
    assert acme["total"] == every["total"]
    assert every["selected"] is None
    (group,) = acme["groups"]
    assert group["requests"] == 2
    assert group["cost_usd"] == pytest.approx(every["groups"][0]["cost_usd"])
    assert acme["selected"]["cost_usd"] == pytest.approx(group["cost_usd"])
    assert acme["managed"][0]["requests"] == 2
    assert acme["break_even"] is None  # break-even needs the whole traffic
    shown = run("cost", "--where", "tenant=acme").stdout
    assert "tenant=acme: $0.399 (30.0 % of the bill, $2.39 an hour) for 2 requests." in shown
    assert printed(run("cost", "--where", "tenant=", "--format", "json"))["groups"] == []


def test_hourly_cost_and_managed_prices_of_groups_sum_to_the_whole(run: Run, serve: Serve) -> None:
    """The hourly cost is the requests' share of the bill. The managed price is for the same
    tokens."""
    serve()
    found = printed(run("cost", "--by", "tenant", "--format", "json"))
    total, groups = found["total"], found["groups"]
    requests_usd = total["requests_usd"] + total["wasted_usd"]
    assert sum(each["usd_per_hour"] for each in groups) == pytest.approx(requests_usd * 6)
    managed = sum(each["managed_usd"] for each in groups)
    assert managed == pytest.approx(found["managed"][0]["cost_usd"])
    (group,) = printed(run("cost", "--by", "hour,model", "--format", "json"))["groups"]
    assert group["hour"] == START_S // 3_600 * 3_600
    assert group["model"] == "meta-llama/Llama-3.1-8B-Instruct"


def test_prices_by_replica_are_shown_safely_and_in_part(run: Run, url: str, tmp_path: Path) -> None:
    """Senders choose the names of replicas."""
    names = [f"\x1b[2Jr{number}" for number in range(6)]
    engine = open_database(url)
    with Writer(engine) as writer:
        for name in names:
            samples = [replace(each, replica=name) for each in busy_engine.samples()]
            writer.submit([], samples, []).result(10)
    engine.dispose()
    path = tmp_path / "prices.yaml"
    path.write_text('replicas: [{match: "*", usd_per_hour: 1.50}]')
    shown = run("cost", "--prices", str(path)).stdout
    (priced,) = (line for line in shown.splitlines() if line.startswith("Priced at"))
    assert priced.isprintable()
    assert priced.count("$1.50 per hour") == 4
    assert "and 2 more" in priced
