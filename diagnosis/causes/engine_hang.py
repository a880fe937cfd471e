"""The engine hangs: it takes no step, and its requests do not end."""

import numpy as np

from diagnosis.claim import ROOT, Claim, Evidence, Lever
from diagnosis.growth.case import Case
from diagnosis.inputs.hung_engines import UNFINISHED
from diagnosis.question import Span

ID = "engine_hang"
SUMMARY = "the engine hangs: it takes no step, and its requests do not end"


def detect(case: Case) -> Claim | None:
    """Return a claim on the time that requests have waited for a hung engine."""
    hung = case.slow.label("outcome").is_value(UNFINISHED)
    if not hung.any():
        return None
    server = case.slow.server
    counts = np.bincount(server.codes[hung & (server.codes >= 0)], minlength=1)
    at = server.values[int(counts.argmax())] if counts.any() else None
    waits = np.where(hung, 1.0, 0.0)
    return Claim(
        cause=ID,
        weights={"unsplit": waits, "decode_unsplit": waits},
        tier=ROOT,
        evidence=[
            Evidence(
                "longest time without an engine step, s", *_largest(case, at, "last_step_age_s")
            ),
            Evidence("requests in flight, maximum", *_largest(case, at, "in_flight")),
            Evidence("share of slow requests that did not end", 0.0, float(hung.mean())),
        ],
        levers=[
            Lever(
                "write a core dump of the engine's processes, or their stacks with py-spy dump,"
                " before the restart"
            ),
            Lever("restart the server"),
            Lever("let a watchdog restart a server that has requests and takes no step"),
        ],
        where={} if at is None else case.where_of(at),
    )


def _largest(case: Case, server: str | None, name: str) -> tuple[float | None, float | None]:
    """Return the largest value of an engine's gauge in the baseline and in the window.

    Read the whole window, not only the hot blocks: the requests that have waited longest arrived
    first, but the gauge is largest at the end.
    """
    engines = case.servers.engines
    there = (engines.server or engines.replica).is_value(server or "")

    def within(span: Span) -> float | None:
        at = engines.at_unix_ns
        inside = there & (at >= span.from_unix_ns) & (at < span.to_unix_ns)
        return engines.quantile(name, 1.0, inside)

    return within(case.question.baseline), within(case.question.window)
