"""Decide which values of a label are stored by name in rollups. All other values become `_other`.
Pure.

Each label has a limited number of places (names to store). The places go to the values that
occurred in the most hours of the last day. A value loses its place only to a value that occurred in
more than twice as many hours. Values that a client invents in a burst occur in too few hours to get
a place (decision 075). Clients can invent routes and LoRA names, so their places are divided fairly
between tenants.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from store.rollups.fair_share import fair_share
from store.rollups.tables import HOUR_S, MINUTE_S

ALIVE_S: Final = 86_400
LIMITS: Final[Mapping[str, int]] = MappingProxyType(
    {"model": 200, "lora": 1_000, "route": 200, "tenant": 2_000, "region": 200, "replica": 10_000}
)
"""Maximum number of names of each label. 10,000 replicas are enough for a fleet of 5,000 that
replaces each replica once a day (cost: `benchmarks/names.py`)."""
EXPORTED_TENANT: Final = "exported_tenant"
"""Pseudo-label for the tenants that every collector reports by name on `/metrics`."""
EXPORTED_TENANTS: Final = 200
OWNED: Final = frozenset({"lora", "route"})
"""The labels whose values clients can invent."""

_HOURS: Final = ALIVE_S // HOUR_S
_BITS: Final = 2**_HOURS - 1


@dataclass(slots=True)
class LabelValue:
    """A value that occurred in the last day.

    Attributes:
        hours: bit i is set if the value occurred in the hour `newest_hour` - i.
        newest_hour: in hours since 1970.
        owner: the tenant that sent most requests with the value in its first bucket, or "".
        named_from_unix_s: the time since which the value is stored by name. None means that it is
            stored as `_other`.
    """

    hours: int
    newest_hour: int
    owner: str = ""
    named_from_unix_s: int | None = None

    def occurred(self, hour: int) -> bool:
        """Record that the value occurred in an hour. Return whether this call changed the
        object."""
        ahead = hour - self.newest_hour
        if ahead > 0:
            self.hours = (self.hours << ahead if ahead < _HOURS else 0) & _BITS | 1
            self.newest_hour = hour
            return True
        if -ahead >= _HOURS or self.hours >> -ahead & 1:
            return False
        self.hours |= 1 << -ahead
        return True


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One value of a label in a bucket: the number of its requests, and the tenant that sent most
    of them."""

    requests: int
    owner: str
    """The tenant that sent most of these requests, or ""."""


@dataclass(slots=True)
class LabelValues:
    """The values of one label. At most `limit` have a name, and at most `limit` are candidates."""

    limit: int
    owned: bool = False
    known: dict[str, LabelValue] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    """The changed values. Values in `known` are written to `rollup_names`. Other values are
    deleted."""

    def named(self) -> Iterator[str]:
        """Yield the values that are stored by name."""
        return (value for value, each in self.known.items() if each.named_from_unix_s is not None)

    def assign(self, occurred: Mapping[str, Occurrence], from_unix_s: int) -> set[str]:
        """Record the values that occurred in a bucket. Return those that are stored by name."""
        hour = from_unix_s // HOUR_S
        new = [value for value in occurred if value not in self.known]
        for value in occurred:
            name = self.known.get(value)
            if name is not None and name.occurred(hour):
                self.changed.add(value)
        if new or any(self.known[value].named_from_unix_s is None for value in occurred):
            self._give_names(new, occurred, from_unix_s)
        return {
            value
            for value in occurred
            if value in self.known and self.known[value].named_from_unix_s is not None
        }

    def _give_names(
        self, new: list[str], occurred: Mapping[str, Occurrence], from_unix_s: int
    ) -> None:
        hour = from_unix_s // HOUR_S
        waiting = any(each.named_from_unix_s is None for each in self.known.values())
        for value in new:
            owner = occurred[value].owner if self.owned else ""
            self.known[value] = LabelValue(1, hour, owner)
        self.changed.update(new)
        if len(self.known) <= self.limit:
            placed = list(self.known)
        else:
            self._forget({value for value, each in self.known.items() if _is_silent(each, hour)})
            ranked = self._ranked(occurred)
            placed = ranked[: self.limit]
            self._forget(self.known.keys() - ranked)
        # If there was no free name before, the new values may have been stored as `_other`, even
        # earlier in this minute.
        first_unix_s = from_unix_s + MINUTE_S if waiting else from_unix_s - ALIVE_S
        chosen = set(placed)
        for value, name in self.known.items():
            if (value in chosen) != (name.named_from_unix_s is not None):
                name.named_from_unix_s = first_unix_s if value in chosen else None
                self.changed.add(value)

    def _ranked(self, occurred: Mapping[str, Occurrence]) -> list[str]:
        values = list(self.known)
        names = list(self.known.values())
        owners: dict[str, int] = {}
        unnamed = [each.named_from_unix_s is None for each in names]
        hours = [
            each.hours.bit_count() * (1 if without else 2)
            for each, without in zip(names, unnamed, strict=True)
        ]
        requests = [occurred[each].requests if each in occurred else 0 for each in values]
        ranked = fair_share(
            np.array([owners.setdefault(each.owner, len(owners)) for each in names], np.int64),
            (
                -np.array(hours),
                np.array(unnamed),
                -np.array([each.newest_hour for each in names]),
                -np.array(requests),
            ),
            2 * self.limit,
        )
        return [values[at] for at in ranked.tolist()]

    def _forget(self, values: set[str]) -> None:
        for value in values:
            del self.known[value]
        self.changed.update(values)


def _is_silent(name: LabelValue, hour: int) -> bool:
    return hour - name.newest_hour > _HOURS
