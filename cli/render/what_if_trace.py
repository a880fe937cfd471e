"""The answer of `tailspan what-if --trace` as text and as JSON."""

from typing import Any

from analysis.trace_prediction import TraceAnswer
from cli.render import text
from cli.render.what_if import (
    REJECTED,
    SATURATED,
    SHOWN,
    TITLES,
    as_json,
    binding,
    cost,
    left_out,
    predicted_cells,
    predicted_share,
)
from telemetry.time_text import length


def trace_json(answer: TraceAnswer) -> dict[str, Any]:
    """The answer, with null for unknown values. `now` contains the measurements in the window."""
    window = as_json(answer.of_window)
    predicted: dict[str, Any] | None = None
    if answer.of_window.refused is None:
        predicted = {
            name: {point: each._asdict() for point, each in points.items()}
            for name, points in answer.predicted.items()
        } | {
            "throughput_rps": answer.throughput_rps,
            "usd_per_hour": answer.usd_per_hour,
            "usd_per_1000_requests": answer.usd_per_1000_requests,
            "rejected": answer.rejected,
        }
    return {
        **window,
        "trace": {
            "requests": answer.requests,
            "length_s": answer.length_s,
            "rate_rps": answer.rate_rps,
            "engines": answer.engines,
        },
        "edits": list(answer.edits),
        "predicted": predicted,
        "objectives": [
            {
                "slo": each.slo,
                "target": each.target,
                "good_ratio_now": None,
                "good_ratio": each.good_ratio.value,
                "low": each.good_ratio.low,
                "high": each.good_ratio.high,
            }
            for each in answer.objectives
        ],
        "binds": answer.binds,
        "saturated": answer.saturated,
        "extrapolated": list(answer.extrapolated),
    }


def trace_lines(answer: TraceAnswer, name: str) -> list[str]:
    """The answer about the trace `name` as text."""
    window = answer.of_window
    edits = f" with {', '.join(answer.edits)}" if answer.edits else ""
    rate = "" if answer.rate_rps is None else f", {answer.rate_rps:.3g} requests/s"
    found = [
        f"What would {name} do{edits}?",
        f"{answer.requests:,} requests in {length(int(answer.length_s * 1e9))}{rate}",
        f"Engines as fitted to {window.requests:,} requests received {text.span(window.window)}",
    ]
    if window.simulated:
        found.append("simulated data")
    found += left_out(window)
    if window.refused is not None:
        return [*found, "", f"No prediction: {window.refused}."]
    if answer.saturated:
        found += ["", SATURATED]
    rows = []
    for metric, title in TITLES.items():
        for point in SHOWN:
            error = window.reproduced[metric][point].error_ratio
            rows.append(
                [
                    title,
                    point.upper(),
                    *predicted_cells(answer.predicted[metric][point]),
                    text.UNKNOWN if error is None else f"{error:+.1%}",
                ]
            )
    header = ["latency", "", "predicted", "95 % interval", "error in the window"]
    found += ["", *text.table(header, rows, left=2, keep=len(header)), ""]
    found += [f"SLO {each.slo}: {predicted_share(each.good_ratio)}" for each in answer.objectives]
    if answer.rejected:
        found.append(f"{answer.rejected:,} {REJECTED}")
    if answer.usd_per_hour is not None:
        engines = f"{answer.engines} engine{'s' if answer.engines > 1 else ''}"
        usd = cost(answer.usd_per_hour, answer.usd_per_1000_requests)
        found.append(f"cost, idle time included: {usd} for {engines}")
    found.append(f"requests wait for: {binding(answer.binds)}")
    return [*found, *(f"assumed: {each}" for each in answer.extrapolated)]
