"""Find why the scheduler holds requests back although the batch has room: adapters or KV transfers.

Pure.
"""

from typing import Final

import numpy as np

from diagnosis.growth.case import Case
from diagnosis.growth.terms import TERM_INDEX
from diagnosis.inputs.requests import FloatArray

_HELD: Final = 0.1
"""Minimum share of the growth that waiting for an adapter must have."""


def needs_adapter(case: Case) -> FloatArray:
    """Return 1 for each slow request that needs an adapter, 0 for the others: (n,)."""
    return np.where(case.slow.label("lora").codes >= 0, 1.0, 0.0)


def adapters_are_loading(case: Case) -> bool:
    """Return whether adapters are being loaded: requests wait for more adapters than before."""
    before, now = case.mean("waiting_loras")
    if now is not None and now > 1.5 * (before or 0.0) + 0.02:
        return True
    # One sample per second misses most short waits. The durations in the requests' rows include
    # these waits.
    alone = needs_adapter(case) * (1.0 - fetches_kv(case))
    held_s = float((case.terms[:, TERM_INDEX["queue_held"]] * alone).mean())
    return now is not None and held_s > _HELD * float(np.maximum(case.terms.mean(axis=0), 0).sum())


def waits_for_adapter(case: Case) -> FloatArray:
    """Return 1 for each slow request that only its adapter can hold back, 0 for the others: (n,).

    If a request needs an adapter and also fetches keys and values, it is assumed to wait for the
    keys and values, unless adapters are being loaded.
    """
    adapter = needs_adapter(case)
    return adapter if adapters_are_loading(case) else adapter * (1.0 - fetches_kv(case))


def fetches_kv(case: Case) -> FloatArray:
    """Return 1 for each slow request that fetched keys and values from outside the engine, 0 for
    the others: (n,)."""
    return np.where(np.nan_to_num(case.slow.number("external_cached_tokens")) > 0, 1.0, 0.0)
