"""Links from alerts and messages to the explorer's page on the requests of an objective."""

from collections.abc import Mapping
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
LAST_HOUR: Final = {"last": "1h"}
FILTERS: Final = ("model", "replica", "tenant", "route")
"""The labels that the explorer's address can hold."""


def own_filters(objective: Objective) -> str:
    """In a template: the alert's group, as the explorer's address has it."""
    return "".join(
        f'{{{{ with $labels.{label} }}}}{{{{ if ne . "{OTHER}" }}}}&{label}={{{{ . | urlquery }}}}'
        "{{ end }}{{ end }}"
        for label in objective.by
        if label in FILTERS
    )


def explorer_link(
    objective: Objective,
    explorer_url: str,
    when: Mapping[str, str] = LAST_HOUR,
) -> str:
    """The explorer's page on this objective's requests; of a latency, the one that says why.

    Args:
        objective: whose requests.
        explorer_url: where it is.
        when: the time range, as in the page's address.
    """
    asked = dict(when)
    if isinstance(objective.indicator, Goodput):
        for leaf in comparisons(objective.indicator.good):
            if leaf.field in LATENCIES:
                asked["latency"] = LATENCIES[leaf.field]
                asked["page"] = "why"
                break
        where = objective.indicator.where
        for each in conjuncts(where) if where else ():
            if isinstance(each, Comparison) and each.field in FILTERS and each.operator == "==":
                asked[each.field] = str(each.value)
    return f"{explorer_url.rstrip('/')}/?{urlencode(asked)}"
