"""Requests that the scheduler holds back although the batch has room, and the reasons.

Pure.
"""

from typing import Final

import numpy as np

from diagnosis.growth.case import Case
from diagnosis.growth.terms import TERM_INDEX
from diagnosis.inputs.requests import FloatArray

_HELD: Final = 0.1
"""Minimum share of the growth that is time spent waiting for an adapter."""


def needs_adapter(case: Case) -> FloatArray:
    """Return 1 for slow requests that need an adapter, else 0; shape (n,)."""
    return np.where(case.slow.label("lora").codes >= 0, 1.0, 0.0)


def adapters_are_loading(case: Case) -> bool:
    """Return whether requests wait for more adapters than before, so that adapters are being
    loaded."""
    before, now = case.mean("waiting_loras")
    if now is not None and now > 1.5 * (before or 0.0) + 0.02:
        return True
    # One sample per second misses most short waits. The times in the requests' rows include these
    # waits.
    alone = needs_adapter(case) * (1.0 - fetches_kv(case))
    held_s = float((case.terms[:, TERM_INDEX["queue_held"]] * alone).mean())
    return now is not None and held_s > _HELD * float(np.maximum(case.terms.mean(axis=0), 0).sum())


def waits_for_adapter(case: Case) -> FloatArray:
    """Return 1 for each slow request that is held back, if at all, because of its adapter, else 0;
    shape (n,).

    A request may need an adapter and also fetch keys and values. It then waits for the keys and
    values, unless adapters are being loaded.
    """
    adapter = needs_adapter(case)
    return adapter if adapters_are_loading(case) else adapter * (1.0 - fetches_kv(case))


def fetches_kv(case: Case) -> FloatArray:
    """Return 1 for slow requests whose keys and values came from outside the engine; shape (n,)."""
    return np.where(np.nan_to_num(case.slow.number("external_cached_tokens")) > 0, 1.0, 0.0)
