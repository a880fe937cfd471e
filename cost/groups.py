"""Compute the cost of requests by label, and the cost of their input and output tokens.

Pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cost.bill_lines import Key, RequestPricing
from cost.charges import is_lost, tokens
from cost.weights import BY_PRICE, Weights
from telemetry.accounts import Cells
from telemetry.requests import PricedBy


@dataclass(slots=True)
class Group:
    """Requests with the same values of the bill's labels.

    Costs are None if no request has a price.
    """

    labels: tuple[str | None, ...]
    requests: int = 0
    unpriced: int = 0
    """Number of requests on servers without a price."""
    usd: float | None = None
    """Total cost, including waste."""
    lost_usd: float = 0.0
    wasted_usd: float = 0.0
    engine_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    in_usd: float = 0.0
    out_usd: float = 0.0
    priced_by: set[PricedBy] = field(default_factory=set)
    usd_of: dict[str, float] = field(default_factory=dict)
    """`usd` by replica."""

    @property
    def usd_per_1k_in(self) -> float | None:
        """Cost per thousand input tokens, including cached tokens."""
        return self._per_1k(self.in_usd, self.prompt_tokens)

    @property
    def usd_per_1k_out(self) -> float | None:
        """Cost per thousand output tokens."""
        return self._per_1k(self.out_usd, self.output_tokens)

    def _per_1k(self, usd: float, tokens: int) -> float | None:
        if self.usd is None or not tokens or not self.in_usd + self.out_usd:
            return None
        return usd / tokens * 1_000


def groups_of(
    cells: Cells,
    by: tuple[str, ...],
    request_pricing: Mapping[Key, RequestPricing],
    weights: Mapping[Key, Weights],
) -> list[Group]:
    """Group cells by labels. The most expensive group is first; with `hour`, sort by labels.

    Args:
        cells: requests by label and hour.
        by: the labels, which may include `hour`.
        request_pricing: the price of requests by replica and hour.
        weights: token weights by replica and hour.
    """
    columns = list(cells.by)
    replica_at = columns.index("replica")
    groups: dict[tuple[str | None, ...], Group] = {}
    to_split: dict[tuple[tuple[str | None, ...], Key], _Split] = defaultdict(_Split)
    for place, (group, hour) in enumerate(
        zip(cells.group.tolist(), cells.hour_unix_s.tolist(), strict=True)
    ):
        labels = cells.labels[group]
        name = tuple(str(hour) if each == "hour" else labels[columns.index(each)] for each in by)
        mine = groups.setdefault(name, Group(name))
        key = (labels[replica_at], hour)
        weigh = weights.get(key, BY_PRICE)
        _add(
            mine,
            place,
            cells,
            labels[replica_at],
            request_pricing.get(key),
            weigh,
            to_split[name, key],
        )
    for (name, key), each in to_split.items():
        in_usd = each.usd * each.in_share(weights.get(key, BY_PRICE))
        groups[name].in_usd += in_usd
        groups[name].out_usd += each.usd - in_usd
    kept = [each for each in groups.values() if each.requests or each.usd]
    if "hour" in by:
        return sorted(kept, key=lambda each: [str(label) for label in each.labels])
    return sorted(kept, key=lambda each: (-(each.usd or 0.0), [str(x) for x in each.labels]))


@dataclass(slots=True)
class _Split:
    """Cost and weighted tokens of requests with the same labels, in one hour on one replica.

    The cost of each hour is divided separately, so a window's input cost is the sum over its hours.
    """

    usd: float = 0.0
    went_in: float = 0.0
    came_out: float = 0.0

    def in_share(self, weights: Weights) -> float:
        """Return the input tokens' share of the weight.

        The tokens of a request are assigned to the hour in which the request was received. If an
        hour has a cost but no tokens, the result is the prefill share of all steps in that hour.
        """
        if self.went_in + self.came_out > 0:
            return self.went_in / (self.went_in + self.came_out)
        return weights.in_share or 0.0


def _add(
    mine: Group,
    place: int,
    cells: Cells,
    replica: str | None,
    how: RequestPricing | None,
    weigh: Weights,
    split: _Split,
) -> None:
    requests = int(cells.requests[place])
    mine.requests += requests
    mine.prompt_tokens += int(cells.sums["prompt_tokens"][place])
    mine.cached_tokens += int(cells.sums["cached_tokens"][place])
    mine.output_tokens += int(cells.sums["output_tokens"][place])
    if how is None:
        mine.unpriced += requests
        return
    went_in, came_out = tokens(place, cells, weigh)
    if how.usd_per_weight is not None:
        usd, wasted = (went_in + came_out) * how.usd_per_weight, 0.0
        mine.priced_by.add(PricedBy.TOKENS)
    else:
        billed_s, wasted_s = cells.sums["billed_s"][place], cells.sums["wasted_s"][place]
        mine.engine_s += float(billed_s + wasted_s)
        usd, wasted = float(billed_s) * how.usd_per_s, float(wasted_s) * how.usd_per_s
        if cells.reported["billed_s"][place]:
            mine.priced_by.add(PricedBy.LEDGER)
    mine.usd = (mine.usd or 0.0) + usd + wasted
    name = replica or ""
    mine.usd_of[name] = mine.usd_of.get(name, 0.0) + usd + wasted
    mine.wasted_usd += wasted
    mine.lost_usd += usd if is_lost(place, cells) else 0.0
    split.usd += usd
    split.went_in += went_in
    split.came_out += came_out


def matching(
    groups: Sequence[Group], equals: Mapping[str, str | None], by: Sequence[str]
) -> list[Group]:
    """Return the groups of requests that have these labels.

    Args:
        groups: groups with the labels of `by`.
        equals: the required value of each label. None selects groups without the label. Labels that
            are not in `by` are ignored.
        by: names of the groups' labels.
    """
    wanted = [(list(by).index(name), value) for name, value in equals.items() if name in by]
    return [each for each in groups if all(each.labels[at] == value for at, value in wanted)]


def merged(groups: Sequence[Group], by: Sequence[str], onto: Sequence[str]) -> list[Group]:
    """Add up groups by a subset of their labels, in the order of `groups_of`.

    Args:
        groups: groups with the labels of `by`.
        by: names of the groups' labels.
        onto: the labels to keep.
    """
    places = [list(by).index(name) for name in onto]
    found: dict[tuple[str | None, ...], Group] = {}
    for each in groups:
        labels = tuple(each.labels[place] for place in places)
        mine = found.setdefault(labels, Group(labels))
        if each.usd is not None:
            mine.usd = (mine.usd or 0.0) + each.usd
        for name in _SUMMED:
            setattr(mine, name, getattr(mine, name) + getattr(each, name))
        for replica, usd in each.usd_of.items():
            mine.usd_of[replica] = mine.usd_of.get(replica, 0.0) + usd
        mine.priced_by |= each.priced_by
    if "hour" in onto:
        return sorted(found.values(), key=lambda each: [str(label) for label in each.labels])
    return sorted(
        found.values(),
        key=lambda each: (-(each.usd or 0.0), -each.requests, [str(x) for x in each.labels]),
    )


_SUMMED: Final = (
    "requests",
    "unpriced",
    "lost_usd",
    "wasted_usd",
    "engine_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "in_usd",
    "out_usd",
)
