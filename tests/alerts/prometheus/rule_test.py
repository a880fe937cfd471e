from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Run = Callable[..., None]
"""The `promtool` fixture."""

MINUTE_S: Final = 60
ONE: Final = {"{}": 1}
"""One sample without labels, with the value 1."""
PAGE: Final = 'count(ALERTS{alertname="TailspanBudgetBurn",severity="page"})'


def slo_counters(
    events: Sequence[int] | str, good: Sequence[int] | str, labels: str = 'slo="chat"'
) -> dict[str, str]:
    return {
        f"tailspan_slo_{name}_total{{{labels}}}": (
            values if isinstance(values, str) else " ".join(map(str, values))
        )
        for name, values in (("events", events), ("good_events", good))
    }


def expect(expr: str, at: int | str, samples: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return a check that an expression has these values, by series.

    Args:
        at: seconds, or a time such as `5m`.
    """
    found = [{"labels": labels, "value": value} for labels, value in (samples or {}).items()]
    return {"expr": expr, "eval_time": _time(at), "exp_samples": found}


def expect_alerts(
    name: str, at: int | str, *alerts: tuple[dict[str, str], dict[str, str]]
) -> dict[str, Any]:
    return {
        "eval_time": _time(at),
        "alertname": name,
        "exp_alerts": [
            {"exp_labels": labels, "exp_annotations": annotations} for labels, annotations in alerts
        ],
    }


def _time(at: int | str) -> str:
    return at if isinstance(at, str) else f"{at}s"
