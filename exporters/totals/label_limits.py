"""A cap on label values: what a client can make up must not fill Prometheus, or us.

A label has room for so many values at once. A value that has been silent for hours makes
way for a new one (replicas get a new name with every rollout); when none has, the new
one is `other`, and counted.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

from exporters.definitions.series_types import OTHER

LIMIT: Final = 200
COMBINED_LIMIT: Final = 1_000
"""Of pairs and engines: without it, two labels of 200 values would make 40,000."""
IDLE_NS: Final = 6 * 3_600 * 10**9
"""As long as the longest window that a page is decided on."""

_Value = TypeVar("_Value", bound=Hashable)


class LabelCap(Generic[_Value]):
    """Which values have room, the least recently seen first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen_unix_ns: OrderedDict[_Value, int] = OrderedDict()
        self.overflows = 0

    def admits(self, value: _Value, now_unix_ns: int, rows: int = 1) -> bool:
        """Whether the value, which so many rows have, has room; it is then seen as of now."""
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
        """How many values it has, and how many it has room for."""
        return len(self._seen_unix_ns), self._limit

    def __contains__(self, value: object) -> bool:
        return value in self._seen_unix_ns


class Labels:
    """The caps of one exporter."""

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
        """The label values of so many requests."""
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
        """Those of so many requests by tenant; their model's label is `pair`'s."""
        pair = model, _capped(self._tenants, tenant, now_unix_ns, rows)
        if OTHER in pair or self._customers.admits(pair, now_unix_ns, rows):
            return pair
        return OTHER, OTHER

    def engine(self, replica: str, engine: int, now_unix_ns: int) -> bool:
        """Whether an engine has room. There is no `other` engine: a gauge of whichever came
        last, or a total of engines that come and go, would mean nothing."""
        return self._replicas.admits(replica, now_unix_ns) and self._engines.admits(
            (replica, engine), now_unix_ns
        )

    def gpu(self, replica: str, gpu: str, now_unix_ns: int) -> bool:
        """Whether a replica's GPU has room; there is no `other` GPU, as no `other` engine."""
        return self._replicas.admits(replica, now_unix_ns) and self._gpus.admits(
            (replica, gpu), now_unix_ns
        )

    def holds_gpu(self, gpu: tuple[str, str]) -> bool:
        """Whether a replica's GPU still has room."""
        return gpu in self._gpus and gpu[0] in self._replicas

    def holds_pair(self, pair: tuple[str, str]) -> bool:
        """Whether a pair still has room."""
        model, replica = pair
        return (
            _held(self._models, model)
            and _held(self._replicas, replica)
            and (OTHER in pair or pair in self._pairs)
        )

    def holds_customer(self, pair: tuple[str, str]) -> bool:
        """Whether a model and tenant still have room."""
        model, tenant = pair
        return (
            _held(self._models, model)
            and _held(self._tenants, tenant)
            and (OTHER in pair or pair in self._customers)
        )

    def held_model(self, model: str | None) -> str:
        """The label value of a model seen before."""
        return (model or "") if _held(self._models, model or "") else OTHER

    def holds_engine(self, engine: tuple[str, int]) -> bool:
        """Whether an engine still has room."""
        return engine in self._engines and engine[0] in self._replicas

    def overflows(self) -> dict[str, int]:
        """Rows beyond the cap, by label."""
        return {label: cap.overflows for label, cap in self._caps.items()}

    def use(self) -> dict[str, tuple[int, int]]:
        """Values and room for them, by label."""
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
