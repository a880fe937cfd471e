"""Find the groups of requests that are slow more often than other requests. Pure.

The groups are compared by their risk ratios. A label or a size class of requests defines a group.

A group is defined by one value (tenant=acme), or by a combination of up to three values.

    risk ratio = P(slow | request is in the group) / P(slow | request is not in the group)

A combination is reported only if the lower bound of its ratio exceeds the ratios of all groups with
one value less. The false discovery rate is controlled over all tested groups.

Sources: MacroBase, Bailis et al., SIGMOD 2017; DIFF, Abuzaid et al., VLDB 2019; Benjamini and
Hochberg 1995.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diagnosis.explanation import RiskRatio
from diagnosis.inputs.requests import SERVER, BoolArray, FloatArray, Requests

LABELS: Final = ("replica", "tenant", "model", "lora", "route", "region", "config")
ORDER: Final = 3
"""Maximum number of labels that define a group."""
SUPPORT: Final = 0.01
"""Minimum share of the slow requests that a group must contain."""
FALSE_DISCOVERIES: Final = 0.05
"""Target rate of false discoveries: the maximum expected share of wrong groups among the reported
groups. Source: Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 1995."""
_MIN_REQUESTS: Final = 5
"""Minimum number of slow requests in a group. With fewer slow requests, the logarithm of a risk
ratio is not approximately normal (Cochran, Biometrics 10, 1954)."""
_Z: Final = 1.96
"""Half the width of a 95 % interval, in standard errors."""
_MAX_VALUES: Final = 40
"""Number of values tested per dimension: the most frequent values among the slow requests."""

_SIZES: Final = {
    "prompt_tokens": (0, 256, 1024, 4096, 16384),
    "output_tokens": (0, 64, 256, 1024, 4096),
}

Codes = NDArray[np.int32]
Item = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Risk:
    log_ratio: float
    error: float
    requests: int

    @property
    def low(self) -> float:
        return self.log_ratio - _Z * self.error

    @property
    def chance(self) -> float:
        """One-sided p-value of the ratio."""
        return 1.0 - NormalDist().cdf(self.log_ratio / self.error)


def risk_ratios(requests: Requests, slow: BoolArray) -> tuple[list[RiskRatio], int]:
    """Return the groups of requests that are slow more often than can be due to chance, and the
    number of groups tested. The groups are sorted by the lower confidence bound of their ratio,
    highest first.

    Args:
        slow: (n,) whether each request is slow.
    """
    columns = dict(_columns(requests))
    names = {name: labels for name, (_, labels) in columns.items()}
    codes = {name: values for name, (values, _) in columns.items()}
    slow_rows = np.flatnonzero(slow)
    fewest = max(_MIN_REQUESTS, int(np.ceil(SUPPORT * slow_rows.size)))
    tested: dict[tuple[Item, ...], _Risk] = {}
    with_value: dict[tuple[Item, ...], BoolArray] = {}
    found: list[tuple[Item, ...]] = [()]
    singles = [
        item
        for name, values in codes.items()
        for item in _frequent_values(name, values[slow_rows], fewest)
    ]
    for order in range(1, ORDER + 1):
        grown = []
        for items in _larger_sets(found if order > 1 else [()], singles, order):
            rows = _rows_with_items(items, codes, slow_rows)
            if rows.sum() < fewest or (order > 1 and rows.sum() == slow_rows.size):
                continue
            everywhere = _rows_with_items(items, codes, None)
            if everywhere.all():
                continue
            tested[items] = _risk(int(rows.sum()), int(everywhere.sum()), slow_rows.size, slow.size)
            with_value[items] = rows
            if order == 1 or _beats_its_parts(items, tested):
                grown.append(items)
        found = grown
    significant = _discoveries(tested)
    kept = [items for items in significant if len(items) == 1 or _beats_its_parts(items, tested)]
    kept.sort(key=lambda items: -tested[items].low)
    return [_hit(items, tested[items], names) for items in kept], len(tested)


def _columns(requests: Requests) -> Iterator[tuple[str, tuple[Codes, tuple[str, ...]]]]:
    for name in LABELS:
        label = requests.label(name)
        if len(label.values) > 1:
            yield name, (label.codes, label.values)
    if SERVER in requests.labels:  # only set if a replica has several engines
        yield "engine", _numbered(requests.number("engine"))
    for name, bounds in _SIZES.items():
        values = requests.number(name)
        if np.isfinite(values).any():
            yield name, _sized(values, bounds)


def _numbered(values: FloatArray) -> tuple[Codes, tuple[str, ...]]:
    known = np.isfinite(values)
    names, codes = np.unique(values[known], return_inverse=True)
    found = np.full(values.size, -1, dtype=np.int32)
    found[known] = codes
    return found, tuple(str(int(name)) for name in names)


def _sized(values: FloatArray, bounds: tuple[int, ...]) -> tuple[Codes, tuple[str, ...]]:
    codes = (np.searchsorted(bounds, np.nan_to_num(values), side="right") - 1).astype(np.int32)
    codes[~np.isfinite(values)] = -1
    texts = [f"{low}–{high - 1}" for low, high in pairwise(bounds)]
    return codes, (*texts, f"≥ {bounds[-1]}")


def _frequent_values(name: str, codes: Codes, fewest: int) -> list[Item]:
    counts = np.bincount(codes[codes >= 0])
    often = np.argsort(-counts, kind="stable")[:_MAX_VALUES]
    return [(name, int(code)) for code in often if counts[code] >= fewest]


def _larger_sets(
    found: list[tuple[Item, ...]], singles: list[Item], order: int
) -> Iterator[tuple[Item, ...]]:
    """Yield sets of values from different dimensions. The argument `order` is the number of values
    in a set. A set is yielded only if `found` contains every subset with one value less."""
    if order == 1:
        yield from ((item,) for item in singles)
        return
    known = set(found)
    for items in found:
        for item in singles:
            if item <= items[-1] or item[0] in {name for name, _ in items}:
                continue
            grown = (*items, item)
            if all(part in known for part in combinations(grown, order - 1)):
                yield grown


def _rows_with_items(
    items: tuple[Item, ...], codes: Mapping[str, Codes], rows: NDArray[np.int64] | None
) -> BoolArray:
    result: BoolArray | None = None
    for name, code in items:
        values = codes[name] if rows is None else codes[name][rows]
        result = values == code if result is None else result & (values == code)
    assert result is not None
    return result


def _risk(slow_with: int, all_with: int, slow: int, number: int) -> _Risk:
    with_ = slow_with + 0.5, all_with + 1.0
    without = slow - slow_with + 0.5, number - all_with + 1.0
    ratio = (with_[0] / with_[1]) / (without[0] / without[1])
    error = sqrt(1 / with_[0] - 1 / with_[1] + 1 / without[0] - 1 / without[1])
    return _Risk(log(ratio), error, all_with)


def _beats_its_parts(items: tuple[Item, ...], tested: Mapping[tuple[Item, ...], _Risk]) -> bool:
    best = max(tested[part].log_ratio for part in combinations(items, len(items) - 1))
    return tested[items].low > best


def _discoveries(tested: Mapping[tuple[Item, ...], _Risk]) -> list[tuple[Item, ...]]:
    order = sorted(tested, key=lambda items: tested[items].chance)
    last = 0
    for place, items in enumerate(order, start=1):
        if tested[items].chance <= FALSE_DISCOVERIES * place / len(order):
            last = place
    return [items for items in order[:last] if tested[items].low > 0]


def _hit(items: tuple[Item, ...], risk: _Risk, names: Mapping[str, tuple[str, ...]]) -> RiskRatio:
    return RiskRatio(
        dimension=" & ".join(name for name, _ in items),
        value=" & ".join(names[name][code] for name, code in items),
        risk_ratio=exp(risk.log_ratio),
        low=exp(risk.low),
        high=exp(risk.log_ratio + _Z * risk.error),
        requests=risk.requests,
    )
