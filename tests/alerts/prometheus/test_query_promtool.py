"""Objectives from elsewhere, counted by somebody's Prometheus: their rules in its own hands.

The counters are split over codes and pods, begin anew, and come late or never. What should
fire is said by the live evaluator over the same events.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

import pytest
import yaml

from alerts.burnrate import Counts, State
from alerts.history import Bucket, History, states_at
from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from benchmarks._sloth import ALERT, sloth_pages

pytestmark = pytest.mark.real

MINUTE_S: Final = 60
PAGE: Final = 'count(ALERTS{alertname="TailspanBudgetBurn",severity="page"})'
ABSENT: Final = 'count(ALERTS{alertname="TailspanObjectiveAbsent",alertstate="firing"})'

Run = Callable[[str, Mapping[str, object]], None]

ALL: Final = 'http_requests_total{job="web"}'
GOOD: Final = 'http_requests_total{job="web",code!~"5.."}'
BAD: Final = 'http_requests_total{job="web",code=~"5.."}'
OPEN: Final = "sum(increase({}[{{{{.window}}}}]))"
RATE: Final = "sum(rate({}[{{{{.window}}}}]))"


def foreign(part: str, total: str = ALL, *, bad: bool = True, counter: str = "true") -> Objective:
    """An objective of two queries, 99 % over 30 days."""
    sources = {"total": source(total), "bad" if bad else "good": source(part)}
    return objective_of({"counter": counter, **sources})


def raw(query: str, raw_type: str) -> Objective:
    """An objective of one query that yields a ratio."""
    return objective_of({"rawType": raw_type, "raw": source(query)})


def objective_of(ratio: Mapping[str, object]) -> Objective:
    """99 % over 30 days of a ratioMetric."""
    text = yaml.safe_dump(
        {
            "apiVersion": "openslo/v1",
            "kind": "SLO",
            "metadata": {"name": "web"},
            "spec": {
                "service": "web",
                "budgetingMethod": "Occurrences",
                "timeWindow": [{"duration": "30d", "isRolling": "true"}],
                "objectives": [{"target": "0.99"}],
                "indicator": {
                    "metadata": {"name": "errors"},
                    "spec": {"ratioMetric": ratio},
                },
            },
        }
    )
    findings = inspect_texts({"web.yaml": re.sub("'(true|false)'", r"\1", text)})
    assert not findings.errors, findings.errors
    return findings.spec.objectives[0]


def source(query: str) -> dict[str, object]:
    """A Prometheus query."""
    return {"metricSource": {"type": "Prometheus", "spec": {"query": query}}}


EVERY_WAY: Final = {
    "bad, selectors": foreign(BAD),
    "bad, sums": foreign(f"sum({BAD})", f"sum({ALL})"),
    "bad, increase": foreign(OPEN.format(BAD), OPEN.format(ALL)),
    "bad, rate": foreign(RATE.format(BAD), RATE.format(ALL)),
    "good, selectors": foreign(GOOD, bad=False),
    "good, rate and increase": foreign(RATE.format(GOOD), OPEN.format(ALL), bad=False),
    "bad, or vector": foreign(f"{RATE.format(BAD)} or vector(0)", RATE.format(ALL)),
    "bad, a difference": foreign(f"{RATE.format(ALL)} - {RATE.format(GOOD)}", RATE.format(ALL)),
    "bad, a sum of two": foreign(
        f"{RATE.format(BAD)} + {RATE.format(BAD)} * 0", f"{RATE.format(GOOD)} + {RATE.format(BAD)}"
    ),
    "good, a difference": foreign(
        f"{OPEN.format(ALL)} - {OPEN.format(BAD)}", OPEN.format(ALL), bad=False
    ),
    "bad, with labels": foreign(RATE.format(BAD)[4:-1], RATE.format(ALL)[4:-1]),
    "bad, a comment at the end": foreign(f"{RATE.format(BAD)} # 5xx", f"{RATE.format(ALL)} # all"),
}

PLAIN_WAYS: Final = tuple(EVERY_WAY)[:6]


def counters(ok: str, failed: str | None) -> list[dict[str, str]]:
    """Values a minute apart, on two pods alike."""
    by_code = {"200": ok} if failed is None else {"200": ok, "500": failed}
    return [
        {"series": f'http_requests_total{{job="web",pod="{pod}",code="{code}"}}', "values": values}
        for code, values in by_code.items()
        for pod in ("a", "b")
    ]


def expected(stretches: Sequence[tuple[int, int, int]], at_s: Sequence[int]) -> dict[int, bool]:
    """When the live evaluator pages, over (minutes, good a minute, bad a minute)."""
    minutes = [(good, bad) for length, good, bad in stretches for _ in range(length)]
    buckets = [
        Bucket(place * MINUTE_S, Counts(bad, good + bad))
        for place, (good, bad) in enumerate(minutes, 1)
    ]
    history = History(0, buckets, 15)
    objective = EVERY_WAY["bad, selectors"]
    return {
        each: states_at(history, each, objective.policy, objective.budget)["page"] is State.FIRING
        for each in at_s
    }


def asked(fires: Mapping[int, bool], expr: str = PAGE) -> list[dict[str, object]]:
    """What must be found at which instants, in seconds."""
    return [
        {
            "expr": expr,
            "eval_time": f"{at_s}s",
            "exp_samples": [{"labels": "{}", "value": 1}] if found else [],
        }
        for at_s, found in fires.items()
    ]


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_burn_pages_whichever_way_it_is_counted(promtool: Run, way: str) -> None:
    """Minute by minute as the live evaluator has it."""
    at_s = range(MINUTE_S, 130 * MINUTE_S, MINUTE_S)
    fires = expected([(60, 200, 0), (30, 100, 100), (40, 200, 0)], at_s)
    assert {True, False} <= set(fires.values())
    promtool(
        tailspan_rules([EVERY_WAY[way]], EXPLORER_URL),
        {
            "input_series": counters("0+100x60 6050+50x29 7600+100x39", "0x60 50+50x29 1500x40"),
            "promql_expr_test": asked(fires),
        },
    )


@pytest.mark.parametrize(
    ("bad", "total"),
    [
        (RATE.format(BAD), RATE.format(ALL)),
        (f"{RATE.format(BAD)} OR on() vector(0)", RATE.format(ALL)),
        (f"{RATE.format(ALL)} - {RATE.format(GOOD)}", RATE.format(ALL)),
        (f"1 * {RATE.format(BAD)}", f"{RATE.format(GOOD)} + {RATE.format(BAD)}"),
    ],
)
def test_sloth_pages_of_the_same_queries_at_the_same_minutes(
    promtool: Run, bad: str, total: str
) -> None:
    """Seven hours of health, 40 minutes of a total failure, health again."""
    series = counters("0+100x420 42000+0x40 42000+100x100", "0x420 0+100x40 4000x100")
    ours = yaml.safe_load(tailspan_rules([foreign(bad, total)], EXPLORER_URL))
    theirs = yaml.safe_load(sloth_pages(bad, total, Fraction(99, 100)))
    either = {"groups": [*ours["groups"], *theirs["groups"]]}
    page = 'ALERTS{alertname="TailspanBudgetBurn",severity="page",alertstate="firing"}'
    promtool(
        yaml.safe_dump(either),
        {
            "input_series": series,
            "promql_expr_test": [
                {"expr": expr, "eval_time": f"{minute}m", "exp_samples": []}
                for minute in range(415, 560)
                for expr in (
                    f'count({page}) unless count(ALERTS{{alertname="{ALERT}"}})',
                    f'count(ALERTS{{alertname="{ALERT}"}}) unless count({page})',
                )
            ]
            + asked(
                {minute * MINUTE_S: 429 < minute < 461 for minute in (425, 445, 460, 559)},
                f"count({page})",
            ),
        },
    )


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_counters_that_begin_anew_neither_make_nor_hide_a_burn(promtool: Run, way: str) -> None:
    """A rollout amid health, and one amid a failure of a tenth."""
    calm = {at * MINUTE_S: False for at in range(1, 90)}
    promtool(
        tailspan_rules([EVERY_WAY[way]], EXPLORER_URL),
        {
            "input_series": counters("0+100x60 0+100x60", "0x120"),
            "promql_expr_test": asked(calm),
        },
    )
    burning = {at * MINUTE_S: True for at in range(70, 100)}
    promtool(
        tailspan_rules([EVERY_WAY[way]], EXPLORER_URL),
        {
            "input_series": counters("0+50x75 0+50x30", "0+50x75 0+50x30"),
            "promql_expr_test": asked(burning),
        },
    )


def test_no_series_of_bad_events_is_none_of_them(promtool: Run) -> None:
    """Nothing has failed yet: no burn, and nothing absent. Then something does."""
    for way in ("bad, selectors", "bad, rate"):
        promtool(
            tailspan_rules([EVERY_WAY[way]], EXPLORER_URL),
            {
                "input_series": counters("0+100x120", "_x60 50+50x60"),
                "promql_expr_test": [
                    *asked({at * MINUTE_S: False for at in range(1, 60)}),
                    *asked({at * MINUTE_S: False for at in range(1, 119)}, ABSENT),
                    *asked({at * MINUTE_S: True for at in range(90, 110)}),
                    {
                        "expr": 'slo:tailspan_bad_events:increase1h{slo="web"}',
                        "eval_time": "50m",
                        "exp_samples": [
                            {
                                "labels": 'slo:tailspan_bad_events:increase1h{slo="web"}',
                                "value": 0,
                            }
                        ],
                    },
                ],
            },
        )


def test_no_series_of_good_events_is_a_total_failure(promtool: Run) -> None:
    """Everything fails from the first request on: nothing good was ever counted."""
    objective = foreign("http_ok_total", "http_all_total", bad=False)
    promtool(
        tailspan_rules([objective], EXPLORER_URL),
        {
            "input_series": [{"series": "http_all_total", "values": "0+100x60"}],
            "promql_expr_test": [
                *asked({at * MINUTE_S: True for at in range(12, 50)}),
                *asked({at * MINUTE_S: False for at in range(1, 50)}, ABSENT),
            ],
        },
    )


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_without_any_counter_nothing_burns_and_the_absence_is_told(promtool: Run, way: str) -> None:
    """No data is not good data. It comes back without a page."""
    gone = "0+100x20 stale _x40 0+100x20"
    promtool(
        tailspan_rules([EVERY_WAY[way]], EXPLORER_URL),
        {
            "input_series": counters(gone, gone.replace("100", "0")),
            "promql_expr_test": [
                *asked({at * MINUTE_S: False for at in range(1, 80)}),
                *asked({15 * 60: False, 45 * 60: True, 75 * 60: False}, ABSENT),
            ],
        },
    )


def test_a_night_without_requests_is_no_burn_and_no_absence(promtool: Run) -> None:
    """Counters that stand still."""
    for way in ("bad, rate", "good, selectors"):
        promtool(
            tailspan_rules([EVERY_WAY[way]], EXPLORER_URL),
            {
                "input_series": counters("0+100x30 3000x90", "0x120"),
                "promql_expr_test": [
                    *asked({at * MINUTE_S: False for at in range(1, 119)}),
                    *asked({at * MINUTE_S: False for at in range(1, 119)}, ABSENT),
                ],
            },
        )


def test_one_failure_of_ten_pages_nobody(promtool: Run) -> None:
    """Low traffic is held back there, too."""
    promtool(
        tailspan_rules([EVERY_WAY["bad, selectors"]], EXPLORER_URL),
        {
            "input_series": [
                {"series": 'http_requests_total{job="web",code="200"}', "values": "0x60 0+1x20"},
                {"series": 'http_requests_total{job="web",code="500"}', "values": "0x70 0+1x3 3x9"},
            ],
            "promql_expr_test": [
                *asked({at * MINUTE_S: False for at in range(1, 80)}),
                {
                    "expr": 'count by (guard) (ALERTS{alertname="TailspanBudgetBurnHeldBack",'
                    'held_back="page"})',
                    "eval_time": "74m",
                    "exp_samples": [{"labels": '{guard="low_traffic"}', "value": 1}],
                },
            ],
        },
    )


def test_both_kinds_of_rules_count_it_alike() -> None:
    """It is somebody's own query, whoever watches the server."""
    for objective in EVERY_WAY.values():
        burns = tailspan_rules([objective], EXPLORER_URL)
        alone = yaml.safe_load(vllm_rules([objective], EXPLORER_URL))["groups"]
        assert yaml.safe_load(burns)["groups"][: len(alone)] == alone


PROBE: Final = {
    "gauges": foreign("probe_success", "count(probe_success)", bad=False, counter="false"),
    "raw failures": raw(
        "1 - sum(sum_over_time(probe_success[{{.window}}]))"
        " / sum(count_over_time(probe_success[{{.window}}]))",
        "failure",
    ),
    "raw successes": raw("avg(avg_over_time(probe_success[{{.window}}]))", "success"),
}


@pytest.mark.parametrize("way", PROBE)
def test_a_failing_probe_pages_whichever_way_it_is_counted(promtool: Run, way: str) -> None:
    """Two targets fail for half an hour; the live evaluator says at which minutes."""
    at_s = range(MINUTE_S, 130 * MINUTE_S, MINUTE_S)
    fires = expected([(60, 2, 0), (30, 0, 2), (40, 2, 0)], at_s)
    # Prometheus 2 counts a sample at the very beginning of a range; the live evaluator does not.
    del fires[119 * MINUTE_S]
    assert {True, False} <= set(fires.values())
    values = "1x60 0x29 1x39"
    promtool(
        tailspan_rules([PROBE[way]], EXPLORER_URL),
        {
            "input_series": [
                {"series": f'probe_success{{instance="{each}"}}', "values": values} for each in "ab"
            ],
            "promql_expr_test": asked(fires),
        },
    )


@pytest.mark.parametrize("way", PROBE)
def test_a_probe_that_is_gone_is_absent_and_burns_nothing(promtool: Run, way: str) -> None:
    """No data is neither good nor bad."""
    promtool(
        tailspan_rules([PROBE[way]], EXPLORER_URL),
        {
            "input_series": [{"series": "probe_success", "values": "1x20 stale _x40 1x20"}],
            "promql_expr_test": [
                *asked({at * MINUTE_S: False for at in range(1, 80)}),
                *asked({15 * 60: False, 45 * 60: True, 75 * 60: False}, ABSENT),
            ],
        },
    )


def test_a_ratio_of_no_requests_is_no_burn_and_no_absence(promtool: Run) -> None:
    """0 of 0 is NaN: nothing happened, and the metrics are there. Above 1 it is 1."""
    part, whole = OPEN.format("bad_total"), OPEN.format("all_total")
    promtool(
        tailspan_rules([raw(f"{part} / {whole}", "failure")], EXPLORER_URL),
        {
            "input_series": [
                {"series": "bad_total", "values": "0x120 0+300x60"},
                {"series": "all_total", "values": "0x120 0+100x60"},
            ],
            "promql_expr_test": [
                *asked({at * MINUTE_S: False for at in range(1, 119)}),
                *asked({at * MINUTE_S: False for at in range(1, 180)}, ABSENT),
                *asked({at * MINUTE_S: True for at in range(140, 175)}),
                {
                    "expr": 'slo:tailspan_bad_events:increase1h{slo="web"}',
                    "eval_time": "170m",
                    "exp_samples": [
                        {"labels": 'slo:tailspan_bad_events:increase1h{slo="web"}', "value": 3600}
                    ],
                },
            ],
        },
    )
