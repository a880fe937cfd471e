"""The engine hangs: it takes no step, and its requests do not end."""

import numpy as np

from diagnosis.claim import ROOT, Claim, Evidence, Lever
from diagnosis.growth.case import Case
from diagnosis.inputs.hung_engines import UNFINISHED

ID = "engine_hang"
SUMMARY = "the engine hangs: it takes no step, and its requests do not end"


def detect(case: Case) -> Claim | None:
    """Return a claim on the time that requests have waited for a hung engine."""
    hung = case.slow.label("outcome").is_value(UNFINISHED)
    if not hung.any():
        return None
    replica = case.slow.label("replica")
    counts = np.bincount(replica.codes[hung & (replica.codes >= 0)], minlength=1)
    at = replica.values[int(counts.argmax())] if replica.values else None
    waits = np.where(hung, 1.0, 0.0)
    there = case if at is None else case.at(at)
    return Claim(
        cause=ID,
        weights={"unsplit": waits, "decode_unsplit": waits},
        tier=ROOT,
        evidence=[
            Evidence("time without an engine step, p99, s", *there.p99("last_step_age_s")),
            Evidence("requests in flight, p99", *there.p99("in_flight")),
            Evidence("requests in the batch, mean", *there.mean("running")),
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
        where={} if at is None else {"replica": at},
    )
