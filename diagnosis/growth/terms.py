"""Divide each slow request's excess over the baseline's slow requests into terms.

Pure. Each term has one mechanism, for example the wait for KV blocks. The terms are the latency
parts of a request's row, but two of these parts are divided further. The own prefill is divided
into longer prompts, fewer cache hits and a slower machine. The decode is divided into longer
outputs and slower tokens: Δ(n·tpot) = Δn·tpot₀ + n·Δtpot. n is the number of tokens after the
first, and tpot₀ is the baseline's TPOT. The terms of a request sum to its latency minus the mean
latency of the baseline's tail.

The baseline's slow requests also have long prompts and outputs. So the usual effect of a long
prompt or output does not count as growth.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from diagnosis.growth.own_work import OwnWork, uncached_tokens
from diagnosis.inputs.requests import FloatArray, Requests
from diagnosis.latency.parts import PART_INDEX, PARTS, STEP_PARTS, gaps, split_s
from diagnosis.question import CONTAIN_TOKENS, FROM_RECEIPT, Metric

SPLIT_TERMS: Final = ("prefill_longer", "prefill_uncached", "decode_longer")
"""The terms that are not latency parts. They are the effects of more prompt tokens, fewer cached
tokens, and more output tokens. The effect of a slower machine remains in `prefill_own` and
`decode_own`."""

TERMS: Final = (*PARTS, *SPLIT_TERMS)
TERM_INDEX: Final = {term: place for place, term in enumerate(TERMS)}

_DECODE: Final = tuple(PART_INDEX[f"decode_{part}"] for part in (*STEP_PARTS, "unsplit"))


@dataclass(frozen=True, slots=True)
class WorkloadGrowth:
    """Whether the prompts and the outputs of all requests became longer on average. If the average
    did not grow, the slow requests are longer than the baseline's only because some cause delays
    long requests most. The effect of their length is then attributed to this cause."""

    prompts_grew: bool
    outputs_grew: bool


def excess_s(
    now: Requests, baseline: Requests, metric: Metric, work: OwnWork, workload: WorkloadGrowth
) -> FloatArray:
    """Return each slow request's excess in each term, in seconds: (n, len(TERMS)).

    Args:
        now: the slow requests to explain.
        baseline: the baseline's slow requests.
        work: the model fitted to all of the baseline's requests.
    """
    terms = np.zeros((len(now), len(TERMS)))
    usual = split_s(baseline, metric)
    terms[:, : len(PARTS)] = split_s(now, metric) - usual.mean(axis=0)
    if metric in FROM_RECEIPT:
        _split_prefill(terms, now, baseline, work)
        if not workload.prompts_grew:
            _merge_prompt_length(terms)
    if metric in CONTAIN_TOKENS and workload.outputs_grew:
        _split_longer_answers(terms, gaps(now, metric), gaps(baseline, metric), usual)
    return terms


def _split_prefill(terms: FloatArray, now: Requests, baseline: Requests, work: OwnWork) -> None:
    if work.prefill is None:
        return

    def by_prompt_and_by_hits(requests: Requests) -> tuple[FloatArray, FloatArray]:
        expected = work.expected_prefill_s(requests)
        actual = work.prefill_s(requests.number("prompt_tokens"), uncached_tokens(requests))
        split = np.isfinite(requests.number("prefill_own_s")) & np.isfinite(expected)
        return np.where(split, expected, 0.0), np.where(split, actual - expected, 0.0)

    longer, missed = by_prompt_and_by_hits(now)
    usual_longer, usual_missed = by_prompt_and_by_hits(baseline)
    longer, missed = longer - usual_longer.mean(), missed - usual_missed.mean()
    terms[:, TERM_INDEX["prefill_longer"]] = longer
    terms[:, TERM_INDEX["prefill_uncached"]] = missed
    terms[:, TERM_INDEX["prefill_own"]] -= longer + missed
    # For requests that compute more prompt tokens than any request of the baseline, the model
    # extrapolates. Its error is attributed to longer prompts or cache misses, and not to a slower
    # machine.
    guessed = uncached_tokens(now) > work.uncached_range[1]
    long = now.number("prompt_tokens") > work.prompt_range[1]
    for term, chosen in (("prefill_longer", guessed & long), ("prefill_uncached", guessed & ~long)):
        rest = np.where(chosen, terms[:, TERM_INDEX["prefill_own"]], 0.0)
        terms[:, TERM_INDEX[term]] += rest
        terms[:, TERM_INDEX["prefill_own"]] -= rest


def _merge_prompt_length(terms: FloatArray) -> None:
    """Move the seconds for longer prompts to the terms for cache misses and a slower machine.

    They are divided in proportion to the means of these terms."""
    missed, slower = (
        max(float(terms[:, TERM_INDEX[term]].mean()), 0.0)
        for term in ("prefill_uncached", "prefill_own")
    )
    if not missed + slower > 0:
        return
    longer = terms[:, TERM_INDEX["prefill_longer"]].copy()
    terms[:, TERM_INDEX["prefill_longer"]] = 0.0
    terms[:, TERM_INDEX["prefill_uncached"]] += longer * missed / (missed + slower)
    terms[:, TERM_INDEX["prefill_own"]] += longer * slower / (missed + slower)


def _split_longer_answers(
    terms: FloatArray, now: FloatArray, baseline: FloatArray, usual: FloatArray
) -> None:
    now, usual_gaps = np.nan_to_num(now), np.nan_to_num(baseline)
    if not usual_gaps.sum() > 0:
        return
    for place in _DECODE:
        each_s = usual[:, place].sum() / usual_gaps.sum()
        longer = (now - usual_gaps.mean()) * each_s
        terms[:, TERM_INDEX["decode_longer"]] += longer
        terms[:, place] -= longer
