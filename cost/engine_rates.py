"""Find each engine's price in each hour: the price of its device at the end of the hour. Pure."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property

import numpy as np

from cost.prices import EnginePrice, PriceList
from cost.uptime import HOUR_S, Engine, Uptime
from telemetry.billing_data import GAP_S, BillingData, GpuEnergySpans
from telemetry.starts import EngineStart


class EngineStarts:
    """The starts of each engine, in order of time.

    Args:
        to_unix_ns: the end of the bill. `BillingData.starts` includes starts after it.
    """

    def __init__(self, starts: Iterable[EngineStart], to_unix_ns: int) -> None:
        self._to_unix_ns = to_unix_ns
        self._starts: dict[Engine, list[EngineStart]] = defaultdict(list)
        for start in sorted(starts, key=lambda each: each.at_unix_ns):
            self._starts[start.replica, start.engine].append(start)

    @property
    def engines(self) -> Iterable[Engine]:
        """The engines with a start."""
        return self._starts.keys()

    def at(self, engine: Engine, hour_unix_s: int) -> EngineStart | None:
        """The last start before the end of an hour and of the bill. If there is none, the engine's
        first start."""
        starts = self._starts.get(engine, [])
        until_ns = min((hour_unix_s + HOUR_S) * 10**9, self._to_unix_ns)
        before = bisect_left(starts, until_ns, key=lambda each: each.at_unix_ns)
        return starts[max(0, before - 1)] if starts else None


class EngineRates:
    """The price of each engine in each hour. If an engine does not report its device, the GPUs that
    the replica used at the end of the hour determine the price."""

    def __init__(self, billing_data: BillingData, prices: PriceList, uptime: Uptime) -> None:
        self._uptime, self._gpus = uptime, billing_data.gpus
        self._starts = EngineStarts(billing_data.starts, billing_data.to_unix_ns)
        # cached, because matching the patterns is slow
        self._rate = cache(
            lambda replica, device, gpus, region: prices.rate(
                replica=replica, device=device, gpus=gpus, region=region
            )
        )
        self._engines: dict[str, set[int]] = defaultdict(set)
        for replica, number in (*(each for each, _ in uptime.hours), *self._starts.engines):
            self._engines[replica].add(number)

    def device(self, engine: Engine, hour_unix_s: int) -> tuple[str | None, int | None]:
        """The name of an engine's device at the end of an hour, and its number of devices."""
        start = self._starts.at(engine, hour_unix_s)
        if start is not None and start.device is not None:
            return start.device, start.gpus
        hours, models = self._models.get(engine[0], ([], [[]]))
        gpus = models[max(0, bisect_right(hours, hour_unix_s) - 1)]
        names = [name for name in gpus if name is not None]
        if not names:
            return None, None
        each = max(1, len(gpus) // max(1, len(self._engines[engine[0]])))
        return names[0], start.gpus if start is not None and start.gpus else each

    @cached_property
    def _models(self) -> Mapping[str, tuple[list[int], list[list[str | None]]]]:
        return _models_by_hour(self._gpus)

    def rate(self, engine: Engine, hour_unix_s: int) -> EnginePrice | None:
        """The price of an engine in an hour, or None if no entry matches."""
        device, gpus = self.device(engine, hour_unix_s)
        start = self._starts.at(engine, hour_unix_s)
        region = start.region if start is not None else None
        region = region or self._uptime.regions.get(engine[0])
        return self._rate(engine[0], device, gpus, region)

    def engines(self, replica: str | None) -> list[Engine]:
        """The engines of a replica."""
        return [] if replica is None else [(replica, n) for n in sorted(self._engines[replica])]

    def latest(self) -> dict[str, list[EnginePrice]]:
        """For each replica, the price of each engine in its last hour."""
        last: dict[Engine, int] = {}
        for engine, hour in self._uptime.hours:
            last[engine] = max(hour, last.get(engine, hour))
        found: dict[str, list[EnginePrice]] = {}
        for engine, hour in sorted(last.items()):
            if (rate := self.rate(engine, hour)) is not None:
                found.setdefault(engine[0], []).append(rate)
        return found


def _models_by_hour(
    gpus: GpuEnergySpans,
) -> dict[str, tuple[list[int], list[list[str | None]]]]:
    """For each replica, the hours with samples of its GPUs, and the models of the GPUs that it used
    at the end of each hour.

    A server may use other GPUs after each restart. A GPU is left out if its last sample of the hour
    is more than GAP_S older than the replica's last sample of the hour.
    """
    number = max(1, len(gpus.gpus))
    hours_unix_s = gpus.bucket_unix_s // HOUR_S * HOUR_S
    pairs, place = np.unique(hours_unix_s * number + gpus.which, return_inverse=True)
    last_ns = np.zeros(pairs.size, np.int64)
    np.maximum.at(last_ns, place, gpus.last_unix_ns)
    found: dict[str, dict[int, list[tuple[int, str | None]]]] = {}
    for pair, until_ns in zip(pairs.tolist(), last_ns.tolist(), strict=True):
        hour_unix_s, which = divmod(pair, number)
        hours = found.setdefault(gpus.gpus[which][0], {})
        hours.setdefault(hour_unix_s, []).append((until_ns, gpus.models[which]))
    return {
        replica: (list(hours), [_used_at_the_end(each) for each in hours.values()])
        for replica, hours in found.items()
    }


def _used_at_the_end(samples: Sequence[tuple[int, str | None]]) -> list[str | None]:
    oldest_ns = max(until_ns for until_ns, _ in samples) - GAP_S * 10**9
    return [model for until_ns, model in samples if until_ns >= oldest_ns]
