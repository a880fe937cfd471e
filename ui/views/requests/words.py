"""The texts of the Requests page. Pure HTML. External text is escaped."""

import html
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from analysis.over_time.columns import floats, texts
from analysis.over_time.percentiles import PercentileEstimate, Percentiles, estimate
from analysis.over_time.phases import BEFORE_FIRST_TOKEN, Largest, Matrix, largest_of_slowest
from analysis.over_time.rolled import Rolled
from analysis.over_time.time_bins import Bins
from telemetry.quantiles import least_number
from telemetry.requests import Outcome
from ui.kit import wording
from ui.kit.terms import term


def sentence(table: pa.Table, matrix: Matrix, length_s: float, equals: Mapping[str, str]) -> str:
    """The headline about one or more requests. The requests have the columns ttft_s and e2e_s."""
    ttft = estimate(floats(table, "ttft_s"), "p99")
    e2e = estimate(floats(table, "e2e_s"), "p99")
    first = _requests_sentence(table.num_rows, length_s, equals)
    return f"{first}: {_tails(ttft, e2e, table)} {_reasons(table, matrix)}"


def rolled_sentence(rolled: Rolled, length_s: float, equals: Mapping[str, str]) -> str:
    """The headline for requests that were read as rollups."""
    first = _requests_sentence(rolled.requests, length_s, equals)
    tails = _tails(rolled.p99["ttft_s"], rolled.p99["e2e_s"], rolled.slowest)
    return (
        f"{first}: {tails} Percentiles are within 1 %, because there are too many requests to "
        f"read each.{wording.hidden(rolled.hidden)}"
    )


def joined(requests: int, latency: str, max_rows: int | None) -> str:
    """A note about the joined requests, which are sorted by a latency.

    If `max_rows` is not None, only this many rows were joined.
    """
    text = (
        f"{wording.counted(requests, 'joined request')}, the slowest by {latency} first. The rest"
        " of this page counts each of them once per server."
    )
    if max_rows is None:
        return text
    return f"{text} Only the newest {wording.count(max_rows)} rows of the range were joined."


def _requests_sentence(requests: int, length_s: float, equals: Mapping[str, str]) -> str:
    first = f"<b>{wording.counted(requests, 'request')}</b> in {wording.span(length_s)}"
    if equals:
        first += " of " + ", ".join(
            f"{html.escape(label)} <b>{wording.for_html(value)}</b>"
            for label, value in equals.items()
        )
    return first


def _tails(ttft: PercentileEstimate, e2e: PercentileEstimate, table: pa.Table) -> str:
    if ttft.value_s is None and e2e.value_s is None:
        slowest = ", ".join(
            f"{term(column, name)} {wording.seconds(float(np.nanmax(values)))}"
            for column, name in (("ttft_s", "TTFT"), ("e2e_s", "E2E"))
            if not np.isnan(values := floats(table, column)).all()
        )
        needed = least_number(0.99)
        few = f"too few for a {term('p99', 'P99')} (at least {needed} needed)"
        return f"{few}; the slowest {slowest}." if slowest else f"{few}."
    return (
        f"{term('p99', 'P99')} {term('ttft_s', 'TTFT')} {_estimate_text(ttft)}, "
        f"{term('e2e_s', 'E2E')} {_estimate_text(e2e)}."
    )


def _estimate_text(found: PercentileEstimate) -> str:
    if found.value_s is None:
        return f"unknown ({wording.counted(found.requests, 'request')} report it)"
    interval = f"{wording.seconds(found.low_s)} to {wording.seconds(found.high_s)}"
    return (
        f"<b>{wording.seconds(found.value_s)}</b> "
        f'<small title="95 % interval, of {wording.counted(found.requests, "request")}">'
        f"[{interval}]</small>"
    )


def _reasons(table: pa.Table, matrix: Matrix) -> str:
    found = (
        (largest_of_slowest(table, matrix, "ttft_s", BEFORE_FIRST_TOKEN), "time to first token"),
        (largest_of_slowest(table, matrix, "e2e_s"), "time end to end"),
    )
    known = [(largest, of_what) for largest, of_what in found if largest is not None]
    if not known:
        return ""
    who = "For the slowest" if known[-1][0].requests == 1 else "For the slowest 1 %"
    phases = ", and ".join(_largest_phase_text(largest, of_what) for largest, of_what in known)
    return f"{who}, {phases}."


def _largest_phase_text(found: Largest, of_what: str) -> str:
    swatch = f'<i class="swatch" style="background:{found.layer.colour}"></i>'
    name = f"<b>{swatch}{term(found.layer.key, found.layer.name)}</b>"
    return f"{name} took {wording.percent(found.share)} of the {of_what}"


def outcomes(table: pa.Table) -> dict[str, int]:
    """The number of requests by outcome. Outcomes without requests are included."""
    values = texts(table, "outcome")
    return {outcome.value: values.count(outcome.value) for outcome in Outcome}


def gap_sentence(found: Percentiles, bins: Bins) -> str | None:
    """The reason for gaps in the P99 line, or None without gaps. An empty bin does not count as a
    gap."""
    came = found.requests > 0
    silent = came & np.isnan(found.series["p99"].value_s)
    missing = int(silent.sum())
    if not missing:
        return None
    of_bins = wording.counted(int(came.sum()), "bin")
    which = "No bin" if missing == came.sum() else f"{missing} of {of_bins}"
    verb = "has" if missing in (1, came.sum()) else "have"
    without = "a P99" if missing == came.sum() else "no P99"
    typical = int(np.median(found.requests[silent]))
    return (
        f"{which} ({wording.span(bins.width_s)} each) {verb} {without}, which needs"
        f" {least_number(0.99)} requests. A bin has about {typical:,}. Choose a longer range, which"
        " has wider bins."
    )
