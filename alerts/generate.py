"""A rules file for a set of objectives."""

from collections.abc import Sequence
from typing import Final

from alerts.burn_rules import burn_groups
from alerts.indicators import of_tailspan, of_vllm
from alerts.latency_rules import latency_group
from alerts.objectives import Goodput, Objective
from alerts.rulefile import render
from alerts.symptom_rules import symptom_groups

EXPLORER_URL: Final = "http://127.0.0.1:8501"


def tailspan_rules(objectives: Sequence[Objective], explorer_url: str) -> str:
    """Rules for a Prometheus that scrapes Tailspan.

    Without an objective that Tailspan counts, only the objectives' own rules: such a Prometheus
    need not scrape Tailspan, and would page for its absence.
    """
    groups = [
        group for each in objectives for group in burn_groups(each, of_tailspan(each), explorer_url)
    ]
    if objectives and not any(isinstance(each.indicator, Goodput) for each in objectives):
        return render(groups)
    return render([*groups, latency_group(explorer_url), *symptom_groups(explorer_url)])


def vllm_rules(objectives: Sequence[Objective], explorer_url: str) -> str:
    """Rules for a Prometheus that scrapes vLLM itself.

    Raises:
        RuleError: an objective that vLLM's histograms cannot count.
    """
    return render(
        [group for each in objectives for group in burn_groups(each, of_vllm(each), explorer_url)]
    )
