import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from analysis.cause_sentences import NAMES
from diagnosis.causes.registry import DETECTORS
from telemetry.requests import RequestTimeline

Run = Callable[..., Result]
Fill = Callable[..., None]
Row = Callable[..., RequestTimeline]


START_S = 1_763_634_000
BEFORE = f"{START_S - 600}/{START_S}"


def test_a_baseline_is_a_range_or_an_offset(queued: Callable[[float], None], run: Run) -> None:
    queued(2.0)
    found = json.loads(run("explain", "--baseline", "24h", "--format", "json").stdout)
    day_s = 86_400
    window, baseline = found["window"], found["baseline"]
    assert baseline["from"] == pytest.approx(window["from"] - day_s)
    assert baseline["to"] == pytest.approx(window["to"] - day_s)


def test_a_grown_tail_is_explained(queued: Callable[[float], None], run: Run) -> None:
    queued(2.0)
    result = run("explain", "--baseline", BEFORE, "--format", "json")
    printed = json.loads(result.stdout)
    assert result.exit_code == 1
    assert printed["verdict"] == "incident"
    assert printed["causes"][0]["id"] == "kv_cache_exhausted"
    assert printed["causes"][0]["share"] == pytest.approx(1.0, abs=0.01)
    assert set(printed["causes"][0]) == {
        *("id", "share", "share_low", "share_high", "evidence", "levers", "where")
    }
    assert printed["causes"][0]["share_low"] is None
    assert printed["causes"][0]["share_high"] is None
    assert printed["method"] == "accounting"
    assert printed["not_replayed"].startswith(
        "replica r0: its engine's arguments were not reported"
    )
    assert printed["unexplained"] == {
        "share": printed["unexplained_share"],
        "low": None,
        "high": None,
    }
    assert sum(phase["excess_s"] for phase in printed["phases"]) == pytest.approx(
        printed["excess_s"]
    )
    assert printed["excess_s"] == pytest.approx(2.0, abs=0.01)


def test_the_text_has_the_sentence_the_reason_the_source_and_a_solution(
    queued: Callable[[float], None], run: Run
) -> None:
    """Without a replay, there is no percentage."""
    queued(2.0)
    shown = run("explain").stdout
    assert "rose from" in shown.splitlines()[0]
    reason = shown.index("kv_cache_exhausted: the KV cache is full")
    assert reason < shown.index("Try: store the KV cache in 8 bits, --kv-cache-dtype fp8.")
    assert "\nProbably most of the growth: kv_cache_exhausted: " in shown
    source = "Shares: estimates from the step ledger, without intervals."
    assert f"{source} No replay: replica r0" in shown
    assert f"{source}\n" in run("explain", "--fast").stdout


def test_no_incident_is_a_result(queued: Callable[[float], None], run: Run) -> None:
    queued(0.0)
    result = run("explain")
    assert result.exit_code == 0
    assert result.stdout.startswith("Unchanged from the previous 10m: TTFT of the slowest 5% is ")


def test_too_few_requests_are_reported_with_the_number_needed(
    fill: Fill, request_row: Row, run: Run
) -> None:
    fill(*(request_row(number, ttft_s=0.1, streamed=True) for number in range(5)))
    result = run("explain")
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "Too little data")
    assert "both need at least 30" in result.stdout


def test_an_empty_window_has_a_hint(fill: Fill, run: Run) -> None:
    fill()
    assert "has no requests yet" in run("explain").stderr


def test_one_request_has_its_parts_and_its_delayers(fill: Fill, request_row: Row, run: Run) -> None:
    """The delay by other requests' prefill is divided among the requests in prefill at that
    time."""
    phases: dict[str, Any] = {"frontend_s": 0.0, "queue_s": 0.0, "delivery_s": 0.0}
    victim = request_row(
        0,
        request_id="victim",
        replica="r0",
        e2e_s=3.0,
        prefill_s=1.0,
        prefill_own_s=0.4,
        prefill_others_prefill_s=0.6,
        prefill_others_decode_s=0.0,
        prefill_preempted_s=0.0,
        prefill_stall_s=0.0,
        decode_s=2.0,
        prompt_tokens=10,
        output_tokens=5,
        **phases,
    )
    large, small, elsewhere = (
        request_row(
            number,
            received_unix_ns=START_S * 10**9 + number * 10**8,
            request_id=name,
            replica=replica,
            e2e_s=1.0,
            prefill_s=0.5,
            decode_s=0.5,
            prompt_tokens=tokens,
            output_tokens=5,
            **phases,
        )
        for number, (name, replica, tokens) in enumerate(
            [("large", "r0", 9000), ("small", "r0", 1000), ("elsewhere", "r1", 9000)], start=1
        )
    )
    fill(victim, large, small, elsewhere)
    printed = json.loads(run("explain", "--request", "victim", "--format", "json").stdout)
    assert [each["request_id"] for each in printed["delayed_by"]] == ["large", "small"]
    assert [each["cost_s"] for each in printed["delayed_by"]] == pytest.approx([0.54, 0.06])
    by_tenant = printed["delayed_by_tenant"]
    assert sum(each["prefill_s"] for each in by_tenant) == pytest.approx(0.6)
    assert sum(each["requests"] for each in by_tenant) == 2
    assert sum(each["seconds"] for each in printed["parts"]) == pytest.approx(3.0)
    assert "large" in run("explain", "--request", "victim").stdout


def test_requests_without_the_latency_are_not_reported_as_missing(
    fill: Fill, request_row: Row, run: Run
) -> None:
    fill(*(request_row(number, received_unix_ns=START_S * 10**9 + number) for number in range(3)))
    for metric in ("ttft", "first_content"):
        asked = ("explain", "--metric", metric, "--fast")
        shown = run(*asked)
        assert f"0 requests with {NAMES[metric]} in the window" in shown.stdout
        assert "No requests received" not in shown.output
        printed = json.loads(run(*asked, "--format", "json").stdout)
        assert (printed["verdict"], printed["requests"]) == ("insufficient_data", 0)
    elsewhere = run(*asked, "--where", "tenant=nobody-here")
    assert "No requests received" in elsewhere.stderr
    for words in (("stats", "--by", "tenant"), ("requests", "--sort", "-first_content_s")):
        assert "No requests" not in run(*words).output


def test_the_link_to_its_page_needs_the_explorers_address(
    fill: Fill, request_row: Row, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = request_row(1, request_id="mine", e2e_s=1.0)
    fill(row)
    assert "Look at it" not in run("explain", "--request", "mine").stdout
    monkeypatch.setenv("TAILSPAN_EXPLORER_URL", "https://tailspan.example.org/x/")
    key = f"{row.trace_id}/{row.span_id}"
    link = f"https://tailspan.example.org/x/?page=request&request={key}"
    assert f"Open it: {link}" in run("explain", "--request", "mine").stdout
    printed = json.loads(run("explain", "--request", key, "--format", "json").stdout)
    assert (printed["link"], printed["request_id"]) == (link, "mine")


def test_an_ambiguous_id_lists_the_keys(fill: Fill, request_row: Row, run: Run) -> None:
    rows = [request_row(number, trace_id="ab" * 16, e2e_s=1.0) for number in (1, 2)]
    fill(*rows)
    result = run("explain", "--request", "ab" * 16)
    assert result.exit_code == 2
    wanted = result.stderr.replace("\n", " ")
    assert "2 requests have this id; give one of" in wanted
    assert all(f"{row.trace_id}/{row.span_id}" in wanted for row in rows)


def test_an_aborted_request_has_an_account(fill: Fill, request_row: Row, run: Run) -> None:
    fill(request_row(1, request_id="left", outcome="abort", e2e_s=1.5, frontend_s=0.5, queue_s=1.0))
    printed = json.loads(run("explain", "--request", "left", "--format", "json").stdout)
    assert {each["part"]: each["seconds"] for each in printed["parts"]} == pytest.approx(
        {"frontend": 0.5, "queue_unsplit": 1.0}
    )


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--baseline", "yesterday"), "must be FROM/TO"),
        (("--baseline", "90000d"), "must not be earlier than 1970"),
        (("--baseline", "2/1"), "must end after it begins"),
        (("--baseline", "a/b"), "'a' is not a time"),
        (("--metric", "speed"), "'ttft', 'tpot', 'itl_max', 'e2e', 'queue'"),
        (("--request", "nobody"), "no such request in the database"),
        (("--where", "colour=red"), "unknown label"),
    ],
)
def test_wrong_usage_prints_the_option_and_the_allowed_values(
    fill: Fill, run: Run, words: tuple[str, ...], wanted: str
) -> None:
    fill()
    result = run("explain", *words)
    assert result.exit_code == 2
    assert wanted in result.stderr.replace("\n", " ")


def test_every_cause_of_the_catalogue_has_a_detector() -> None:
    """The ids of causes are part of the CLI's contract."""
    assert sorted(DETECTORS) == sorted(
        (
            *("retry_storm", "engine_hang"),
            *("load_exceeds_capacity", "kv_cache_exhausted", "preemption", "prefill_interference"),
            *("long_prompt_blocking", "longer_prompts", "longer_outputs", "prefix_cache_miss"),
            *("decode_batch_growth", "frontend_cpu", "engine_stall", "cold_start", "lora_swap"),
            *("spec_decode_rejection", "gpu_throttling", "noisy_neighbour", "slow_rank"),
            *("kv_transfer", "network_or_client", "tenant_flood", "replica_imbalance"),
            *("config_change", "grammar_compile", "encoder"),
        )
    )


def test_a_growth_that_meets_the_objective_can_be_explained_by_size(
    queued: Callable[[float], None], run: Run
) -> None:
    queued(0.2)
    held = run("explain", "--baseline", BEFORE)
    assert held.exit_code == 0
    assert (
        "Objective chat (only its limit on TTFT) was met: 100.0% of 400 requests within 500 ms"
        in held.stdout
    )
    assert "To explain the growth, use --by-size" in held.stdout
    by_size = run("explain", "--baseline", BEFORE, "--by-size")
    assert by_size.exit_code == 1
    assert "kv_cache_exhausted" in by_size.stdout


def test_a_filter_does_not_restrict_the_evidence(queued: Callable[[float], None], run: Run) -> None:
    """Only the filtered requests are counted, but the cause is found from all requests."""
    queued(2.0)
    for where in ("tenant=acme", "source=instrumentation", "streamed=true"):
        printed = json.loads(
            run("explain", "--baseline", BEFORE, "--where", where, "--format", "json").stdout
        )
        assert printed["requests"] == (200 if where == "tenant=acme" else 400), where
        assert printed["causes"][0]["id"] == "kv_cache_exhausted", where


def test_stale_data_is_reported_first(queued: Callable[[float], None], run: Run) -> None:
    """Stale data is only reported for a range that ends now."""
    queued(2.0)
    for verb in ("explain", "stats", "requests"):
        now = run(verb, "--last", "5000d", window=False)
        assert now.stdout.startswith("NO DATA for "), (verb, now.output)
        assert "NO DATA" not in run(verb).stdout


def test_the_growth_of_the_first_content_is_the_reasoning(
    fill: Fill, request_row: Row, run: Run
) -> None:
    """TTFT is unchanged. Decode is longer, and two thirds of it are reasoning."""
    rows = []
    for number in range(800):
        tokens = 300 if number >= 400 else 100
        decode_s, ttft_s = tokens * 0.01, 0.07 + 0.001 * (number % 10)
        rows.append(
            request_row(
                number,
                received_unix_ns=(START_S - 600) * 10**9 + number * 15 * 10**8,
                streamed=True,
                frontend_s=0.01,
                queue_s=0.0,
                prefill_s=0.05,
                decode_s=decode_s,
                ttft_s=ttft_s,
                first_content_s=ttft_s + decode_s * 2 / 3,
                e2e_s=ttft_s + decode_s,
                output_tokens=tokens + 1,
            )
        )
    fill(*rows)
    asked = ("explain", "--metric", "first_content", "--baseline", BEFORE)
    printed = json.loads(run(*asked, "--format", "json").stdout)
    assert printed["metric"] == "first_content"
    assert printed["excess_s"] == pytest.approx(4 / 3)
    grown = {phase["phase"]: phase["excess_s"] for phase in printed["phases"]}
    assert sum(grown.values()) == pytest.approx(4 / 3)
    assert grown["reasoning"] == pytest.approx(4 / 3)
    assert "decode" not in grown
    parts = {part["part"]: part["excess_s"] for part in printed["parts"]}
    assert sum(parts.values()) == pytest.approx(4 / 3)
    assert printed["not_replayed"].startswith("a replay does not divide the output")
    shown = run(*asked).stdout
    assert shown.startswith("first content of the slowest")
    assert "\nreasoning " in shown
