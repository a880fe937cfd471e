"""Requests that the scheduler holds back although the batch has room: for which reason.

Pure.
"""

from typing import Final

import numpy as np

from diagnosis.growth.case import Case
from diagnosis.growth.terms import TERM_INDEX
from diagnosis.inputs.requests import FloatArray

_HELD: Final = 0.1
"""Minimum share of the growth that is waiting for an adapter."""


def needs_adapter(case: Case) -> FloatArray:
    """(n,) 1 for slow requests that need an adapter."""
    return np.where(case.slow.label("lora").codes >= 0, 1.0, 0.0)


def adapters_are_loading(case: Case) -> bool:
    """Return whether requests wait for more adapters than before: some are being loaded."""
    before, now = case.mean("waiting_loras")
    if now is not None and now > 1.5 * (before or 0.0) + 0.02:
        return True
    # Samples of one per second miss most short waits; the requests' own times do not.
    alone = needs_adapter(case) * (1.0 - fetches_kv(case))
    held_s = float((case.terms[:, TERM_INDEX["queue_held"]] * alone).mean())
    return now is not None and held_s > _HELD * float(np.maximum(case.terms.mean(axis=0), 0).sum())


def waits_for_adapter(case: Case) -> FloatArray:
    """(n,) 1 for slow requests whose hold time, if any, is a wait for their adapter.

    A request that needs an adapter and fetches keys and values waits for the latter, unless
    adapters are being loaded.
    """
    adapter = needs_adapter(case)
    return adapter if adapters_are_loading(case) else adapter * (1.0 - fetches_kv(case))


def fetches_kv(case: Case) -> FloatArray:
    """(n,) 1 for slow requests whose keys and values came from outside the engine."""
    return np.where(np.nan_to_num(case.slow.number("external_cached_tokens")) > 0, 1.0, 0.0)
