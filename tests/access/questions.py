"""Questions about all data of the fleet, and about data that some roles may not see."""

from typing import Any

from tests.access.fleet import MODEL, Fleet


def asked(fleet: Fleet) -> list[tuple[str, dict[str, Any]]]:
    """Return questions about all data, and about data that some roles may not see."""
    last = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s + 60)}
    flood = {"from": str(fleet.end_s - 300), "to": str(fleet.end_s)}
    minute = {"from": str(fleet.end_s - 60), "to": str(fleet.end_s)}
    hidden, secret = fleet.key_of("hiddenco"), fleet.key_of("hiddenco", "secret-model")
    one = next(each for each in fleet.requests if each.tenant == "hiddenco")
    return [
        ("stats", {"by": "tenant,model", **last}),
        ("stats", {"by": "tenant", "precision": "sketch", **last}),
        ("stats", {"by": "model", "precision": "sketch", **last}),
        ("stats", {"precision": "sketch", **last}),
        ("stats", {"by": "route,lora,replica", **last}),
        ("stats", {"where": "tenant=hiddenco", **last}),
        ("stats", {"where": "model=secret-model", **last}),
        ("requests", {"sort": "-ttft_s", "limit": "20", **last}),
        ("requests", {"where": "tenant=hiddenco", "limit": "5", **last}),
        ("requests", {"where": f"request_id={one.request_id}", **last}),
        ("requests", {"where": f"trace_id={one.trace_id}", **last}),
        ("explain", {"fast": "true", **flood}),
        ("explain", {"fast": "true", "where": "tenant=mineco", **flood}),
        ("explain", {"fast": "true", "where": "tenant=hiddenco", **flood}),
        ("explain", {"fast": "true", "metric": "e2e", "where": f"model={MODEL}", **flood}),
        ("explain", {"incident": "chat"}),
        ("explain", {"incident": "mine-only", "fast": "true"}),
        ("explain", {"incident": "hiddenco-only", "fast": "true"}),
        ("explain", {"incident": 'grouped{tenant="hiddenco"}', "fast": "true"}),
        ("explain", {"incident": 'grouped{tenant="other"}', "fast": "true"}),
        ("explain", {"request": hidden}),
        ("explain", {"request": secret}),
        ("explain", {"request": fleet.key_of("mineco")}),
        ("cost", {"by": "tenant", **last}),
        ("caches", {"by": "tenant", **last}),
        ("slo", {}),
        ("compare", {"before-where": "tenant=mineco", "after-where": "tenant=hiddenco", **minute}),
        ("what-if", {"rate": "1.1x", "where": "tenant=hiddenco", **minute}),
        ("budget", {"preset": "chat", **last}),
        ("outside", last),
        ("starts", {"last": "2h"}),
    ]
