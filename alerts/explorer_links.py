"""Links from alerts to the explorer. Pure.

An alert of Prometheus knows its objective: it leads to the last hour of its requests. A message
about an incident leads to that incident: the page reads its range, its baseline and its latency
when it is opened, as `tailspan explain --incident` does.
"""

from typing import Final
from urllib.parse import urlencode

from alerts.expression import Comparison, comparisons, conjuncts
from alerts.groups import OTHER
from alerts.objectives import Goodput, Objective

LATENCIES: Final = {
    "ttft_s": "ttft",
    "tpot_s": "tpot",
    "itl_max_s": "itl_max",
    "e2e_s": "e2e",
    "queue_s": "queue",
}
"""The explorer's names of latencies, in its page's address."""
FILTERS: Final = ("model", "replica", "tenant", "route")
"""The labels that the explorer's address can hold."""


def objective_link(objective: Objective, explorer_url: str) -> str:
    """Return the page on the last hour of an objective's requests; of a latency, the one that says
    why.

    Args:
        objective: whose requests.
        explorer_url: where the explorer is.
    """
    asked = {"last": "1h"}
    if isinstance(objective.indicator, Goodput):
        for leaf in comparisons(objective.indicator.good):
            if leaf.field in LATENCIES:
                asked["latency"] = LATENCIES[leaf.field]
                asked["page"] = "root-cause"
                break
        where = objective.indicator.where
        for each in conjuncts(where) if where else ():
            if isinstance(each, Comparison) and each.field in FILTERS and each.operator == "==":
                asked[each.field] = str(each.value)
    return f"{explorer_url.rstrip('/')}/?{urlencode(asked)}"


def group_filters(objective: Objective) -> str:
    """Return the alert's group as a template that continues `objective_link`."""
    return "".join(
        f'{{{{ with $labels.{label} }}}}{{{{ if ne . "{OTHER}" }}}}&{label}={{{{ . | urlquery }}}}'
        "{{ end }}{{ end }}"
        for label in objective.by
        if label in FILTERS
    )


def incident_link(slo: str, fired_unix_s: int, explorer_url: str) -> str:
    """Return the page on an incident.

    Args:
        slo: the name of its objective; that of a group ends in the group.
        fired_unix_s: when it alerted.
        explorer_url: where the explorer is.
    """
    asked = urlencode({"page": "root-cause", "incident": f"{slo}@{fired_unix_s}"}, safe="@")
    return f"{explorer_url.rstrip('/')}/?{asked}"
