"""Links from alerts to the explorer. Pure."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from alerts.expression import Expression, FieldComparison, comparisons, conjuncts
from alerts.groups import OTHER
from alerts.objectives import GoodProbes, Goodput, Objective

EXPLORER_KEY: Final = "TAILSPAN_EXPLORER_URL"
"""The environment variable with the address of the explorer."""

LATENCIES: Final = {
    "ttft_s": "ttft",
    "tpot_s": "tpot",
    "itl_max_s": "itl_max",
    "e2e_s": "e2e",
    "queue_s": "queue",
    "first_content_s": "first_content",
}
"""For each latency field, its name in the URLs of the explorer."""
FILTERS: Final = ("model", "replica", "tenant", "route")
"""Labels that can be query parameters of the explorer's pages."""
PROBE_FILTERS: Final = ("region", "endpoint")
"""Labels that can be query parameters of the page Outside."""


def objective_link(objective: Objective, explorer_url: str) -> str:
    """Link to the last hour of the objective's requests.

    It opens Root cause if the objective compares a latency, and Outside if it counts probes.
    """
    query = {"last": "1h"}
    if isinstance(objective.indicator, Goodput):
        for leaf in comparisons(objective.indicator.good):
            if leaf.field in LATENCIES:
                query["latency"] = LATENCIES[leaf.field]
                query["page"] = "root-cause"
                break
        query |= required(objective.indicator.where, FILTERS)
    elif isinstance(objective.indicator, GoodProbes):
        query["page"] = "outside"
        query |= required(objective.indicator.where, PROBE_FILTERS)
    return f"{explorer_url.rstrip('/')}/?{urlencode(query)}"


def group_filters(objective: Objective) -> str:
    """A Prometheus template that selects the alert's group. Append it to `objective_link`."""
    return "".join(
        f'{{{{ with $labels.{label} }}}}{{{{ if ne . "{OTHER}" }}}}&{label}={{{{ . | urlquery }}}}'
        "{{ end }}{{ end }}"
        for label in objective.by
        if label in (PROBE_FILTERS if isinstance(objective.indicator, GoodProbes) else FILTERS)
    )


def required(where: Expression | None, labels: Sequence[str]) -> dict[str, str]:
    """Maps a label to the value that `where` requires with `==`."""
    return {
        each.field: str(each.value)
        for each in (conjuncts(where) if where else ())
        if isinstance(each, FieldComparison) and each.field in labels and each.operator == "=="
    }


def incident_link(slo: str, fired_unix_s: int, explorer_url: str) -> str:
    """Link to an incident. `slo` includes the group. `fired_unix_s` is the time of the first
    alert."""
    query = urlencode({"page": "root-cause", "incident": f"{slo}@{fired_unix_s}"}, safe="@")
    return f"{explorer_url.rstrip('/')}/?{query}"
