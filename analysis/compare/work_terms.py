"""The work of a request, and the work around it, that determine each latency. Pure.

The number of output tokens is not a term: a change such as quantisation can affect it.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from analysis.compare.shared_work import Instants, SharedWork, pairs_of
from replay.arrivals import FloatArray

METRICS: Final[Mapping[str, str]] = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "itl_max": "itl_max_s",
    "e2e": "e2e_s",
    "queue": "queue_s",
}
"""The column of each latency in a table of requests."""


def mix_terms(metric: str, of: Instants) -> FloatArray:
    """The amount of each kind of work of the requests themselves: (n, j). The first column is 1.

    `metric` is a key of `METRICS`.
    """
    prefill = (of.uncached_tokens, pairs_of(of.uncached_tokens, of.cached_tokens))
    prompt = of.uncached_tokens + of.cached_tokens
    terms = {"tpot": (prompt,), "itl_max": (prompt,), "e2e": (*prefill, prompt)}
    return _columns(np.ones(prompt.size), *terms.get(metric, prefill))


def load_terms(metric: str, of: Instants, around: SharedWork) -> FloatArray:
    """Return the amount of each kind of work of other requests around each request: (n, k). The
    value is NaN if a request did not decode.

    Args:
        around: from `shared_work`, of the same requests.
    """
    wait = (around.wait_prefill_tokens, around.wait_prefill_pairs)
    decode = (
        *(around.decode_running, around.decode_context),
        *(around.decode_prefill_tokens, around.decode_prefill_pairs),
    )
    if metric in ("tpot", "itl_max"):
        return _columns(*decode)
    if metric == "e2e":
        return _columns(*wait, *(np.nan_to_num(each) for each in decode))
    # A prompt may need several steps. The decodes in each step delay it.
    tokens = of.uncached_tokens + around.wait_prefill_tokens
    return _columns(
        *(*wait, around.wait_running, around.wait_context, around.waiting),
        *(tokens * around.wait_running, tokens * around.wait_context),
    )


def _columns(*each: FloatArray) -> FloatArray:
    return np.stack(each, axis=1)
