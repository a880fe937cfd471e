"""The requests of a window or of a baseline as columns. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analysis.counterfactual.factors import Factor, FactorKind
from replay.arrivals import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class WindowRequests:
    """Requests as columns of equal length, in order of time."""

    at_s: FloatArray
    """(n,) times of arrival in seconds since the start of the counted range. Earlier requests have
    negative times."""
    prompt_tokens: IntArray
    output_tokens: IntArray
    cached_tokens: IntArray
    frontend_s: FloatArray
    """(n,) seconds in the front end, or NaN if the model of the front end computes them."""
    transfer_s: FloatArray
    grammar_s: FloatArray
    otherwise_held_s: FloatArray
    """Seconds in which the request was held back for other reasons."""
    adapter: NDArray[np.object_]
    """(n,) the name of the request's LoRA adapter, or an empty string."""
    delivery_s: FloatArray
    streamed: BoolArray
    loaded: BoolArray
    """Whether a connector loaded KV cache for the request."""
    acceptance: FloatArray
    tenant: NDArray[np.object_]
    engine: IntArray
    row: IntArray
    """(n,) the recorded row that each request copies: r for row r of the window, and −1 − r for row
    r of the baseline."""
    group: IntArray
    """(n,) the index of the factor that changes the rate of these requests, or −1 if no factor
    changes it."""

    @property
    def held_s(self) -> FloatArray:
        """Seconds in which the request could not be scheduled."""
        return self.transfer_s + self.grammar_s + self.otherwise_held_s

    def take(self, rows: IntArray | BoolArray) -> Self:
        """The selected requests."""
        return type(self)(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The requests of all `parts`, in order of time."""
        columns: dict[str, Any] = {
            each.name: np.concatenate([getattr(part, each.name) for part in parts])
            for each in fields(cls)
        }
        return cls(**columns).take(np.argsort(columns["at_s"], kind="stable"))


def lengths_of(requests: WindowRequests, factor: Factor) -> IntArray:
    """The lengths of requests, in tokens, that determine whether they belong to a factor."""
    if factor.kind is FactorKind.LONG_OUTPUTS:
        return requests.output_tokens
    return requests.prompt_tokens - requests.cached_tokens  # cached tokens need no prefill


def of_tenant(requests: WindowRequests, tenant: str | None) -> BoolArray:
    """Return which requests belong to a tenant. None matches all requests."""
    if tenant is None:
        return np.ones(len(requests.at_s), dtype=bool)
    return np.asarray(requests.tenant == tenant, dtype=bool)
