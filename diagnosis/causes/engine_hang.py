"""The engine hangs: it takes no step, and its requests do not end."""

import numpy as np

from diagnosis.claim import ROOT, Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.restarts import ends_of_hangs, hangs_in_window, while_an_engine_hung
from diagnosis.evidence.start_delays import start_weights
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.hung_engines import EngineHang, unfinished
from diagnosis.inputs.requests import FloatArray
from diagnosis.inputs.servers import EngineName
from diagnosis.question import Span

ID = "engine_hang"
SUMMARY = "the engine hangs: it takes no step, and its requests do not end"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the time for which requests wait for a hung engine, and their delay by the restart
    after the hang.

    The restarted engine's requests go to other servers. So also claim the delay at these
    servers."""
    found = hangs_in_window(case)
    if not found:
        return None
    hung = unfinished(case.slow)
    weights: dict[str, float | FloatArray] = dict(start_weights(case, ends_of_hangs(case)))
    meanwhile = while_an_engine_hung(case, case.slow)
    for term, share in wait_weights(case, drivers.AWAY).items():
        weights[term] = np.maximum(weights.get(term, 0.0), meanwhile * share)
    for term in ("unsplit", "decode_unsplit"):
        weights[term] = np.where(hung, 1.0, weights.get(term, 0.0))
    if not any(np.any(each) for each in weights.values()):
        return None
    at = _server(max(found, key=lambda hang: hang.to_unix_ns - hang.from_unix_ns), case)
    return Claim(
        cause=ID,
        weights=weights,
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
        where=case.where_of(at),
    )


def _server(hang: EngineHang, case: DiagnosisCase) -> str:
    name = EngineName(hang.replica, hang.engine).server
    return name if name in case.servers.divided else hang.replica


def _largest(case: DiagnosisCase, server: str, name: str) -> tuple[float | None, float | None]:
    """Return the largest value of an engine's gauge in the baseline and in the window. The whole
    window is used, because the gauge is largest at the end of the hang."""
    engines = case.servers.engines
    there = (engines.server or engines.replica).is_value(server)

    def within(span: Span) -> float | None:
        at = engines.at_unix_ns
        inside = there & (at >= span.from_unix_ns) & (at < span.to_unix_ns)
        return engines.quantile(name, 1.0, inside)

    return within(case.question.baseline), within(case.question.window)
