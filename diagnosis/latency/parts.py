"""Split latencies into parts. The parts of a latency sum to the latency.

Pure. The parts are measured and stored in each request's row. Two latencies have estimated parts:
the longest gap between two tokens (ITL max), and the reasoning before the first content.
"""

from typing import Final

import numpy as np

from diagnosis.inputs.hung_engines import unfinished
from diagnosis.inputs.requests import BoolArray, FloatArray, Requests
from diagnosis.question import FROM_RECEIPT, Metric, Question

QUEUE: Final = ("seats", "kv", "budget", "held", "step")
STEP_PARTS: Final = ("own", "others_prefill", "others_decode", "preempted", "stall")

PARTS: Final = (
    "frontend",
    "handoff",
    *(f"queue_{part}" for part in (*QUEUE, "unsplit")),
    *(f"prefill_{part}" for part in (*STEP_PARTS, "unsplit")),
    *(f"decode_{part}" for part in (*STEP_PARTS, "unsplit")),
    "delivery",
    "unsplit",
)
"""`handoff` is the wait until the engine accepts a request, which it does only between two steps.
`unsplit` is time that is not divided into parts, because there is no step ledger (record of engine
steps)."""

PART_INDEX: Final = {part: place for place, part in enumerate(PARTS)}

HELD_PARTS: Final = {
    "queue_kv_load": "kv_load_s",
    "queue_grammar": "grammar_s",
    "queue_adapter": "adapter_wait_s",
}
"""The reasons for `queue_held`, and the columns with the seconds of each reason. Rows of older
plugins do not report the reasons. So only the explanation of a single request uses them."""

REASONING: Final = {f"decode_{part}": f"reasoning_{part}" for part in (*STEP_PARTS, "unsplit")}
"""The names of the decode's parts in an explanation of the time to the first content."""

PHASE: Final = {
    **{part: part.split("_")[0] for part in (*PARTS, *REASONING.values())},
    **dict.fromkeys(HELD_PARTS, "queue"),
    "handoff": "frontend",
}


def latency_s(requests: Requests, metric: Metric) -> FloatArray:
    """Return the latency of each request in seconds: (n,). The latency is NaN if it is unknown or
    undefined (`has_latency`). If a hung engine did not finish a request, its E2E is the time that
    it has waited."""
    number, defined = requests.number, has_latency(requests, metric)
    if metric is not Metric.TPOT:
        return np.where(defined, number(f"{metric.value}_s"), np.nan)
    gaps = number("output_tokens") - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(defined & (gaps > 0), number("decode_s") / gaps, np.nan)


def has_latency(requests: Requests, metric: Metric) -> BoolArray:
    """Return whether the latency is defined for each request, even if its value is unknown: (n,).

    TTFT and the time to the first content are defined for streamed responses. TPOT and E2E are
    defined for complete responses. E2E is also defined for requests that a hung engine did not
    finish.
    """
    if metric in (Metric.TTFT, Metric.FIRST_CONTENT):
        return np.asarray(requests.number("streamed") != 0.0)
    if metric is Metric.TPOT:
        return _answered(requests)
    if metric is Metric.E2E:
        return _answered(requests) | unfinished(requests)
    return np.ones(len(requests), dtype=np.bool_)


def reasoning_s(requests: Requests) -> FloatArray:
    """Return the seconds from the first byte to the first content: (n,). A value is NaN if it is
    unknown."""
    waited = latency_s(requests, Metric.FIRST_CONTENT) - requests.number("ttft_s")
    return np.maximum(waited, 0.0)


def gaps(requests: Requests, metric: Metric) -> FloatArray:
    """Return how many tokens each request generated during the measured latency, without the first
    token: (n,). A value is NaN if it is unknown.

    For the time to the first content, the tokens are the reasoning tokens. If their number is not
    reported, it is estimated: tokens after the first · reasoning seconds / decode seconds.
    """
    tokens = np.maximum(requests.number("output_tokens") - 1.0, 0.0)
    if metric is not Metric.FIRST_CONTENT:
        return tokens
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = tokens * reasoning_s(requests) / requests.number("decode_s")
    counted = requests.number("reasoning_tokens")
    return np.where(np.isfinite(counted), counted, estimate)


def selected_latency_s(requests: Requests, question: Question) -> FloatArray:
    """Return the selected requests' latency in seconds: (n,). All other requests have NaN."""
    latency = latency_s(requests, question.metric)
    if not question.where:
        return latency
    return np.where(requests.matching(question.where), latency, np.nan)


def _answered(requests: Requests) -> BoolArray:
    outcome = requests.label("outcome")
    if not outcome.values:
        return np.ones(len(requests), dtype=np.bool_)
    return outcome.is_value("stop") | outcome.is_value("length")


def split_s(requests: Requests, metric: Metric) -> FloatArray:
    """Return the seconds of each part: (n, len(PARTS)). Each row sums to `latency_s`.

    A row has no parts for the longest gap (ITL max). The gap is attributed to preemption, then to
    stalls, and then to other requests' prefills. Each of them gets at most its total time in the
    decode. So these seconds are upper bounds. The rest of the gap is attributed to an ordinary
    step.

    The reasoning time before the first content is divided in the proportions of the whole decode.
    """
    total = latency_s(requests, metric)
    parts = np.zeros((len(requests), len(PARTS)))
    if metric is Metric.ITL_MAX:
        _fill_gap(requests, total, parts)
    else:
        if metric in FROM_RECEIPT:
            handoff = np.nan_to_num(requests.number("handoff_s"))
            parts[:, PART_INDEX["frontend"]] = (
                np.nan_to_num(requests.number("frontend_s")) - handoff
            )
            parts[:, PART_INDEX["handoff"]] = handoff
        if metric in (*FROM_RECEIPT, Metric.QUEUE):
            _fill_phase(requests, "queue", QUEUE, parts)
        if metric in FROM_RECEIPT:
            _fill_phase(requests, "prefill", STEP_PARTS, parts)
        if metric in (Metric.TPOT, Metric.E2E):
            _fill_phase(requests, "decode", STEP_PARTS, parts)
        if metric is Metric.FIRST_CONTENT:
            _fill_reasoning(requests, parts)
        if metric is Metric.TPOT:
            parts /= np.maximum(requests.number("output_tokens") - 1.0, 1.0)[:, None]
    # Time that belongs to no phase counts as delivery. If no phase is known, the whole latency is
    # unsplit.
    rest = np.nan_to_num(total) - parts.sum(axis=1)
    known = np.isfinite(requests.number("decode_s" if metric is Metric.TPOT else "queue_s"))
    edge = metric in FROM_RECEIPT
    parts[:, PART_INDEX["delivery"]] += np.where(known & edge, rest, 0.0)
    parts[:, PART_INDEX["unsplit"]] += np.where(known & edge, 0.0, rest)
    return parts


def _fill_phase(requests: Requests, phase: str, inside: tuple[str, ...], parts: FloatArray) -> None:
    whole = np.nan_to_num(requests.number(f"{phase}_s"))
    split = np.stack([requests.number(f"{phase}_{part}_s") for part in inside], axis=1)
    known = np.isfinite(split).all(axis=1)
    for place, part in enumerate(inside):
        parts[:, PART_INDEX[f"{phase}_{part}"]] = np.where(known, split[:, place], 0.0)
    # The phase and the sum of its parts may differ by a rounding error.
    parts[:, PART_INDEX[f"{phase}_unsplit"]] = whole - np.where(known, split.sum(axis=1), 0.0)


def _fill_reasoning(requests: Requests, parts: FloatArray) -> None:
    seconds = np.nan_to_num(reasoning_s(requests))
    decode = np.zeros_like(parts)
    _fill_phase(requests, "decode", STEP_PARTS, decode)
    whole_s = np.nan_to_num(requests.number("decode_s"))
    known = whole_s > 0
    share = np.divide(seconds, whole_s, out=np.zeros_like(seconds), where=known)
    parts += decode * share[:, None]
    parts[:, PART_INDEX["decode_unsplit"]] += np.where(known, 0.0, seconds)


def _fill_gap(requests: Requests, total: FloatArray, parts: FloatArray) -> None:
    left = np.nan_to_num(total)
    for part in ("preempted", "stall", "others_prefill"):
        taken = np.minimum(left, np.nan_to_num(requests.number(f"decode_{part}_s")))
        parts[:, PART_INDEX[f"decode_{part}"]] = taken
        left = left - taken
    own = np.nan_to_num(requests.number("decode_own_s"))
    others = np.nan_to_num(requests.number("decode_others_decode_s"))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(own + others > 0, own / (own + others), 0.0)
    parts[:, PART_INDEX["decode_own"]] = left * share
    parts[:, PART_INDEX["decode_others_decode"]] = np.where(
        own + others > 0, left * (1.0 - share), 0.0
    )
