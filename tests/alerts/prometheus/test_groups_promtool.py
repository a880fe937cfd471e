"""Rules of objectives with groups: each group burns, alerts and is held back by itself."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from alerts.burnrate import Counts, State
from alerts.history import Bucket, History, states_at
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules
from tests.alerts.grouped import foreign, own

pytestmark = pytest.mark.real

Run = Callable[[str, Mapping[str, object]], None]

MINUTE_S: Final = 60
TOTAL: Final = "http_requests_total"
BAD: Final = 'http_requests_total{code="500"}'
PAGES: Final = 'sort(count by (tenant) (ALERTS{alertname="TailspanBudgetBurn",severity="page"}))'


def own_counters(tenant: str, events: str, good: str) -> list[dict[str, str]]:
    """Tailspan's counters of one group."""
    label = f'{{slo="chat",tenant="{tenant}"}}'
    return [
        {"series": f"tailspan_slo_events_total{label}", "values": events},
        {"series": f"tailspan_slo_good_events_total{label}", "values": good},
    ]


def their_counters(tenant: str, ok: str, failed: str) -> list[dict[str, str]]:
    """Counters of a server of someone's."""
    return [
        {"series": f'http_requests_total{{tenant="{tenant}",code="{code}"}}', "values": values}
        for code, values in (("200", ok), ("500", failed))
    ]


def pages(tenants: Mapping[int, str]) -> list[dict[str, Any]]:
    """Whose budget pages at which minute; nobody's where the text is empty."""
    return [
        {
            "expr": PAGES,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{tenant="{tenant}"}}', "value": 1}] if tenant else [],
        }
        for minute, tenant in tenants.items()
    ]


def expected(minutes: range) -> dict[int, str]:
    """When acme pages by the live evaluator: good for an hour, half bad for 30 min, good again."""
    counts = [Counts(0, 200)] * 60 + [Counts(100, 200)] * 30 + [Counts(0, 200)] * 40
    history = History(0, [Bucket(at * 60, each) for at, each in enumerate(counts, 1)], 15)
    objective = own()
    return {
        minute: "acme"
        if states_at(history, minute * 60, objective.policy, objective.budget)["page"]
        is State.FIRING
        else ""
        for minute in minutes
    }


def test_one_tenant_burns_and_only_its_budget_pages(promtool: Run) -> None:
    """Of two tenants with the same traffic one fails; minute by minute as the evaluator has it."""
    asked = expected(range(1, 129))
    assert {"acme", ""} == set(asked.values())
    promtool(
        tailspan_rules([own()], EXPLORER_URL),
        {
            "input_series": [
                *own_counters("acme", "0+200x130", "0+200x60 12100+100x29 15200+200x40"),
                *own_counters("globex", "0+200x130", "0+200x130"),
                *own_counters("other", "0x130", "0x130"),
            ],
            "promql_expr_test": pages(asked),
        },
    )


def test_the_budget_left_is_of_each_group(promtool: Run) -> None:
    """After an hour with 1 % bad requests a group has spent its share of the month, the other
    nothing."""
    promtool(
        tailspan_rules([own()], EXPLORER_URL),
        {
            "input_series": [
                *own_counters("acme", "0+200x60", "0+198x60"),
                *own_counters("globex", "0+200x60", "0+200x60"),
            ],
            "promql_expr_test": [
                {
                    "expr": "count by (tenant) (slo:tailspan_budget_left:ratio < 1)",
                    "eval_time": "60m",
                    "exp_samples": [{"labels": '{tenant="acme"}', "value": 1}],
                },
                {
                    "expr": "count by (tenant) (slo:tailspan_budget_left:ratio == 1)",
                    "eval_time": "60m",
                    "exp_samples": [{"labels": '{tenant="globex"}', "value": 1}],
                },
            ],
        },
    )


def test_four_bad_requests_of_a_small_group_wake_nobody(promtool: Run) -> None:
    """The minimum of bad events holds per group: five make a page, four are held back."""
    promtool(
        tailspan_rules([own()], EXPLORER_URL),
        {
            "input_series": [
                *own_counters("small", "0x60 0+1x4 4x20", "0x90"),
                *own_counters("five", "0x60 0+1x5 5x20", "0x90"),
                *own_counters("large", "0+500x90", "0+500x90"),
            ],
            "promql_expr_test": [
                *pages({64: "", 66: "five"}),
                {
                    "expr": "count by (tenant, guard)"
                    ' (ALERTS{alertname="TailspanBudgetBurnHeldBack",held_back="page"})',
                    "eval_time": "66m",
                    "exp_samples": [{"labels": '{tenant="small",guard="low_traffic"}', "value": 1}],
                },
            ],
        },
    )


@pytest.mark.parametrize(
    ("total", "bad"),
    [
        (TOTAL, BAD),
        (f"sum({TOTAL})", f"sum({BAD})"),
        (
            f"sum by (tenant) (rate({TOTAL}[{{{{.window}}}}]))",
            f"sum without (code) (rate({BAD}[{{{{.window}}}}]))",
        ),
        (f"increase({TOTAL}[{{{{.window}}}}])", f"increase({BAD}[{{{{.window}}}}])"),
    ],
)
def test_a_group_counted_elsewhere_pages_by_itself(promtool: Run, total: str, bad: str) -> None:
    """However the two queries are written, at the minutes that the live evaluator has."""
    promtool(
        tailspan_rules([foreign(total, bad)], EXPLORER_URL),
        {
            "input_series": [
                *their_counters(
                    "acme", "0+200x60 12100+100x29 15200+200x40", "0x60 100+100x29 3000x40"
                ),
                *their_counters("globex", "0+200x130", "0x130"),
            ],
            "promql_expr_test": pages(expected(range(1, 129))),
        },
    )


def test_made_up_groups_neither_grow_the_rules_nor_push_a_tenant_out(promtool: Run) -> None:
    """200 names with a request now and then: 50 places, the rest in `other`, nothing lost."""
    made_up = [
        line for at in range(200) for line in their_counters(f"x{at:03}", "0x60 0+1x60", "0x120")
    ]
    promtool(
        tailspan_rules([foreign(TOTAL, BAD)], EXPLORER_URL),
        {
            "input_series": [
                *their_counters("acme", "0+20x90 1800+10x30", "0x90 10+10x30"),
                *made_up,
            ],
            "promql_expr_test": [
                {
                    "expr": "count(slo:tailspan_events:increase5m)",
                    "eval_time": "100m",
                    "exp_samples": [{"labels": "{}", "value": 51}],
                },
                {
                    "expr": "round(sum(slo:tailspan_events:increase5m))",
                    "eval_time": "100m",
                    "exp_samples": [{"labels": "{}", "value": 1100}],
                },
                *pages({89: "", 110: "acme"}),
            ],
        },
    )


def fired(*pairs: tuple[str, str, str]) -> str:
    """The sentences of pairs of windows, after an hour of 6,000 requests that all failed."""
    return " ".join(
        f"Fired by the last {long} and {short}: 6000 of 6000 bad in the last {long}."
        f" Burn rates: 100.0 and 100.0, alerting above {factor}."
        for long, short, factor in pairs
    )


def test_a_page_names_its_group_and_has_its_numbers(promtool: Run) -> None:
    """The summary and the description of one of two groups, with the group's own budget."""
    promtool(
        tailspan_rules([foreign(TOTAL, BAD)], EXPLORER_URL),
        {
            "input_series": [
                *their_counters("acme", "0x60", "0+100x60"),
                *their_counters("globex", "0+900x60", "0x60"),
            ],
            "alert_rule_test": [
                {
                    "alertname": "TailspanBudgetBurn",
                    "eval_time": "60m",
                    "exp_alerts": [
                        {
                            "exp_labels": {
                                "slo": "web",
                                "service": "chat",
                                "severity": severity,
                                "tenant": "acme",
                            },
                            "exp_annotations": {
                                "summary": 'web{tenant="acme"}: the error budget burns 100.0 times'
                                " too fast",
                                "description": "What: web. Objective: 99 % of events good for each"
                                f" tenant over 30d.\n{fired} \nBudget: 86.34% of 30d is left; at"
                                " this pace it lasts 6h 13m 0s.\nFirst: open the dashboards of"
                                " chat. Tailspan does not record these requests.\nCounted by the"
                                " queries of the objective.",
                            },
                        }
                        for severity, fired in (
                            ("page", fired(("1h", "5m", "14.4"), ("6h", "30m", "6"))),
                            ("ticket", fired(("1d", "2h", "3"), ("3d", "6h", "1"))),
                        )
                    ],
                }
            ],
        },
    )
