"""Limit label values, so that clients cannot fill the memory of Prometheus or Tailspan.

At the limit, a new value replaces the value that has had no rows for the longest time. That time
must be at least `IDLE_NS`. If no value can be replaced, the rows of the new value get the label
`other` and are counted. A pair belongs to an owner: a tenant or a replica. A new pair replaces a
pair of the owner that has the most pairs, so an owner with many models does not displace other
owners.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Any, Final, Generic, TypeVar

from exporters.definitions.series_types import OTHER
from telemetry.engines import MAX_TRACKED

LIMIT: Final = 200
COMBINED_LIMIT: Final = MAX_TRACKED
"""Maximum number of replicas, of engines, and of pairs. `/metrics` of 1,000 replicas with one GPU
each has 35 MB (`benchmarks/scrape.py`)."""
GPU_LIMIT: Final = 8 * COMBINED_LIMIT
IDLE_NS: Final = 6 * 3_600 * 10**9
"""A label value that received no rows for this long may be replaced. It is the longest window of a
paging alert."""

_Value = TypeVar("_Value", bound=Hashable)


class LabelCap(Generic[_Value]):
    """The admitted values, sorted by the time of their last row.

    Args:
        owner: returns the owner of a value, or None if values have no owners.
    """

    def __init__(self, limit: int, owner: Callable[[_Value], Hashable] | None = None) -> None:
        self._limit = limit
        self._owner = owner
        self._owned: Counter[Hashable] = Counter()
        self._reserved: frozenset[_Value] = frozenset()
        self._seen_unix_ns: OrderedDict[_Value, int] = OrderedDict()
        self._since_unix_ns: dict[_Value, int] = {}
        self.overflows = 0
        self.partial: set[Hashable] = set()
        """The owners with at least one admitted value and at least one value that was refused or
        removed."""

    def admits(self, value: _Value, now_unix_ns: int, rows: int = 1) -> bool:
        """Admit a value that occurs in `rows` rows. Return False if it is beyond the limit."""
        if value not in self._seen_unix_ns:
            if len(self._seen_unix_ns) >= self._limit and not self._make_room(value, now_unix_ns):
                self.overflows += rows
                if self._owner is not None and self._owner(value) in self._owned:
                    self.partial.add(self._owner(value))
                return False
            self._add(value, now_unix_ns)
        self._seen_unix_ns[value] = now_unix_ns
        self._seen_unix_ns.move_to_end(value)
        return True

    def reserve(self, values: Collection[_Value], now_unix_ns: int) -> None:
        """Admit these values, if necessary in place of other values. The admitted values cannot be
        replaced until the next call."""
        self._reserved = frozenset(values)
        new = [value for value in values if value not in self._seen_unix_ns]
        beyond = len(self._seen_unix_ns) + len(new) - self._limit
        removable = [value for value in self._seen_unix_ns if value not in self._reserved]
        for value in removable[: max(0, beyond)]:
            self._remove(value)
        for value in new:
            self._add(value, now_unix_ns)
            self._seen_unix_ns[value] = now_unix_ns

    @property
    def use(self) -> tuple[int, int]:
        """The current number of values, and the maximum number."""
        return len(self._seen_unix_ns), self._limit

    @property
    def since_unix_ns(self) -> dict[_Value, int]:
        """The time when each value was admitted. Earlier rows may have the label `other`. A time of
        0 means that no row of the value has the label `other`."""
        return dict(self._since_unix_ns)

    def __contains__(self, value: object) -> bool:
        return value in self._seen_unix_ns

    def _add(self, value: _Value, now_unix_ns: int) -> None:
        self._since_unix_ns[value] = now_unix_ns if self.overflows else 0
        if self._owner is not None:
            self._owned[self._owner(value)] += 1

    def _remove(self, value: _Value) -> None:
        del self._seen_unix_ns[value]
        del self._since_unix_ns[value]
        if self._owner is not None:
            owner = self._owner(value)
            self._owned[owner] -= 1
            if not self._owned[owner]:
                del self._owned[owner]
                self.partial.discard(owner)

    def _make_room(self, value: _Value, now_unix_ns: int) -> bool:
        seen = self._seen_unix_ns
        oldest = next((each for each in seen if each not in self._reserved), None)
        if oldest is not None and now_unix_ns - seen[oldest] >= IDLE_NS:
            self._remove(oldest)
            return True
        if self._owner is None or not self._owned:
            return False
        largest, most = self._owned.most_common(1)[0]
        if most <= self._owned[self._owner(value)] + 1:
            return False
        self.partial.add(largest)
        self._remove(next(each for each in seen if self._owner(each) == largest))
        return True


class ExporterLabels:
    """The label limits of one exporter."""

    def __init__(
        self,
        limit: int = LIMIT,
        combined_limit: int = COMBINED_LIMIT,
        gpu_limit: int = GPU_LIMIT,
    ) -> None:
        self._models: LabelCap[str] = LabelCap(limit)
        self._replicas: LabelCap[str] = LabelCap(combined_limit)
        self._tenants: LabelCap[str] = LabelCap(limit)
        self._pairs: LabelCap[tuple[str, str]] = LabelCap(combined_limit, lambda pair: pair[1])
        self._tenant_pairs: LabelCap[tuple[str, str]] = LabelCap(
            combined_limit, lambda pair: pair[1]
        )
        self._engines: LabelCap[tuple[str, int]] = LabelCap(combined_limit, lambda key: key[0])
        self._gpus: LabelCap[tuple[str, str]] = LabelCap(gpu_limit, lambda key: key[0])

    def pair(
        self, model: str | None, replica: str | None, now_unix_ns: int, rows: int = 1
    ) -> tuple[str, str]:
        """The labels for requests of a model and a replica.

        Beyond the limit, only the replica becomes `other`, so sums by model stay correct.
        """
        pair = (
            _value_or_other(self._models, model, now_unix_ns, rows),
            _value_or_other(self._replicas, replica, now_unix_ns, rows),
        )
        if OTHER in pair or self._pairs.admits(pair, now_unix_ns, rows):
            return pair
        return pair[0], OTHER

    def tenant_pair(
        self, model: str, tenant: str | None, now_unix_ns: int, rows: int = 1
    ) -> tuple[str, str]:
        """The labels for requests of a tenant. `model` is the label that `pair` returned.

        Beyond the limit, only the model becomes `other`, so sums by tenant stay correct.
        """
        pair = model, _value_or_other(self._tenants, tenant, now_unix_ns, rows)
        if OTHER in pair or self._tenant_pairs.admits(pair, now_unix_ns, rows):
            return pair
        return OTHER, pair[1]

    def share_tenants(self, tenants: Collection[str], now_unix_ns: int) -> None:
        """Keep places for the given tenants, so that they are exported by name. All collectors of a
        database pass the same tenants."""
        self._tenants.reserve(tenants, now_unix_ns)

    def tenants_since_unix_ns(self) -> dict[str, int]:
        """The unix nanoseconds since which each tenant is exported by name. 0 means since the
        start."""
        # If a tenant has the name `other`, its series also counts other tenants.
        return {name: at for name, at in self._tenants.since_unix_ns.items() if name != OTHER}

    def partial_replicas(self) -> list[str]:
        """The replicas whose requests are counted partly under the replica's name, and partly as
        `other`."""
        return sorted(str(each) for each in self._pairs.partial if each)

    def engine(self, replica: str, engine: int, now_unix_ns: int) -> bool:
        """Whether an engine is within the limit. Engines beyond it are not combined, because
        combined gauges would have no meaning."""
        return self._replicas.admits(replica, now_unix_ns) and self._engines.admits(
            (replica, engine), now_unix_ns
        )

    def gpu(self, replica: str, gpu: str, now_unix_ns: int) -> bool:
        """Whether a replica's GPU is within the limit."""
        return self._replicas.admits(replica, now_unix_ns) and self._gpus.admits(
            (replica, gpu), now_unix_ns
        )

    def holds_gpu(self, gpu: tuple[str, str]) -> bool:
        """Whether a replica's GPU is still admitted."""
        return gpu in self._gpus and gpu[0] in self._replicas

    def holds_pair(self, pair: tuple[str, str]) -> bool:
        """Whether a pair is still admitted."""
        model, replica = pair
        return (
            _is_within_limit(self._models, model)
            and _is_within_limit(self._replicas, replica)
            and (OTHER in pair or pair in self._pairs)
        )

    def holds_tenant_pair(self, pair: tuple[str, str]) -> bool:
        """Whether a pair of a model and a tenant is still admitted."""
        model, tenant = pair
        return (
            _is_within_limit(self._models, model)
            and _is_within_limit(self._tenants, tenant)
            and (OTHER in pair or pair in self._tenant_pairs)
        )

    def held_model(self, model: str | None) -> str:
        """Return a model's name, or `other` if the model is not admitted."""
        return (model or "") if _is_within_limit(self._models, model or "") else OTHER

    def holds_engine(self, engine: tuple[str, int]) -> bool:
        """Whether an engine is still admitted."""
        return engine in self._engines and engine[0] in self._replicas

    def overflows(self) -> dict[str, int]:
        """The number of rows beyond the limit, for each label."""
        return {label: cap.overflows for label, cap in self._caps.items()}

    def use(self) -> dict[str, tuple[int, int]]:
        """The number of values and the maximum, for each label."""
        return {label: cap.use for label, cap in self._caps.items()}

    @property
    def _caps(self) -> "dict[str, LabelCap[Any]]":
        return {
            "model": self._models,
            "replica": self._replicas,
            "tenant": self._tenants,
            "model,replica": self._pairs,
            "model,tenant": self._tenant_pairs,
            "engine": self._engines,
            "gpu": self._gpus,
        }


def _is_within_limit(cap: LabelCap[str], label: str) -> bool:
    return label in ("", OTHER) or label in cap


def _value_or_other(cap: LabelCap[str], value: str | None, now_unix_ns: int, rows: int) -> str:
    if value is None:
        return ""
    return value if cap.admits(value, now_unix_ns, rows) else OTHER
