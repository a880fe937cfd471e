"""Find why the scheduler holds requests back although the batch has room: they wait for an adapter,
a KV transfer or a grammar.

Pure. Rows of older plugins do not contain the seconds of each reason, so the reason is inferred.
"""

from typing import Final

import numpy as np

from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import MIN_RISE
from diagnosis.growth.terms import TERM_INDEX
from diagnosis.inputs.requests import FloatArray

_SOME_WAITING: Final = 0.02
"""Minimum mean number of requests that wait for an adapter. It corresponds to one waiting request
in 50 samples."""
_HELD: Final = 0.1
"""Adapters count as loading if waits for adapters have more than this share in the growth. In
simulations of adapter loading, the share is near 1."""


WHILE_LOADING: Final = ("prefill_stall", "decode_stall", "queue_step")
"""Terms for the time in which all requests wait because the engine loads an adapter."""


def held_share(case: DiagnosisCase, reason: str) -> FloatArray:
    """Return the share of each slow request's held time (`queue_held_s`) that a reason explains:
    (n,). The share is NaN if the row reports no reasons.

    Args:
        reason: the column with the seconds of this reason, such as `grammar_s`.
    """
    held_s, reason_s = case.slow.number("queue_held_s"), case.slow.number(reason)
    share = np.divide(reason_s, held_s, out=np.zeros_like(held_s), where=held_s > 0)
    return np.where(np.isfinite(reason_s), np.minimum(share, 1.0), np.nan)


def _reported(case: DiagnosisCase, reason: str, otherwise: FloatArray) -> FloatArray:
    share = held_share(case, reason)
    return np.where(np.isfinite(share), share, otherwise)


def needs_adapter(case: DiagnosisCase) -> FloatArray:
    """Return 1 for each slow request that needs an adapter, and 0 for any other request: (n,)."""
    return np.where(case.slow.label("lora").codes >= 0, 1.0, 0.0)


def adapters_are_loading(case: DiagnosisCase) -> bool:
    """Return whether more requests wait for an adapter than before."""
    before, now = case.mean("waiting_loras")
    if now is not None and now > MIN_RISE * (before or 0.0) + _SOME_WAITING:
        return True
    # The gauge is sampled once per second and misses most short waits, so also use the waits in the
    # requests' rows.
    alone = _reported(case, "adapter_wait_s", needs_adapter(case) * (1.0 - fetches_kv(case)))
    held_s = float((case.terms[:, TERM_INDEX["queue_held"]] * alone).mean())
    return now is not None and held_s > _HELD * float(np.maximum(case.terms.mean(axis=0), 0).sum())


def waits_for_adapter(case: DiagnosisCase) -> FloatArray:
    """Return the share of each slow request's held time that its adapter explains: (n,)."""
    adapter = needs_adapter(case)
    if not adapters_are_loading(case):
        adapter = adapter * (1.0 - fetches_kv(case))
    return _reported(case, "adapter_wait_s", adapter)


def fetches_kv(case: DiagnosisCase) -> FloatArray:
    """Return the share of each slow request's held time that its KV transfer explains: (n,)."""
    fetched = np.nan_to_num(case.slow.number("external_cached_tokens")) > 0
    return _reported(case, "kv_load_s", np.where(fetched, 1.0, 0.0))
