"""The result of `tailspan what-if` as text and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.corrected_prediction import Predicted
from analysis.what_if import WhatIfAnswer
from analysis.what_if_search import SearchResult, SweepPoint, objectives_of
from cli.render import text


def as_json(answer: WhatIfAnswer) -> dict[str, Any]:
    """The prediction, with null for unknown values."""
    predicted: dict[str, Any] = {
        name: {point: each._asdict() for point, each in points.items()}
        for name, points in answer.predicted.items()
    }
    if answer.refused is None:
        predicted |= {
            "throughput_rps": answer.predicted_rps,
            "usd_per_hour": answer.predicted_usd_per_hour,
            "usd_per_1000_requests": answer.predicted_usd_per_1000_requests,
            "rejected": answer.rejected,
        }
    return {
        "window": {
            "from": answer.window.from_unix_ns / 1e9,
            "to": answer.window.to_unix_ns / 1e9,
        },
        "requests": answer.requests,
        "simulated": answer.simulated,
        "left_out": dict(answer.left_out),
        "reproduced": {
            name: {
                point: {**each._asdict(), "error_ratio": each.error_ratio}
                for point, each in points.items()
            }
            for name, points in answer.reproduced.items()
        },
        "refused": answer.refused,
        "edits": list(answer.edits),
        "now": {
            **answer.now,
            "throughput_rps": answer.throughput_rps,
            "usd_per_hour": answer.usd_per_hour,
            "usd_per_1000_requests": answer.usd_per_1000_requests,
        },
        "predicted": predicted or None,
        "objectives": [
            {
                "slo": each.slo,
                "target": each.target,
                "good_ratio_now": each.good_ratio_now,
                "good_ratio": each.good_ratio.value,
                "low": each.good_ratio.low,
                "high": each.good_ratio.high,
            }
            for each in answer.objectives
        ],
        "binds": answer.binds,
        "binds_now": answer.binds_now,
        "saturated": answer.saturated,
        "extrapolated": list(answer.extrapolated),
    }


TITLES: Final[Mapping[str, str]] = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_max_s": "ITL max",
    "e2e_s": "E2E",
    "queue_s": "queue",
}
_BINDS: Final[Mapping[str, str]] = {
    "seats": "max_num_seqs",
    "kv": "KV blocks",
    "tokens": "max_num_batched_tokens",
}
SHOWN: Final = ("p50", "p99")
REJECTED: Final = "requests would be rejected: longer than max_model_len, or the queue is full."
SATURATED: Final = (
    "SATURATED: the engines cannot keep up with this load. The queue is full, or grows for as"
    " long as the load lasts. The predicted latencies are valid only for a range of this length."
)


def lines(answer: WhatIfAnswer) -> list[str]:
    """The prediction as text."""
    found = _title(answer, f"What if {', '.join(answer.edits)}?")
    if answer.refused is not None:
        found += ["", f"No prediction: {answer.refused}."]
    elif answer.saturated:
        found += ["", SATURATED]
    header = ["latency", "", "measured", "replayed", "error"]
    if answer.refused is None:
        header += ["predicted", "95 % interval"]
    rows = []
    for name, title in TITLES.items():
        for point in SHOWN:
            each = answer.reproduced[name][point]
            error = each.error_ratio
            row = [
                title,
                point.upper(),
                text.seconds(each.measured),
                text.seconds(each.replayed),
                text.UNKNOWN if error is None else f"{error:+.1%}",
            ]
            if answer.refused is None:
                row += predicted_cells(answer.predicted[name][point])
            rows.append(row)
    found += ["", *text.table(header, rows, left=2, keep=len(header))]
    if answer.refused is not None:
        return found
    found.append("")
    found += [
        f"SLO {each.slo}: {share(each.good_ratio_now)} good now, {predicted_share(each.good_ratio)}"
        for each in answer.objectives
    ]
    if answer.rejected:
        found.append(f"{answer.rejected:,} {REJECTED}")
    if answer.usd_per_hour is not None:
        now = cost(answer.usd_per_hour, answer.usd_per_1000_requests)
        predicted = cost(answer.predicted_usd_per_hour, answer.predicted_usd_per_1000_requests)
        found.append(f"cost of all requests, idle time included: {now} now; {predicted} predicted")
    found.append(f"requests wait for: {binding(answer.binds)} (now: {binding(answer.binds_now)})")
    found += [f"assumed: {each}" for each in answer.extrapolated]
    return found


def _title(answer: WhatIfAnswer, question: str) -> list[str]:
    found = [question, f"{answer.requests:,} requests received {text.span(answer.window)}"]
    if answer.simulated:
        found.append("simulated data")
    return [*found, *left_out(answer)]


def left_out(answer: WhatIfAnswer) -> list[str]:
    """Why requests were left out, a line per reason."""
    return [f"{number:,} requests left out: {why}" for why, number in answer.left_out.items()]


def predicted_cells(each: Predicted) -> list[str]:
    """A predicted duration and its confidence interval."""
    if each.low is None or each.high is None:
        return [text.seconds(each.value), text.UNKNOWN]
    return [text.seconds(each.value), f"{text.seconds(each.low)} to {text.seconds(each.high)}"]


def _with_interval(each: Predicted) -> str:
    if each.low is None or each.high is None:
        return text.seconds(each.value)
    low, high = text.seconds(each.low), text.seconds(each.high)
    unit = high[high.rindex(" ") :]
    return f"{text.seconds(each.value)} [{low.removesuffix(unit)} to {high}]"


def _share_with_interval(each: Predicted) -> str:
    return f"{share(each.value)} {_share_interval(each)}".rstrip()


def predicted_share(each: Predicted) -> str:
    """A predicted share, and its confidence interval if there is one."""
    return f"{share(each.value)} predicted {_share_interval(each)}".rstrip()


def _share_interval(each: Predicted) -> str:
    if each.low is None or each.high is None:
        return ""
    return f"[{share(each.low)}, {share(each.high)}]"


def cost(usd_per_hour: float | None, usd_per_1000: float | None) -> str:
    """A cost per hour and per 1,000 requests."""
    found = f"{text.usd(usd_per_hour)}/h"
    return found if usd_per_1000 is None else f"{found}, {text.usd(usd_per_1000)}/1,000 requests"


def share(value: float | None) -> str:
    """A share in percent."""
    return text.percent(value, 2)


def binding(binds: str) -> str:
    """Name the limit that makes requests wait."""
    return _BINDS.get(binds, "nothing; the queue is empty")


def sweep_json(name: str, points: Sequence[SweepPoint]) -> dict[str, Any]:
    """The values common to all predictions of a sweep, then each prediction."""
    whole = as_json(points[0].answer)
    shared = ("window", "requests", "simulated", "left_out", "reproduced", "refused", "now")
    own = ("edits", "predicted", "objectives", "binds", "saturated", "extrapolated")
    return {
        **{key: whole[key] for key in shared},
        "sweep": name,
        "points": [
            {"value": each.value, **{key: as_json(each.answer)[key] for key in own}}
            for each in points
        ],
    }


def sweep_lines(name: str, points: Sequence[SweepPoint]) -> list[str]:
    """A table with one row per value."""
    first = points[0].answer
    found = _title(first, f"What if {name} changes?")
    if first.refused is not None:
        return [*found, "", f"No prediction: {first.refused}."]
    slos = objectives_of(points)
    rejects = any(each.answer.rejected for each in points)
    header = [name, *(f"{title} P99" for title in TITLES.values()), *slos, "$/h"]
    header += [*(["rejected"] if rejects else []), "waits for"]
    now = [first.now[metric]["p99"] for metric in TITLES]
    rows = [
        [
            "now",
            *(text.seconds(value) for value in now),
            *map(share, slos.values()),
            text.usd(first.usd_per_hour),
            *([text.UNKNOWN] if rejects else []),
            binding(first.binds_now),
        ]
    ]
    for each in points:
        answer = each.answer
        ratios = {one.slo: one.good_ratio for one in answer.objectives}
        rows.append(
            [
                each.value,
                *(_with_interval(answer.predicted[metric]["p99"]) for metric in TITLES),
                *(_share_with_interval(ratios.get(slo, Predicted(None))) for slo in slos),
                text.usd(answer.predicted_usd_per_hour),
                *([text.count(answer.rejected)] if rejects else []),
                "SATURATED" if answer.saturated else binding(answer.binds),
            ]
        )
    found += ["", *text.table(header, rows, left=1, keep=len(header))]
    found.append("Square brackets: the 95 % interval of the prediction.")
    if rejects:
        found.append("rejected: longer than max_model_len, or received while the queue is full.")
    assumed = dict.fromkeys(one for each in points for one in each.answer.extrapolated)
    return [*found, "", *(f"assumed: {each}" for each in assumed)]


def found_json(found: SearchResult) -> dict[str, Any]:
    """The result of a search."""
    return {
        "find": found.wanted,
        "slo": found.slo,
        "target": found.target,
        "value": found.value,
        "tried": [each._asdict() for each in found.tried],
        "answer": as_json(found.answer),
    }


def found_lines(found: SearchResult) -> list[str]:
    """The result of a search as text."""
    wanted = {"replicas": "fewest replicas", "rate": "highest rate"}[found.wanted]
    unit = "x" if found.wanted == "rate" else ""
    result = "none" if found.value is None else f"{found.value:g}{unit}"
    of_shown = [each for each in found.answer.objectives if each.slo == found.slo]
    interval = _share_interval(of_shown[0].good_ratio) if of_shown else ""
    header = [found.wanted, "good", "95 % interval", "meets the SLO"]
    rows = [
        [
            f"{each.value:g}{unit}",
            share(each.good_ratio),
            # Only the shown value was also replayed with resampled traffic.
            (interval if each.value == found.shown else "") or text.UNKNOWN,
            "no: saturated" if each.saturated else "yes" if each.met else "no",
        ]
        for each in found.tried
    ]
    return [
        f"The {wanted} to meet SLO {found.slo} (target {text.percent(found.target)}): {result}",
        "",
        *text.table(header, rows, left=0, keep=len(header)),
        "",
        *lines(found.answer),
    ]
