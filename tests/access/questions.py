"""Questions about all data of the fleet, and about data that some roles may not see."""

from collections.abc import Mapping
from typing import Any

from tests.access.fleet import MODEL, Fleet


def documented(fleet: Fleet) -> Mapping[str, tuple[str, dict[str, Any]]]:
    """The questions of the table in docs/access.md, by description."""
    last = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s + 60)}
    flood = {"from": str(fleet.end_s - 300), "to": str(fleet.end_s)}
    minute = {"from": str(fleet.end_s - 60), "to": str(fleet.end_s)}
    return {
        "`stats` by tenant and model": ("stats", {"by": "tenant,model", **last}),
        "`stats` of another tenant": ("stats", {"where": "tenant=hiddenco", **last}),
        "`stats` of another model": ("stats", {"where": "model=secret-model", **last}),
        "`requests`": ("requests", {"sort": "-ttft_s", "limit": "20", **last}),
        "`requests` of another tenant": (
            "requests",
            {"where": "tenant=hiddenco", "limit": "5", **last},
        ),
        "`explain`": ("explain", {"fast": "true", **flood}),
        "`explain` for another tenant": (
            "explain",
            {"fast": "true", "where": "tenant=hiddenco", **flood},
        ),
        "`explain` an incident of the tenant's SLO": (
            "explain",
            {"incident": "mine-only", "fast": "true"},
        ),
        "`explain` an incident of another tenant's SLO": (
            "explain",
            {"incident": "hiddenco-only", "fast": "true"},
        ),
        "`explain` an incident of an SLO for all requests": (
            "explain",
            {"incident": "chat", "fast": "true"},
        ),
        "`explain` one of the tenant's requests": ("explain", {"request": fleet.key_of("mineco")}),
        "`explain` another tenant's request": ("explain", {"request": fleet.key_of("hiddenco")}),
        "`explain` a request to another model": (
            "explain",
            {"request": fleet.key_of("mineco", "secret-model")},
        ),
        "`slo`": ("slo", {}),
        "`cost`": ("cost", {"by": "tenant", **last}),
        "`caches`": ("caches", {"by": "tenant", **last}),
        "`compare` two tenants": (
            "compare",
            {"before-where": "tenant=mineco", "after-where": "tenant=hiddenco", **minute},
        ),
        "`what-if`": ("what-if", {"rate": "1.1x", **flood}),
        "`budget`": ("budget", {"preset": "chat", **last}),
        "`outside`": ("outside", last),
        "`starts`": ("starts", {"last": "2h"}),
    }


def others(fleet: Fleet) -> list[tuple[str, dict[str, Any]]]:
    """Questions that are not in the table."""
    last = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s + 60)}
    flood = {"from": str(fleet.end_s - 300), "to": str(fleet.end_s)}
    minute = {"from": str(fleet.end_s - 60), "to": str(fleet.end_s)}
    one = next(each for each in fleet.requests if each.tenant == "hiddenco")
    return [
        ("stats", {"by": "tenant", "precision": "sketch", **last}),
        ("stats", {"by": "model", "precision": "sketch", **last}),
        ("stats", {"precision": "sketch", **last}),
        ("stats", {"by": "route,lora,replica", **last}),
        ("requests", {"where": f"request_id={one.request_id}", **last}),
        ("requests", {"where": f"trace_id={one.trace_id}", **last}),
        ("explain", {"fast": "true", "where": "tenant=mineco", **flood}),
        ("explain", {"fast": "true", "metric": "e2e", "where": f"model={MODEL}", **flood}),
        ("explain", {"incident": "chat"}),
        ("explain", {"incident": 'grouped{tenant="hiddenco"}', "fast": "true"}),
        ("explain", {"incident": 'grouped{tenant="other"}', "fast": "true"}),
        ("explain", {"request": fleet.key_of("hiddenco", "secret-model")}),
        ("what-if", {"rate": "1.1x", "where": "tenant=hiddenco", **minute}),
    ]


def asked(fleet: Fleet) -> list[tuple[str, dict[str, Any]]]:
    return [*documented(fleet).values(), *others(fleet)]
