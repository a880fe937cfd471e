from collections.abc import Callable
from typing import Final

import pytest

from alerts.objectives import Objective
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from alerts.prometheus.latency_rules import latency_group
from alerts.prometheus.probe_rules import probe_group
from alerts.prometheus.rulefile import AlertingRule, render
from alerts.prometheus.symptom_rules import symptom_groups
from tests.alerts.probe_objective import objective as probe_objective
from tests.alerts.prometheus.rule_test import Run, expect, expect_alerts, slo_counters

pytestmark = pytest.mark.real

FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing",severity!="info"})'
LAST_SAMPLE: Final = (
    'tailspan_engine_last_sample_timestamp_seconds{model="m",replica="r",engine="0"}'
)
ENGINE: Final = '{model="m",replica="r",engine="0"}'


def run(promtool: Run, rules: str, series: dict[str, str], fires: dict[str, list[str]]) -> None:
    samples = [
        expect(FIRING, at, {f'{{alertname="{name}"}}': 1 for name in names})
        for at, names in fires.items()
    ]
    promtool(rules, series, samples)


def symptoms(promtool: Run, series: dict[str, str], fires: dict[str, list[str]]) -> None:
    """Check the symptom alerts while Tailspan is scraped and has an engine."""
    series = {"tailspan_build_info": "1x600", LAST_SAMPLE: "0+60x600", **series}
    groups = [latency_group(EXPLORER_URL), *symptom_groups(EXPLORER_URL)]
    run(promtool, render(groups), series, fires)


def test_an_idle_fleet_has_no_alert(promtool: Run) -> None:
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
def test_a_high_p99_alerts_after_five_minutes(
    promtool: Run, alert: str, latency: str, above: str, below: str
) -> None:
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
    # With few requests, P99 is absent. A lower quantile above the limit is enough for the alert.
    symptoms(promtool, low, {"30m": []})
    symptoms(promtool, {p("0.5"): f"{above}x40"}, {"30m": [alert]})


def test_an_alert_on_a_p99_has_its_value_and_a_link(promtool: Run) -> None:
    annotations = {
        "summary": "a/b c: P99 of TTFT is above 2 s",
        "description": "The P99 over the last 5 min is at least 3.5s. It has been above the limit"
        " for 5 min. A wait of more than 1 s interrupts a user's train of thought. The limit of"
        " this alert is twice as long.",
        "dashboard_url": f"{EXPLORER_URL}/?last=1h&latency=ttft&page=root-cause&model=a%2Fb+c",
    }
    expected = ({"model": "a/b c", "severity": "ticket"}, annotations)
    promtool(
        render([latency_group(EXPLORER_URL)]),
        {'tailspan_recent_model_ttft_seconds{model="a/b c",quantile="0.99"}': "3.5x20"},
        alerts=[expect_alerts("TailspanTtftP99High", "10m", expected)],
    )


def test_a_hung_engine_pages_while_requests_wait(promtool: Run) -> None:
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
    """Each engine's series counts all requests of the front end, so the alert does not add the
    series."""
    series = {
        f'tailspan_engine_{name}{{model="m",replica="r",engine="{number}"}}': values
        for number in (0, 1)
        for name, values in (("in_flight_requests", "12x10"), ("last_step_age_seconds", "95x10"))
    }
    labels = {"model": "m", "replica": "r", "severity": "page"}
    summary = "r: the engine hangs with 12 requests in flight"
    alerts_with_summary(promtool, "TailspanEngineHung", series, labels, summary)


def alerts_with_summary(
    promtool: Run, alert: str, series: dict[str, str], labels: dict[str, str], summary: str
) -> None:
    groups = symptom_groups(EXPLORER_URL)
    (rule,) = [
        rule
        for group in groups
        for rule in group.rules
        if isinstance(rule, AlertingRule) and rule.alert == alert
    ]
    expected = (labels, {**rule.annotations, "summary": summary})
    promtool(render(groups), series, alerts=[expect_alerts(alert, "10m", expected)])


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        pytest.param(
            {"waiting_requests": "0x30 50x30 0x30", "running_requests": "8x90"},
            {"29m": [], "33m": [], "45m": ["TailspanQueueOutgrowsBatch"], "80m": []},
            id="long queue",
        ),
        pytest.param(  # at night: one of five samples has a waiting request and no running request
            {"waiting_requests": "1 0 0 0 0 " * 20, "running_requests": "0x100"},
            {"30m": [], "60m": []},
            id="one waiting request now and then",
        ),
        pytest.param(
            {"kv_cache_usage_ratio": "0.9x30 0.97x30", "preemptions_total": "0x30 0+3x30"},
            {"29m": [], "50m": ["TailspanKvCacheFull", "TailspanPreempting"]},
            id="full cache and evictions",
        ),
        pytest.param(
            {"kv_cache_usage_ratio": "0.97 0.97 0.97 0.9 " * 15, "preemptions_total": "0x30 9x30"},
            {f"{at}m": [] for at in range(20, 60, 5)},
            id="briefly full cache and few evictions",
        ),
        pytest.param(
            {
                "prefix_cache_queries_tokens_total": "0+10000x320",
                "prefix_cache_hits_tokens_total": "0+5000x300 1500000+1000x20",
            },
            {"290m": [], "318m": ["TailspanCacheHitCollapse"]},
            id="collapsed hit rate",
        ),
        pytest.param(
            {
                "prefix_cache_queries_tokens_total": "0+10000x320",
                "prefix_cache_hits_tokens_total": "0+0x320",
            },
            {"318m": []},
            id="cache that never hit",
        ),
        pytest.param(
            {
                "prefix_cache_queries_tokens_total": "0+900x320",
                "prefix_cache_hits_tokens_total": "0+450x300 135000x20",
            },
            {"290m": [], "318m": []},
            id="collapsed hit rate of few queries",
        ),
    ],
)
def test_symptoms_of_an_engine_alert_when_they_last(
    promtool: Run, series: dict[str, str], fires: dict[str, list[str]]
) -> None:
    named = {f"tailspan_engine_{name}{ENGINE}": values for name, values in series.items()}
    symptoms(promtool, named, fires)


def test_failures_alert_by_their_share_and_number(promtool: Run) -> None:
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


def test_a_silent_engine_and_a_missing_tailspan_alert(promtool: Run) -> None:
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
def test_losses_of_the_instrumentation_alert(promtool: Run, alert: str, series: str) -> None:
    """One lost request causes an alert. The reset of a counter by a new process causes none."""
    symptoms(promtool, {series: "0x20 1x30"}, {"20m": [], "22m": [alert], "40m": []})
    symptoms(promtool, {series: "5x20 0x30"}, {"20m": [], "25m": [], "40m": []})


def test_a_store_that_rejects_writes_alerts(promtool: Run) -> None:
    series = 'tailspan_collector_items_total{signal="traces",result="unstored",reason="r"}'
    symptoms(promtool, {series: "0x10 0+5x30 150x30"}, {"10m": [], "30m": ["TailspanUnstored"]})
    stored = series.replace("unstored", "stored")
    symptoms(promtool, {stored: "0+100x60"}, {"30m": []})


def test_a_part_of_tailspan_that_does_not_work_is_a_ticket(promtool: Run) -> None:
    series = 'tailspan_task_up{task="evaluator",instance="a"}'
    down = ["TailspanTaskDown"]
    working = {series.replace("evaluator", "retention"): "1x60"}
    symptoms(
        promtool,
        {**working, series: "1x10 0x20 1x20"},
        {"10m": [], "15m": [], "16m": down, "30m": down, "32m": []},
    )
    symptoms(promtool, {**working, series: "0 0 0 1 " * 15}, {"30m": [], "59m": []})
    labels = {"task": "evaluator", "instance": "a", "severity": "ticket"}
    summary = "Tailspan's evaluator does not work"
    alerts_with_summary(promtool, down[0], {series: "0x20"}, labels, summary)


def test_vllms_own_histogram_pages_and_other_buckets_are_absent(
    promtool: Run, objective: Callable[..., Objective]
) -> None:
    """Without a bucket at the threshold, nothing is counted and the alert on absent data fires."""
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


def test_a_server_with_other_buckets_does_not_count_as_bad(
    promtool: Run, objective: Callable[..., Objective]
) -> None:
    """`--custom-histogram-buckets` may be set for some of the servers only."""
    rules = vllm_rules([objective(good="ttft_s <= 1")], EXPLORER_URL)
    name = "vllm:time_to_first_token_seconds"

    def served(instance: str, le: str, good: str) -> dict[str, str]:
        labels = f'instance="{instance}"'
        return {
            f"{name}_count{{{labels}}}": "0+100x120",
            f'{name}_bucket{{{labels},le="{le}"}}': good,
        }

    series = {**served("a", "1.0", "0+100x60 6000x60"), **served("b", "5.0", "0+100x120")}
    run(promtool, rules, series, {"59m": [], "75m": ["TailspanBudgetBurn"]})
    counted = "slo:tailspan_events:increase5m"
    bad = "slo:tailspan_bad_events:increase5m"
    promtool(
        rules,
        series,
        [
            expect(counted, "50m", {f'{counted}{{slo="chat"}}': 500}),
            expect(bad, "50m", {f'{bad}{{slo="chat"}}': 0}),
            expect(bad, "75m", {f'{bad}{{slo="chat"}}': 500}),
        ],
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
def test_an_objective_that_counts_nothing_alerts_with_its_reason(
    promtool: Run, objective: Callable[..., Objective], counts: dict[str, str], reason: str | None
) -> None:
    series = {
        **slo_counters(counts["events"], counts["events"]),
        **{
            f'tailspan_slo_excluded_events_total{{slo="chat",reason="{each}"}}': counts.get(
                each, "0x120"
            )
            for each in ("unknown", "late", "client_error", "aborted")
        },
        REQUESTS: "0+10x120",
    }
    blind = 'count by (reason) (ALERTS{alertname="TailspanObjectiveBlind",alertstate="firing"})'
    samples = {} if reason is None else {f'{{reason="{reason}"}}': 1}
    rules = tailspan_rules([objective()], EXPLORER_URL)
    promtool(rules, series, [expect(blind, "100m", samples)])


PROBES = 'tailspan_probe_results_total{region="eu",endpoint="chat",model="m",outcome="stop"}'


@pytest.mark.parametrize(
    ("events", "results", "reason"),
    [
        ("0+10x120", "0+10x120", None),
        ("0x120", "0+10x120", "no_probe"),
        ("0x120", "0x120", None),  # no prober runs
    ],
)
def test_an_objective_on_probes_that_counts_none_alerts(
    promtool: Run, events: str, results: str, reason: str | None
) -> None:
    blind = 'count by (reason) (ALERTS{alertname="TailspanObjectiveBlind",alertstate="firing"})'
    samples = {} if reason is None else {f'{{reason="{reason}"}}': 1}
    rules = tailspan_rules([probe_objective()], EXPLORER_URL)
    series = {**slo_counters(events, events, 'slo="outside"'), PROBES: results}
    promtool(rules, series, [expect(blind, "100m", samples)])


def test_an_objective_on_probes_pages_by_region(promtool: Run) -> None:
    rules = tailspan_rules([probe_objective(where="where: all, by: [region]")], EXPLORER_URL)
    series = {
        **slo_counters("0+2x120", "0+2x60 120+0x60", 'slo="outside",region="eu"'),
        **slo_counters("0+2x120", "0+2x120", 'slo="outside",region="us"'),
    }
    paging = (
        'count by (region) (ALERTS{alertname="TailspanBudgetBurn",severity="page",'
        'alertstate="firing"})'
    )
    promtool(rules, series, [expect(paging, "59m"), expect(paging, "80m", {'{region="eu"}': 1})])


def _probe(region: str, name: str, values: str, phase: str = "") -> dict[str, str]:
    more = f',phase="{phase}"' if phase else ""
    return {f'tailspan_probe_{name}{{region="{region}",endpoint="chat",model="m"{more}}}': values}


def test_an_endpoint_that_gives_no_answer_pages_after_ten_minutes(promtool: Run) -> None:
    """A single failed probe does not fire the alert."""
    probed(
        promtool,
        {
            **_probe("eu", "success", "1x10 0 1x10 0x20 1x20"),
            **_probe("us", "success", "1x80"),
        },
        {"15m": [], "28m": [], "34m": ["TailspanProbeFails"], "50m": []},
    )


def _results(region: str, values: str, outcome: str = "stop") -> dict[str, str]:
    labels = f'region="{region}",endpoint="chat",model="m",outcome="{outcome}"'
    return {f"tailspan_probe_results_total{{{labels}}}": values}


def test_a_prober_that_stops_reporting_is_a_ticket_for_an_hour(promtool: Run) -> None:
    """On /metrics, an endpoint without recent results has counters but no gauges."""
    silent = ["TailspanProberSilent"]
    series = {
        **_probe("eu", "success", "1x20 stale _x200"),
        **_results("eu", "0+1x20 20x200"),
        **_probe("us", "success", "1x220"),
        **_results("us", "0+1x220"),
    }
    probed(promtool, series, {"20m": [], "24m": [], "28m": silent, "79m": silent, "90m": []})
    returned = {
        **_probe("eu", "success", "1x20 stale _x20 1x60"),
        **_results("eu", "0+1x20 20x20 20+1x60"),
    }
    probed(promtool, returned, {"35m": silent, "45m": []})


def test_a_prober_that_is_not_silent_has_no_ticket(promtool: Run) -> None:
    gone = _probe("eu", "success", "1x20 stale _x100")
    for series in (
        {},
        {**gone, **_results("eu", "0x5 1x115")},  # one result: the interval is unknown
        {**gone, **_results("eu", "0+1x20 20x100"), **_results("eu", "0+1x120", "over_budget")},
        {**gone, **_results("eu", "0+1x20 stale _x100")},  # Tailspan was restarted
        {
            **gone,
            **_results("eu", "0+1x120"),
            'tailspan_probe_success{region="eu",endpoint="chat-2",model="m"}': "1x120",
        },
    ):
        probed(promtool, series, {"15m": [], "28m": [], "50m": [], "100m": []})


def test_slow_from_one_region_differs_from_slow_everywhere(promtool: Run) -> None:
    usual, slow = "0.5x400", "0.5x360 1.5x40"
    for eu, us, fires in (
        (slow, usual, ["TailspanProbeSlowFromOneRegion"]),
        (slow, slow, []),
        (usual, usual, []),
        ("0.01x360 0.05x40", usual, []),  # twice as slow, but only 40 ms slower
    ):
        waits = {
            **_probe("eu", "duration_seconds", eu, "processing"),
            **_probe("us", "duration_seconds", us, "processing"),
        }
        probed(promtool, waits, {"355m": [], "380m": fires})
    alone = _probe("eu", "duration_seconds", slow, "processing")
    probed(promtool, alone, {"380m": []})


def test_probes_that_arrive_at_several_collectors_count_once(promtool: Run) -> None:
    """A load balancer may send each result to another collector. Each collector exports the latest
    result that it received."""

    def at(collector: str, series: dict[str, str]) -> dict[str, str]:
        return {f'{name[:-1]},instance="{collector}"}}': each for name, each in series.items()}

    wait = _probe("eu", "duration_seconds", "0.3x400", "processing")
    late = _probe("eu", "duration_seconds", "_x360 0.4x40", "processing")
    us = _probe("us", "duration_seconds", "0.3x400", "processing")
    probed(promtool, {**at("a", wait), **at("b", late), **at("a", us)}, {"355m": [], "380m": []})
    failed = {
        **at("a", _probe("eu", "success", "1x10 0x15 stale _x40")),
        **at("b", _probe("eu", "success", "1x80")),
    }
    probed(promtool, failed, {"15m": [], "22m": [], "26m": []})
    both = {**at("a", _probe("eu", "success", "0x80")), **at("b", _probe("eu", "success", "0x80"))}
    probed(promtool, both, {"15m": ["TailspanProbeFails"]})


def test_a_certificate_that_expires_soon_is_a_ticket(promtool: Run) -> None:
    end_s = 7 * 86_400 + 3_600
    series = _probe("eu", "ssl_earliest_cert_expiry", f"{end_s}x300")
    probed(promtool, series, {"50m": [], "110m": [], "125m": ["TailspanCertificateEnds"]})


def probed(promtool: Run, series: dict[str, str], fires: dict[str, list[str]]) -> None:
    run(promtool, render([probe_group(EXPLORER_URL)]), series, fires)
