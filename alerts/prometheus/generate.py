"""Generate a Prometheus rules file for a set of objectives."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from alerts.objectives import GoodEvents, Objective
from alerts.prometheus.burn_rules import burn_groups
from alerts.prometheus.collector_rules import collector_group
from alerts.prometheus.indicators import EventQueries, of_tailspan, of_vllm
from alerts.prometheus.latency_rules import latency_group
from alerts.prometheus.operation_rules import operation_group
from alerts.prometheus.probe_rules import probe_group
from alerts.prometheus.rulefile import RuleGroup, render
from alerts.prometheus.selectors import matched_groups
from alerts.prometheus.sliced_indicators import Sliced
from alerts.prometheus.symptom_rules import symptom_groups

EXPLORER_URL: Final = "http://127.0.0.1:8501"


def tailspan_rules(
    objectives: Sequence[Objective],
    explorer_url: str,
    selector: str = "",
    now_s: int | None = None,
) -> str:
    """Rules file for a Prometheus that scrapes Tailspan.

    If all objectives use Prometheus queries, only their rules are included. The other rules include
    a paging alert that fires if Prometheus does not scrape Tailspan.

    Args:
        selector: matchers from `read_selector`.
        now_s: unix seconds; None for the system clock.
    """
    groups = _objectives(objectives, of_tailspan, explorer_url, selector, now_s)
    if not objectives or any(isinstance(each.indicator, GoodEvents) for each in objectives):
        others = [
            latency_group(explorer_url),
            *symptom_groups(explorer_url),
            probe_group(explorer_url),
            operation_group(explorer_url),
            collector_group(explorer_url),
        ]
        groups += matched_groups(others, selector)
    return render(groups, selector)


def vllm_rules(
    objectives: Sequence[Objective],
    explorer_url: str,
    selector: str = "",
    now_s: int | None = None,
) -> str:
    """Rules file for a Prometheus that scrapes vLLM. See `tailspan_rules`.

    Raises:
        RuleError: vLLM's histograms cannot count an objective.
    """
    return render(_objectives(objectives, of_vllm, explorer_url, selector, now_s), selector)


def _objectives(
    objectives: Sequence[Objective],
    count: Callable[[Objective], EventQueries],
    explorer_url: str,
    selector: str,
    now_s: int | None,
) -> list[RuleGroup]:
    if now_s is None:
        now_s = int(time.time())
    made: list[RuleGroup] = []
    for each in objectives:
        counted = count(each)
        if each.indicator.slices:
            counted = Sliced(counted, each.indicator.slices)
        groups = burn_groups(each, counted, explorer_url, now_s)
        # Users' queries have their own matchers.
        ours = isinstance(each.indicator, GoodEvents)
        made += matched_groups(groups, selector) if ours else groups
    return made
