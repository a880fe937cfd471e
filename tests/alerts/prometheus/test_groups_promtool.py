from collections.abc import Mapping
from typing import Any, Final

import pytest

from alerts.burnrate import EventCounts, State
from alerts.history import History, HistoryBucket, states_at
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules
from tests.alerts.grouped import foreign, own
from tests.alerts.prometheus.rule_test import (
    MINUTE_S,
    ONE,
    Run,
    expect,
    expect_alerts,
    slo_counters,
)

pytestmark = pytest.mark.real

TOTAL: Final = "http_requests_total"
BAD: Final = 'http_requests_total{code="500"}'
PAGES: Final = 'sort(count by (tenant) (ALERTS{alertname="TailspanBudgetBurn",severity="page"}))'


def own_counters(tenant: str, events: str, good: str) -> dict[str, str]:
    return slo_counters(events, good, f'slo="chat",tenant="{tenant}"')


def foreign_counters(tenant: str, ok: str, failed: str) -> dict[str, str]:
    return {
        f'http_requests_total{{tenant="{tenant}",code="{code}"}}': values
        for code, values in (("200", ok), ("500", failed))
    }


def pages(tenants: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return checks that, at each minute, the page fires for this tenant and no other. An empty
    name means that no page fires."""
    return [
        expect(PAGES, minute * MINUTE_S, {f'{{tenant="{tenant}"}}': 1} if tenant else {})
        for minute, tenant in tenants.items()
    ]


def expected(minutes: range) -> dict[int, str]:
    """Return the tenant for which the live evaluator's page fires, by minute.

    All requests are good for an hour, half are bad for 30 min, then all are good again.
    """
    counts = [EventCounts(0, 200)] * 60 + [EventCounts(100, 200)] * 30 + [EventCounts(0, 200)] * 40
    history = History(0, [HistoryBucket(at * 60, each) for at, each in enumerate(counts, 1)], 15)
    objective = own()
    return {
        minute: "acme"
        if states_at(history, minute * 60, objective.policy, objective.budget)["page"]
        is State.FIRING
        else ""
        for minute in minutes
    }


def test_one_tenant_burns_and_only_its_budget_pages(promtool: Run) -> None:
    asked = expected(range(1, 129))
    assert {"acme", ""} == set(asked.values())
    promtool(
        tailspan_rules([own()], EXPLORER_URL),
        {
            **own_counters("acme", "0+200x130", "0+200x60 12100+100x29 15200+200x40"),
            **own_counters("globex", "0+200x130", "0+200x130"),
            **own_counters("other", "0x130", "0x130"),
        },
        pages(asked),
    )


def test_the_budget_left_is_of_each_group(promtool: Run) -> None:
    promtool(
        tailspan_rules([own()], EXPLORER_URL),
        {
            **own_counters("acme", "0+200x60", "0+198x60"),
            **own_counters("globex", "0+200x60", "0+200x60"),
        },
        [
            expect(
                f"count by (tenant) (slo:tailspan_budget_left:ratio {left})",
                "60m",
                {f'{{tenant="{tenant}"}}': 1},
            )
            for tenant, left in (("acme", "< 1"), ("globex", "== 1"))
        ],
    )


def test_four_bad_requests_of_a_small_group_do_not_page(promtool: Run) -> None:
    held = 'ALERTS{alertname="TailspanBudgetBurnHeldBack",held_back="page"}'
    low_traffic = {'{tenant="small",guard="low_traffic"}': 1}
    promtool(
        tailspan_rules([own()], EXPLORER_URL),
        {
            **own_counters("small", "0x60 0+1x4 4x20", "0x90"),
            **own_counters("five", "0x60 0+1x5 5x20", "0x90"),
            **own_counters("large", "0+500x90", "0+500x90"),
        },
        [
            *pages({64: "", 66: "five"}),
            expect(f"count by (tenant, guard) ({held})", "66m", low_traffic),
        ],
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
def test_each_group_of_a_prometheus_query_pages_separately(
    promtool: Run, total: str, bad: str
) -> None:
    promtool(
        tailspan_rules([foreign(total, bad)], EXPLORER_URL),
        {
            **foreign_counters(
                "acme", "0+200x60 12100+100x29 15200+200x40", "0x60 100+100x29 3000x40"
            ),
            **foreign_counters("globex", "0+200x130", "0x130"),
        },
        pages(expected(range(1, 129))),
    )


def test_invented_groups_neither_grow_the_rules_nor_replace_a_tenant(promtool: Run) -> None:
    """50 of the 60 names with few requests are counted by name; the other ten are counted in
    `other`."""
    series = foreign_counters("acme", "0+20x90 1800+10x30", "0x90 10+10x30")
    for at in range(60):
        series |= foreign_counters(f"x{at:02}", "0x60 0+1x60", "0x120")
    promtool(
        tailspan_rules([foreign(TOTAL, BAD)], EXPLORER_URL),
        series,
        [
            expect("count(slo:tailspan_events:increase5m) == bool 51", "100m", ONE),
            expect("round(sum(slo:tailspan_events:increase5m)) == bool 400", "100m", ONE),
            *pages({89: "", 110: "acme"}),
        ],
    )


def fired(*pairs: tuple[str, str, str]) -> str:
    """Return the message for these pairs of windows after an hour of 6,000 failed requests."""
    return " ".join(
        f"Fired by the last {long} and {short}: 6000 of 6000 bad in the last {long}."
        f" Burn rates: 100.0 and 100.0, alerting above {factor}."
        for long, short, factor in pairs
    )


def test_a_page_names_its_group_and_has_its_numbers(promtool: Run) -> None:
    expected = [
        (
            {"slo": "web", "service": "chat", "severity": severity, "tenant": "acme"},
            {
                "summary": 'web{tenant="acme"}: the error budget burns 100.0 times too fast',
                "description": "What: web. Objective: 99 % of events good for each tenant over"
                f" 30d.\n{pairs} \nBudget: 86.34% of 30d is left; at this pace it lasts 6h 13m 0s."
                "\nFirst: open the dashboards of chat. Prometheus counts this objective, not"
                " Tailspan.\n"
                "The objective's own Prometheus queries count the events.",
            },
        )
        for severity, pairs in (
            ("page", fired(("1h", "5m", "14.4"), ("6h", "30m", "6"))),
            ("ticket", fired(("1d", "2h", "3"), ("3d", "6h", "1"))),
        )
    ]
    promtool(
        tailspan_rules([foreign(TOTAL, BAD)], EXPLORER_URL),
        {
            **foreign_counters("acme", "0x60", "0+100x60"),
            **foreign_counters("globex", "0+900x60", "0x60"),
        },
        alerts=[expect_alerts("TailspanBudgetBurn", "60m", *expected)],
    )
