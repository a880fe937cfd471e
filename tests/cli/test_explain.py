"""`tailspan explain`."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from diagnosis.causes.registry import DETECTORS
from telemetry.requests import RequestTimeline

START_S = 1_763_634_000
BEFORE = f"{START_S - 600}/{START_S}"


def test_a_grown_tail_is_explained(
    queued: Callable[[float], None],
    run: Callable[..., Result],
) -> None:
    """With its cause, and an exit status that stops a pipeline."""
    queued(2.0)
    result = run("explain", "--baseline", BEFORE, "--format", "json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["verdict"] == "incident"
    assert told["causes"][0]["id"] == "kv_cache_exhausted"
    assert told["causes"][0]["share"] == pytest.approx(1.0, abs=0.01)
    assert set(told["causes"][0]) == {
        *("id", "share", "share_low", "share_high", "evidence", "levers", "where")
    }
    assert told["causes"][0]["share_low"] is None
    assert told["causes"][0]["share_high"] is None
    assert sum(phase["excess_s"] for phase in told["phases"]) == pytest.approx(told["excess_s"])
    assert told["excess_s"] == pytest.approx(2.0, abs=0.01)


def test_the_text_has_the_sentence_the_reason_and_the_way_out(
    queued: Callable[[float], None], run: Callable[..., Result]
) -> None:
    """In this order, for a tired reader; without a baseline, against the stretch before."""
    queued(2.0)
    shown = run("explain").stdout
    assert "rose from" in shown.splitlines()[0]
    reason = shown.index("kv_cache_exhausted: the KV cache is full")
    assert reason < shown.index("Try: store the KV cache in 8 bits, --kv-cache-dtype fp8.")


def test_nothing_to_find_is_an_answer(
    queued: Callable[[float], None], run: Callable[..., Result]
) -> None:
    """Exit status 0, and the two figures that were held against each other."""
    queued(0.0)
    result = run("explain")
    assert result.exit_code == 0
    assert result.stdout.startswith("Unchanged from the previous 10m: TTFT of the slowest 5% is ")


def test_too_few_requests_are_told_with_how_many_it_takes(
    fill: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    run: Callable[..., Result],
) -> None:
    """Rather than a verdict on an anecdote."""
    fill(*(request_row(number, ttft_s=0.1, streamed=True) for number in range(5)))
    result = run("explain")
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "Too little data")
    assert "each needs 30" in result.stdout


def test_an_empty_window_says_what_to_do(
    fill: Callable[..., None], run: Callable[..., Result]
) -> None:
    """As the other verbs do."""
    fill()
    assert "holds no request yet" in run("explain").stderr


def test_one_request_tells_its_parts_and_who_delayed_it(
    fill: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    run: Callable[..., Result],
) -> None:
    """The seconds that others' prefill cost it are divided among those who prefilled then."""
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
    told = json.loads(run("explain", "--request", "victim", "--format", "json").stdout)
    assert [each["request_id"] for each in told["delayed_by"]] == ["large", "small"]
    assert [each["cost_s"] for each in told["delayed_by"]] == pytest.approx([0.54, 0.06])
    assert sum(each["seconds"] for each in told["parts"]) == pytest.approx(3.0)
    assert "large" in run("explain", "--request", "victim").stdout


def test_the_link_to_its_page_is_told_where_the_explorer_is_known(
    fill: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only who put it there knows by which name people reach it."""
    row = request_row(1, request_id="mine", e2e_s=1.0)
    fill(row)
    assert "Look at it" not in run("explain", "--request", "mine").stdout
    monkeypatch.setenv("TAILSPAN_EXPLORER_URL", "https://tailspan.example.org/x/")
    key = f"{row.trace_id}/{row.span_id}"
    link = f"https://tailspan.example.org/x/?page=request&request={key}"
    assert f"Open it: {link}" in run("explain", "--request", "mine").stdout
    told = json.loads(run("explain", "--request", key, "--format", "json").stdout)
    assert (told["link"], told["request_id"]) == (link, "mine")


def test_an_id_that_several_bear_lists_their_keys(
    fill: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    run: Callable[..., Result],
) -> None:
    """Rather than the account of one of them."""
    rows = [request_row(number, trace_id="ab" * 16, e2e_s=1.0) for number in (1, 2)]
    fill(*rows)
    result = run("explain", "--request", "ab" * 16)
    assert result.exit_code == 2
    said = result.stderr.replace("\n", " ")
    assert "2 requests have this id; give one of" in said
    assert all(f"{row.trace_id}/{row.span_id}" in said for row in rows)


def test_one_that_was_cut_short_has_an_account_too(
    fill: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    run: Callable[..., Result],
) -> None:
    """What it waited for did happen; no part is negative."""
    fill(request_row(1, request_id="left", outcome="abort", e2e_s=1.5, frontend_s=0.5, queue_s=1.0))
    told = json.loads(run("explain", "--request", "left", "--format", "json").stdout)
    assert {each["part"]: each["seconds"] for each in told["parts"]} == pytest.approx(
        {"frontend": 0.5, "queue_unsplit": 1.0}
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--baseline", "yesterday"), "it must be FROM/TO"),
        (("--baseline", "2/1"), "it must end after it begins"),
        (("--baseline", "a/b"), "'a' is no instant"),
        (("--metric", "speed"), "'ttft', 'tpot', 'itl_max', 'e2e', 'queue'"),
        (("--request", "nobody"), "no such request in the database"),
        (("--where", "colour=red"), "is no label"),
    ],
)
def test_wrong_usage_names_the_option_and_what_is_allowed(
    fill: Callable[..., None], run: Callable[..., Result], words: tuple[str, ...], said: str
) -> None:
    """Exit status 2."""
    fill()
    result = run("explain", *words)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")


def test_every_cause_of_the_catalogue_has_a_detector() -> None:
    """The ids are a contract: `tailspan explain` prints them, and nothing else."""
    assert sorted(DETECTORS) == sorted(
        (
            *("load_exceeds_capacity", "kv_cache_exhausted", "preemption", "prefill_interference"),
            *("long_prompt_blocking", "longer_prompts", "longer_outputs", "prefix_cache_miss"),
            *("decode_batch_growth", "frontend_cpu", "engine_stall", "cold_start", "lora_swap"),
            *("spec_decode_rejection", "gpu_throttling", "noisy_neighbour", "slow_rank"),
            *("kv_transfer", "network_or_client", "tenant_flood", "replica_imbalance"),
            "config_change",
        )
    )


def test_a_growth_that_keeps_the_objective_is_explained_by_size_alone(
    queued: Callable[[float], None], run: Callable[..., Result]
) -> None:
    """Nobody was hurt: that is the verdict, and how to ask all the same."""
    queued(0.2)
    held = run("explain", "--baseline", BEFORE)
    assert held.exit_code == 0
    assert "Objective chat held: 100.0% of 400 requests within 500 ms" in held.stdout
    assert "--by-size explains that" in held.stdout
    by_size = run("explain", "--baseline", BEFORE, "--by-size")
    assert by_size.exit_code == 1
    assert "kv_cache_exhausted" in by_size.stdout


def test_a_filter_leaves_the_evidence_whole(
    queued: Callable[[float], None], run: Callable[..., Result]
) -> None:
    """The counts are of those asked about, the cause is everybody's; also by a label that the
    diagnosis has no other use for."""
    queued(2.0)
    for where in ("tenant=acme", "source=instrumentation", "streamed=true"):
        told = json.loads(
            run("explain", "--baseline", BEFORE, "--where", where, "--format", "json").stdout
        )
        assert told["requests"] == (200 if where == "tenant=acme" else 400), where
        assert told["causes"][0]["id"] == "kv_cache_exhausted", where


def test_where_no_data_comes_any_more_is_said_first(
    queued: Callable[[float], None], run: Callable[..., Result]
) -> None:
    """In a range that ends now; a past one had its data."""
    queued(2.0)
    for verb in ("explain", "stats", "requests"):
        now = run(verb, "--last", "5000d", window=False)
        assert now.stdout.startswith("NO DATA for "), (verb, now.output)
        assert "NO DATA" not in run(verb).stdout
