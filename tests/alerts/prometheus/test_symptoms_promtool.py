"""Rules on symptoms, and on vLLM's own histograms, in Prometheus' own hands."""

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from alerts.objectives import Objective
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from alerts.prometheus.latency_rules import latency_group
from alerts.prometheus.rulefile import Alert, render
from alerts.prometheus.symptom_rules import symptom_groups

pytestmark = pytest.mark.real

Run = Callable[[str, Mapping[str, object]], None]

FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing",severity!="info"})'
LAST_SAMPLE: Final = (
    'tailspan_engine_last_sample_timestamp_seconds{model="m",replica="r",engine="0"}'
)
ENGINE: Final = '{model="m",replica="r",engine="0"}'


def run(promtool: Run, rules: str, series: dict[str, str], fires: dict[str, list[str]]) -> None:
    """Which alerts fire at which times.

    Args:
        promtool: the fixture.
        rules: the rules file.
        series: values by series, a minute apart.
        fires: by time, the alerts that fire then; no others may.
    """
    promtool(
        rules,
        {
            "input_series": [{"series": name, "values": v} for name, v in series.items()],
            "promql_expr_test": [
                {
                    "expr": FIRING,
                    "eval_time": at,
                    "exp_samples": [
                        {"labels": f'{{alertname="{name}"}}', "value": 1} for name in names
                    ],
                }
                for at, names in fires.items()
            ],
        },
    )


def symptoms(promtool: Run, series: dict[str, str], fires: dict[str, list[str]]) -> None:
    """Of a Tailspan that is scraped, and hears of an engine."""
    series = {"tailspan_build_info": "1x600", LAST_SAMPLE: "0+60x600", **series}
    groups = [latency_group(EXPLORER_URL), *symptom_groups(EXPLORER_URL)]
    run(promtool, render(groups), series, fires)


def test_nothing_is_told_of_a_fleet_that_rests(promtool: Run) -> None:
    """Every series at its lowest, and most of them absent."""
    symptoms(promtool, {}, {f"{at}m": [] for at in range(0, 400, 20)})
    zeros = {
        f"tailspan_engine_{name}{ENGINE}": "0x400"
        for name in (
            "waiting_requests",
            "running_requests",
            "kv_cache_usage_ratio",
            "preemptions_total",
            "prefix_cache_queries_tokens_total",
            "prefix_cache_hits_tokens_total",
        )
    } | {
        f"tailspan_instrumentation_{name}_total{ENGINE}": "0x400"
        for name in ("spans_dropped", "hook_failures")
    }
    counted = {
        f'tailspan_requests_total{{model="m",replica="r",outcome="{outcome}"}}': "0x400"
        for outcome in ("stop", "error", "abort", "rejected")
    }
    symptoms(promtool, {**zeros, **counted}, {f"{at}m": [] for at in range(0, 400, 20)})


@pytest.mark.parametrize(
    ("alert", "latency", "above", "below"),
    [
        ("TailspanTtftP99High", "ttft", "2.1", "1.9"),
        ("TailspanTpotP99High", "tpot", "0.21", "0.19"),
        ("TailspanE2eP99High", "e2e", "61", "59"),
        ("TailspanQueueP99High", "queue", "1.1", "0.9"),
    ],
)
def test_a_high_p99_is_told_once_it_lasts(
    promtool: Run, alert: str, latency: str, above: str, below: str
) -> None:
    """For five minutes, and no longer than it is; neither just below nor where nobody knows."""

    def p(quantile: str) -> str:
        return f'tailspan_recent_model_{latency}_seconds{{model="m",quantile="{quantile}"}}'

    low = {p("0.5"): "0.01x60", p("0.95"): "0.02x60"}
    symptoms(
        promtool,
        {**low, p("0.99"): f"{below}x20 {above}x20 {below}x20"},
        {"19m": [], "24m": [], "27m": [alert], "40m": [alert], "42m": []},
    )
    symptoms(promtool, {**low, p("0.99"): f"{above}x3 {below}x30"}, {"8m": [], "20m": []})
    symptoms(promtool, {p("0.99"): f"{above}x10 stale _x30"}, {"10m": [alert], "12m": []})
    # Too few for a P99: it is above the limit where a lower quantile is, else nobody knows.
    symptoms(promtool, low, {"30m": []})
    symptoms(promtool, {p("0.5"): f"{above}x40"}, {"30m": [alert]})


def test_a_high_p99_says_how_high_and_where_to_look(promtool: Run) -> None:
    """A model's name is escaped in the link."""
    rules = render([latency_group(EXPLORER_URL)])
    test = {
        "input_series": [
            {
                "series": 'tailspan_recent_model_ttft_seconds{model="a/b c",quantile="0.99"}',
                "values": "3.5x20",
            }
        ],
        "alert_rule_test": [
            {
                "eval_time": "10m",
                "alertname": "TailspanTtftP99High",
                "exp_alerts": [
                    {
                        "exp_labels": {"model": "a/b c", "severity": "ticket"},
                        "exp_annotations": {
                            "summary": "a/b c: P99 of TTFT is above 2 s",
                            "description": "At least 3.5s over the last 5 min, for 5 min."
                            " A wait of more than 1 s interrupts a reader's train of"
                            " thought; this is twice as long.",
                            "dashboard_url": "http://127.0.0.1:8501/?last=1h&latency=ttft&page=root-cause"
                            "&model=a%2Fb+c",
                        },
                    }
                ],
            }
        ],
    }
    promtool(rules, test)


def test_a_hung_engine_pages_while_requests_wait(promtool: Run) -> None:
    """Above a minute without a step, at once; neither below nor without a request in flight."""
    requests = f"tailspan_engine_in_flight_requests{ENGINE}"
    step = f"tailspan_engine_last_step_age_seconds{ENGINE}"
    hung = ["TailspanEngineHung"]
    symptoms(
        promtool,
        {requests: "12x20", step: "1 30 60 61 120 180 0x20"},
        {"1m": [], "2m": [], "3m": hung, "5m": hung, "6m": [], "10m": []},
    )
    symptoms(promtool, {requests: "12x3 0x20", step: "61x3 stale"}, {"3m": hung, "5m": []})
    symptoms(promtool, {step: "600x20"}, {"10m": []})
    symptoms(promtool, {requests: "12x20"}, {"10m": []})


def test_one_page_names_a_hung_replica_and_its_requests(promtool: Run) -> None:
    """However many engines its front end serves: it reports all of its requests with each."""
    groups = symptom_groups(EXPLORER_URL)
    (rule,) = [
        rule
        for group in groups
        for rule in group.rules
        if isinstance(rule, Alert) and rule.alert == "TailspanEngineHung"
    ]
    each = [f'{{model="m",replica="r",engine="{number}"}}' for number in (0, 1)]
    test = {
        "input_series": [
            {"series": f"tailspan_engine_{name}{labels}", "values": values}
            for labels in each
            for name, values in (
                ("in_flight_requests", "12x10"),
                ("last_step_age_seconds", "95x10"),
            )
        ],
        "alert_rule_test": [
            {
                "eval_time": "2m",
                "alertname": "TailspanEngineHung",
                "exp_alerts": [
                    {
                        "exp_labels": {"model": "m", "replica": "r", "severity": "page"},
                        "exp_annotations": {
                            **rule.annotations,
                            "summary": "r: the engine hangs with 12 requests in flight",
                        },
                    }
                ],
            }
        ],
    }
    promtool(render(groups), test)


def test_a_long_queue_is_told_and_a_short_one_is_not(promtool: Run) -> None:
    """More waiting than running, for a while."""
    symptoms(
        promtool,
        {
            f"tailspan_engine_waiting_requests{ENGINE}": "0x30 50x30 0x30",
            f"tailspan_engine_running_requests{ENGINE}": "8x90",
        },
        {"29m": [], "33m": [], "45m": ["TailspanQueueOutgrowsBatch"], "80m": []},
    )


def test_a_request_that_was_seen_waiting_is_no_queue(promtool: Run) -> None:
    """At night: one sample in five caught one, and none was running just then."""
    symptoms(
        promtool,
        {
            f"tailspan_engine_waiting_requests{ENGINE}": "1 0 0 0 0 " * 20,
            f"tailspan_engine_running_requests{ENGINE}": "0x100",
        },
        {"30m": [], "60m": []},
    )


def test_a_full_cache_and_evictions_are_told(promtool: Run) -> None:
    """Above 95 % throughout; ten evictions in ten minutes."""
    symptoms(
        promtool,
        {
            f"tailspan_engine_kv_cache_usage_ratio{ENGINE}": "0.9x30 0.97x30",
            f"tailspan_engine_preemptions_total{ENGINE}": "0x30 0+3x30",
        },
        {"29m": [], "50m": ["TailspanKvCacheFull", "TailspanPreempting"]},
    )


def test_a_cache_that_was_full_now_and_then_is_not_told(promtool: Run) -> None:
    """Nor are a few evictions."""
    symptoms(
        promtool,
        {
            f"tailspan_engine_kv_cache_usage_ratio{ENGINE}": "0.97 0.97 0.97 0.9 " * 15,
            f"tailspan_engine_preemptions_total{ENGINE}": "0x30 9x30",
        },
        {f"{at}m": [] for at in range(20, 60, 5)},
    )


def test_a_cache_that_no_longer_hits_is_told(promtool: Run) -> None:
    """Half was found for hours, now a tenth; a cache that never hit is no collapse."""
    symptoms(
        promtool,
        {
            f"tailspan_engine_prefix_cache_queries_tokens_total{ENGINE}": "0+10000x320",
            f"tailspan_engine_prefix_cache_hits_tokens_total{ENGINE}": "0+5000x300 1500000+1000x20",
        },
        {"290m": [], "318m": ["TailspanCacheHitCollapse"]},
    )
    symptoms(
        promtool,
        {
            f"tailspan_engine_prefix_cache_queries_tokens_total{ENGINE}": "0+10000x320",
            f"tailspan_engine_prefix_cache_hits_tokens_total{ENGINE}": "0+0x320",
        },
        {"318m": []},
    )


def test_a_cache_that_few_ask_is_not_told(promtool: Run) -> None:
    """A handful of prompts that all miss are a handful of prompts."""
    symptoms(
        promtool,
        {
            f"tailspan_engine_prefix_cache_queries_tokens_total{ENGINE}": "0+900x320",
            f"tailspan_engine_prefix_cache_hits_tokens_total{ENGINE}": "0+450x300 135000x20",
        },
        {"290m": [], "318m": []},
    )


def test_failures_are_told_by_their_share_and_number(promtool: Run) -> None:
    """One error of ten is nothing yet; one of ten, a hundred times over, is."""
    for per_minute, fires in ((0.1, []), (10, ["TailspanAborts", "TailspanErrors"])):
        symptoms(
            promtool,
            {
                f'tailspan_requests_total{{model="m",replica="r",outcome="{outcome}"}}': (
                    f"0+{per_minute * share:g}x60"
                )
                for outcome, share in (("stop", 8), ("error", 1), ("abort", 1))
            },
            {"50m": list(fires)},
        )


def test_silence_is_told(promtool: Run) -> None:
    """Of an engine, and of Tailspan itself."""
    symptoms(
        promtool,
        {f"tailspan_engine_last_sample_timestamp_seconds{ENGINE}": "0+60x30 1800x30"},
        {"29m": [], "50m": ["TailspanEngineSilent"]},
    )
    symptoms(
        promtool,
        {f"tailspan_engine_last_sample_timestamp_seconds{ENGINE}": "0+60x30 1800x70"},
        {"80m": ["TailspanEngineSilent"], "92m": []},
    )
    rules = render(symptom_groups(EXPLORER_URL))
    gone = {"tailspan_build_info": "1x20 stale", LAST_SAMPLE: "0+60x20 stale"}
    run(promtool, rules, gone, {"20m": [], "40m": ["TailspanAbsent"]})
    run(promtool, rules, {}, {"30m": ["TailspanAbsent"]})
    run(promtool, rules, {"tailspan_build_info": "1x60"}, {"8m": [], "20m": ["TailspanNoEngines"]})


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        ("TailspanDrops", f"tailspan_instrumentation_spans_dropped_total{ENGINE}"),
        ("TailspanHookFailures", f"tailspan_instrumentation_hook_failures_total{ENGINE}"),
    ],
)
def test_what_the_instrumentation_loses_is_told(promtool: Run, alert: str, series: str) -> None:
    """A single request already, until ten minutes have passed; a new process is no loss."""
    symptoms(promtool, {series: "0x20 1x30"}, {"20m": [], "22m": [alert], "40m": []})
    symptoms(promtool, {series: "5x20 0x30"}, {"20m": [], "25m": [], "40m": []})


def test_a_store_that_takes_nothing_is_told(promtool: Run) -> None:
    """Once it lasts: a busy moment is repeated and stored."""
    series = 'tailspan_collector_items_total{signal="traces",result="unstored",reason="r"}'
    symptoms(promtool, {series: "0x10 0+5x30 150x30"}, {"10m": [], "30m": ["TailspanUnstored"]})
    stored = series.replace("unstored", "stored")
    symptoms(promtool, {stored: "0+100x60"}, {"30m": []})


def test_a_part_of_tailspan_that_does_not_work_is_a_ticket(promtool: Run) -> None:
    """Once it has failed for five minutes; a restart that succeeds resets the time."""
    series = 'tailspan_task_up{task="evaluator",instance="a"}'
    down = ["TailspanTaskDown"]
    working = {series.replace("evaluator", "retention"): "1x60"}
    symptoms(
        promtool,
        {**working, series: "1x10 0x20 1x20"},
        {"10m": [], "15m": [], "16m": down, "30m": down, "32m": []},
    )
    symptoms(promtool, {**working, series: "0 0 0 1 " * 15}, {"30m": [], "59m": []})
    rules = symptom_groups(EXPLORER_URL)
    (rule,) = [
        each
        for group in rules
        for each in group.rules
        if isinstance(each, Alert) and each.alert == "TailspanTaskDown"
    ]
    test = {
        "input_series": [{"series": series, "values": "0x20"}],
        "alert_rule_test": [
            {
                "eval_time": "10m",
                "alertname": "TailspanTaskDown",
                "exp_alerts": [
                    {
                        "exp_labels": {"task": "evaluator", "instance": "a", "severity": "ticket"},
                        "exp_annotations": {
                            **rule.annotations,
                            "summary": "Tailspan's evaluator does not work",
                        },
                    }
                ],
            }
        ],
    }
    promtool(render(rules), test)


def test_vllms_own_histogram_pages_and_other_buckets_are_absent(
    promtool: Run, objective: Callable[..., Objective]
) -> None:
    """However the bound is written; with other bounds nothing is counted, which is said."""
    rules = vllm_rules([objective(good="ttft_s <= 1")], EXPLORER_URL)
    name = "vllm:time_to_first_token_seconds"
    for le in ("1", "1.0"):
        run(
            promtool,
            rules,
            {f"{name}_count": "0+100x120", f'{name}_bucket{{le="{le}"}}': "0+100x60 6000x60"},
            {"59m": [], "75m": ["TailspanBudgetBurn"]},
        )
    run(
        promtool,
        rules,
        {f"{name}_count": "0+100x120", f'{name}_bucket{{le="1.5"}}': "0+100x120"},
        {"15m": ["TailspanObjectiveAbsent"]},
    )


REQUESTS = 'tailspan_requests_total{model="m",replica="r",outcome="stop"}'


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"events": "0+10x120"}, None),
        ({"events": "0x120"}, "none_selected"),
        ({"events": "0+4x120", "unknown": "0+6x120"}, "unknown"),
        ({"events": "0x120", "late": "0+10x120"}, "late"),
        ({"events": "0x120", "client_error": "0+10x120"}, None),
        ({"events": "0+6x120", "unknown": "0+4x120"}, None),
    ],
)
def test_an_objective_that_counts_nothing_is_told_with_its_reason(
    promtool: Run, objective: Callable[..., Objective], counts: dict[str, str], reason: str | None
) -> None:
    """Requests come in, and the objective is about none, or leaves most of them out."""
    series = {
        'tailspan_slo_events_total{slo="chat"}': counts["events"],
        'tailspan_slo_good_events_total{slo="chat"}': counts["events"],
        **{
            f'tailspan_slo_excluded_events_total{{slo="chat",reason="{each}"}}': counts.get(
                each, "0x120"
            )
            for each in ("unknown", "late", "client_error", "aborted")
        },
        REQUESTS: "0+10x120",
    }
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        {
            "input_series": [{"series": key, "values": each} for key, each in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (reason) (ALERTS{alertname="TailspanObjectiveBlind",'
                    'alertstate="firing"})',
                    "eval_time": "100m",
                    "exp_samples": []
                    if reason is None
                    else [{"labels": f'{{reason="{reason}"}}', "value": 1}],
                }
            ],
        },
    )
