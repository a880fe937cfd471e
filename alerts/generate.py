"""A rules file for a set of objectives."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from alerts.burn_rules import burn_groups
from alerts.indicators import Counted, of_tailspan, of_vllm
from alerts.latency_rules import latency_group
from alerts.objectives import Goodput, Objective
from alerts.rulefile import Group, render
from alerts.selectors import matched_groups
from alerts.sliced_indicators import Sliced
from alerts.symptom_rules import symptom_groups

EXPLORER_URL: Final = "http://127.0.0.1:8501"


def tailspan_rules(
    objectives: Sequence[Objective],
    explorer_url: str,
    selector: str = "",
    now_s: int | None = None,
) -> str:
    """Rules for a Prometheus that scrapes Tailspan.

    Without an objective that Tailspan counts, only the objectives' own rules: such a Prometheus
    need not scrape Tailspan, and would page for its absence.

    Args:
        objectives: whose.
        explorer_url: where the alerts' links lead.
        selector: matchers for each of Tailspan's series, as `read_selector` returns them.
        now_s: calendar periods are written from this year on; None for the clock's time.
    """
    groups = _objectives(objectives, of_tailspan, explorer_url, selector, now_s)
    if not objectives or any(isinstance(each.indicator, Goodput) for each in objectives):
        others = [latency_group(explorer_url), *symptom_groups(explorer_url)]
        groups += matched_groups(others, selector)
    return render(groups, selector)


def vllm_rules(
    objectives: Sequence[Objective],
    explorer_url: str,
    selector: str = "",
    now_s: int | None = None,
) -> str:
    """Rules for a Prometheus that scrapes vLLM itself; arguments as of `tailspan_rules`.

    Raises:
        RuleError: an objective that vLLM's histograms cannot count.
    """
    return render(_objectives(objectives, of_vllm, explorer_url, selector, now_s), selector)


def _objectives(
    objectives: Sequence[Objective],
    count: Callable[[Objective], Counted],
    explorer_url: str,
    selector: str,
    now_s: int | None,
) -> list[Group]:
    if now_s is None:
        now_s = int(time.time())
    made: list[Group] = []
    for each in objectives:
        counted = count(each)
        if each.indicator.slices:
            counted = Sliced(counted, each.indicator.slices)
        groups = burn_groups(each, counted, explorer_url, now_s)
        # The queries of other objectives have the matchers that their user wants.
        ours = isinstance(each.indicator, Goodput)
        made += matched_groups(groups, selector) if ours else groups
    return made
