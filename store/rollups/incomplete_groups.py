"""Find the groups of a query's result that may lack requests. Pure.

If a label has too many values, rollups store the rarer values as `_other`. For example, requests
with tenant `acme` and route `_other` may belong to any group with tenant `acme`. A group that has
`_other` itself never counts as incomplete.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from store.rollups.coded_labels import LabelSet
from telemetry.labels import OTHER


@dataclass(frozen=True, slots=True)
class UnnamedRequests:
    """The number of requests with `_other` in some labels, and the start of their first bucket."""

    requests: int
    first_unix_s: int


@dataclass(frozen=True, slots=True)
class IncompleteGroups:
    """The requests with `_other` in a label.

    Attributes:
        other: number of requests in groups with `_other` in a label.
        requests: number of requests that may belong to `groups`.
        groups: the groups that may be incomplete.
    """

    other: int = 0
    requests: int = 0
    groups: frozenset[LabelSet] = frozenset()


def find_incomplete_groups(
    unnamed: Mapping[LabelSet, UnnamedRequests],
    groups: Sequence[LabelSet],
    equals: LabelSet,
    named: Callable[[int, str | None, int], bool],
) -> IncompleteGroups:
    """Find the groups that may be incomplete.

    Args:
        unnamed: the requests with `_other`. Each key has the values of the labels to group by,
            followed by the values of the filter's labels.
        groups: values of the labels to group by.
        equals: the values that the filter requires.
        named: `named(label_index, value, unix_s)` returns whether the value has been stored by name
            since this time.
    """
    by = len(next(iter(unnamed), ())) - len(equals)
    other = sum(
        each.requests
        for values, each in unnamed.items()
        if values[by:] == equals and OTHER in values[:by]
    )
    places = [at for at in range(by + len(equals)) if any(each[at] == OTHER for each in unnamed)]
    incomplete = set()
    matching = {
        values
        for values, each in unnamed.items()
        if OTHER in values[by:]
        and all(
            value == wanted or (value == OTHER and not named(at, wanted, each.first_unix_s))
            for at, (value, wanted) in enumerate(zip(values[by:], equals, strict=True), by)
        )
    }
    for group in groups:
        wanted = (*group, *equals)
        open_places = [at for at in places if wanted[at] not in (None, OTHER)]
        for number in range(1, len(open_places) + 1):
            for replaced in combinations(open_places, number):
                values = tuple(OTHER if at in replaced else v for at, v in enumerate(wanted))
                found = unnamed.get(values)
                if found and not any(named(at, wanted[at], found.first_unix_s) for at in replaced):
                    incomplete.add(group)
                    matching.add(values)
    return IncompleteGroups(
        other, sum(unnamed[each].requests for each in matching), frozenset(incomplete)
    )
