"""Limits label values, so that clients cannot fill the memory of Prometheus or Tailspan.

Each label has a maximum number of values. At the maximum, a new value replaces the value that has
been silent longest, if it has been silent for hours. For example, every rollout gives replicas new
names. Otherwise the new value becomes `other`, and the row is counted.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

from exporters.definitions.series_types import OTHER

LIMIT: Final = 200
COMBINED_LIMIT: Final = 1_000
"""Maximum number of label pairs, and of engines. Two labels with 200 values each could otherwise
have 40,000 pairs.
"""
IDLE_NS: Final = 6 * 3_600 * 10**9
"""Silence after which a value may be replaced: the longest window of a paging alert."""

_Value = TypeVar("_Value", bound=Hashable)


class LabelCap(Generic[_Value]):
    """The admitted values. The value that has been silent longest is first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen_unix_ns: OrderedDict[_Value, int] = OrderedDict()
        self.overflows = 0

    def admits(self, value: _Value, now_unix_ns: int, rows: int = 1) -> bool:
        """Admit a value that occurs in this number of rows, or return False at the limit."""
        seen = self._seen_unix_ns
        if value not in seen and len(seen) >= self._limit:
            oldest, at_unix_ns = next(iter(seen.items()))
            if now_unix_ns - at_unix_ns < IDLE_NS:
                self.overflows += rows
                return False
            del seen[oldest]
        seen[value] = now_unix_ns
        seen.move_to_end(value)
        return True

    @property
    def use(self) -> tuple[int, int]:
        """Return the current number of values, and the maximum."""
        return len(self._seen_unix_ns), self._limit

    def __contains__(self, value: object) -> bool:
        return value in self._seen_unix_ns


class Labels:
    """The label limits of one exporter."""

    def __init__(self, limit: int = LIMIT, combined_limit: int = COMBINED_LIMIT) -> None:
        self._models: LabelCap[str] = LabelCap(limit)
        self._replicas: LabelCap[str] = LabelCap(limit)
        self._tenants: LabelCap[str] = LabelCap(limit)
        self._pairs: LabelCap[tuple[str, str]] = LabelCap(combined_limit)
        self._customers: LabelCap[tuple[str, str]] = LabelCap(combined_limit)
        self._engines: LabelCap[tuple[str, int]] = LabelCap(combined_limit)
        self._gpus: LabelCap[tuple[str, str]] = LabelCap(combined_limit)

    def pair(
        self, model: str | None, replica: str | None, now_unix_ns: int, rows: int = 1
    ) -> tuple[str, str]:
        """Return the labels for requests of a model and a replica."""
        pair = (
            _capped(self._models, model, now_unix_ns, rows),
            _capped(self._replicas, replica, now_unix_ns, rows),
        )
        if OTHER in pair or self._pairs.admits(pair, now_unix_ns, rows):
            return pair
        return OTHER, OTHER

    def customer(
        self, model: str, tenant: str | None, now_unix_ns: int, rows: int = 1
    ) -> tuple[str, str]:
        """Return the labels for requests of a tenant. `model` is the label that `pair` returned."""
        pair = model, _capped(self._tenants, tenant, now_unix_ns, rows)
        if OTHER in pair or self._customers.admits(pair, now_unix_ns, rows):
            return pair
        return OTHER, OTHER

    def engine(self, replica: str, engine: int, now_unix_ns: int) -> bool:
        """Return whether an engine is within the limit.

        There is no `other` engine, because gauges and totals over changing engines would have no
        meaning.
        """
        return self._replicas.admits(replica, now_unix_ns) and self._engines.admits(
            (replica, engine), now_unix_ns
        )

    def gpu(self, replica: str, gpu: str, now_unix_ns: int) -> bool:
        """Return whether a replica's GPU is within the limit. There is no `other` GPU."""
        return self._replicas.admits(replica, now_unix_ns) and self._gpus.admits(
            (replica, gpu), now_unix_ns
        )

    def holds_gpu(self, gpu: tuple[str, str]) -> bool:
        """Return whether a replica's GPU is still admitted."""
        return gpu in self._gpus and gpu[0] in self._replicas

    def holds_pair(self, pair: tuple[str, str]) -> bool:
        """Return whether a pair is still admitted."""
        model, replica = pair
        return (
            _held(self._models, model)
            and _held(self._replicas, replica)
            and (OTHER in pair or pair in self._pairs)
        )

    def holds_customer(self, pair: tuple[str, str]) -> bool:
        """Return whether a model and tenant are still admitted."""
        model, tenant = pair
        return (
            _held(self._models, model)
            and _held(self._tenants, tenant)
            and (OTHER in pair or pair in self._customers)
        )

    def held_model(self, model: str | None) -> str:
        """Return the label of a model that was seen before."""
        return (model or "") if _held(self._models, model or "") else OTHER

    def holds_engine(self, engine: tuple[str, int]) -> bool:
        """Return whether an engine is still admitted."""
        return engine in self._engines and engine[0] in self._replicas

    def overflows(self) -> dict[str, int]:
        """Return the number of rows beyond the limit, by label."""
        return {label: cap.overflows for label, cap in self._caps.items()}

    def use(self) -> dict[str, tuple[int, int]]:
        """Return the number of values and the maximum, by label."""
        return {label: cap.use for label, cap in self._caps.items()}

    @property
    def _caps(self) -> "dict[str, LabelCap[Any]]":
        return {
            "model": self._models,
            "replica": self._replicas,
            "tenant": self._tenants,
            "model,replica": self._pairs,
            "model,tenant": self._customers,
            "engine": self._engines,
            "gpu": self._gpus,
        }


def _held(cap: LabelCap[str], label: str) -> bool:
    return label in ("", OTHER) or label in cap


def _capped(cap: LabelCap[str], value: str | None, now_unix_ns: int, rows: int) -> str:
    if value is None:
        return ""
    return value if cap.admits(value, now_unix_ns, rows) else OTHER
