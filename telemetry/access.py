"""What a reader may see: tenants, models and costs. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

OTHERS = "(other tenants)"
"""The tenant that explanations show for hidden requests."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one role allows.

    Attributes:
        tenants: the visible tenants, or None for all tenants. None also allows requests without a
            tenant.
        models: the visible served models, or None for all models.
    """

    tenants: frozenset[str] | None = None
    models: frozenset[str] | None = None
    costs: bool = True

    def covers(self, other: "Grant") -> bool:
        """Whether this grant allows everything that `other` allows."""
        return (
            (self.tenants is None or (other.tenants is not None and other.tenants <= self.tenants))
            and (self.models is None or (other.models is not None and other.models <= self.models))
            and (self.costs or not other.costs)
        )

    def allows(self, labels: Mapping[str, str | None]) -> bool:
        """Whether all requests with these labels are visible."""
        tenant, model = labels.get("tenant"), labels.get("model")
        return (self.tenants is None or tenant in self.tenants) and (
            self.models is None or model in self.models
        )


@dataclass(frozen=True, slots=True)
class Access:
    """What a reader may see: a request that at least one of the grants allows.

    Attributes:
        grants: at least one. No grant covers another grant.
        slos: names of the visible objectives and groups, if `limits_rows` is true.
        definitions: digests of these objectives.
    """

    grants: tuple[Grant, ...]
    slos: frozenset[str] = frozenset()
    definitions: frozenset[str] = frozenset()

    @classmethod
    def of(cls, grants: Iterable[Grant]) -> Self:
        """Combine grants.

        Raises:
            ValueError: there is no grant.
        """
        distinct = list(dict.fromkeys(grants))
        if not distinct:
            raise ValueError("a reader needs at least one grant")
        kept = [
            each for each in distinct if not any(o.covers(each) for o in distinct if o is not each)
        ]
        return cls(tuple(kept))

    @property
    def limits_rows(self) -> bool:
        """Whether some requests are hidden."""
        return not any(each.tenants is None and each.models is None for each in self.grants)

    @property
    def by_tenant(self) -> bool:
        """Whether requests of some tenants are hidden."""
        return self.limits_rows and any(each.tenants is not None for each in self.grants)

    @property
    def costs(self) -> bool:
        """Whether dollars are visible.

        Every grant must allow dollars, because a sum cannot be divided into visible and hidden
        dollars.
        """
        return all(each.costs for each in self.grants)

    @property
    def models(self) -> frozenset[str] | None:
        """The models whose servers are visible, or None for all."""
        names: frozenset[str] = frozenset()
        for each in self.grants:
            if each.models is None:
                return None
            names |= each.models
        return names

    @property
    def tenants(self) -> frozenset[str] | None:
        """The tenants with visible requests, or None for all."""
        names: frozenset[str] = frozenset()
        for each in self.grants:
            if each.tenants is None:
                return None
            names |= each.tenants
        return names

    @property
    def limits(self) -> bool:
        """Whether anything is hidden."""
        return self.limits_rows or not self.costs

    def allows(self, labels: Mapping[str, str | None]) -> bool:
        """Whether the reader may see all requests with these labels."""
        return any(each.allows(labels) for each in self.grants)

    def selects(self, labels: Mapping[str, str | None]) -> bool:
        """Whether the reader may see all requests with these labels, assuming that their model is
        visible."""
        tenant, model = labels.get("tenant"), labels.get("model")
        return any(
            (each.models is None or model in each.models)
            if each.tenants is None
            else tenant in each.tenants
            for each in self.grants
        )

    def with_objectives(self, slos: Iterable[str], definitions: Iterable[str]) -> "Access":
        """A copy in which these objectives are visible."""
        return replace(self, slos=frozenset(slos), definitions=frozenset(definitions))

    @property
    def key(self) -> str:
        """A text that identifies the access: two readers with the same text may see the same
        data."""
        return json.dumps([self.as_json(), sorted(self.slos), sorted(self.definitions)])

    def as_json(self) -> list[dict[str, Any]]:
        """The grants as JSON."""
        return [
            {
                "tenants": None if each.tenants is None else sorted(each.tenants),
                "models": None if each.models is None else sorted(each.models),
                "costs": each.costs,
            }
            for each in sorted(self.grants, key=repr)
        ]

    @classmethod
    def from_json(cls, grants: Sequence[Mapping[str, Any]]) -> Self:
        """The access from the result of `as_json`."""
        return cls.of(
            Grant(
                None if each["tenants"] is None else frozenset(each["tenants"]),
                None if each["models"] is None else frozenset(each["models"]),
                bool(each["costs"]),
            )
            for each in grants
        )
