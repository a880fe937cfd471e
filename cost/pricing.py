"""Compute the cost of requests when their rows arrive: billed seconds times the engine's price.

Without a known price, the cost is None, not 0. If the billed seconds are unknown, the step model
predicts them from the tokens, and `priced_by` is `tokens`.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from cost.prices import PriceList
from telemetry.billing_data import COEFFICIENTS, GAP_S
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.request_rows import PLACE, RequestRows, Row
from telemetry.requests import PricedBy
from telemetry.starts import EngineStart

MAX_ENGINES: Final = 10_000
"""Maximum number of engines. When it is exceeded, the engine that has been silent for the longest
time is removed."""

_REPLICA, _ENGINE, _BILLED = PLACE["replica"], PLACE["engine"], PLACE["billed_s"]
_PROMPT, _CACHED, _OUTPUT = (PLACE[f"{kind}_tokens"] for kind in ("prompt", "cached", "output"))
_RUNNING, _COST = PLACE["running_at_arrival"], PLACE["cost_usd"]

Engine = tuple[str, int]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Gpu(NamedTuple):
    model: str
    at_unix_ns: int
    """Time of the last sample."""


class Pricing:
    """Sets the cost of requests. Thread-safe, because `/metrics` reads prices concurrently."""

    def __init__(self, prices: PriceList) -> None:
        self._prices = prices
        self._lock = threading.Lock()
        self._starts: dict[Engine, EngineStart] = {}
        self._gpus: dict[str, dict[str, _Gpu]] = {}
        self._models: dict[Engine, tuple[float, ...]] = {}
        self._usd_per_s: dict[tuple[str | None, int | None], float | None] = {}

    def update(
        self,
        starts: Iterable[EngineStart] = (),
        samples: Iterable[EngineSample] = (),
        gpus: Iterable[GpuSample] = (),
    ) -> None:
        """Store what determines prices: devices, GPU names and step models."""
        with self._lock:
            self._update(starts, samples, gpus)

    def _update(
        self,
        starts: Iterable[EngineStart],
        samples: Iterable[EngineSample],
        gpus: Iterable[GpuSample],
    ) -> None:
        for start in starts:
            key = (start.replica, start.engine)
            known = self._starts.get(key)
            if known is None or known.at_unix_ns <= start.at_unix_ns:
                _remember(self._starts, key, start)
                self._usd_per_s.clear()
        self._update_gpus(gpus)
        for sample in samples:
            key = (sample.replica, sample.engine)
            if key in self._starts:
                _remember(self._starts, key, self._starts[key])
            if sample.step_model_base_s is not None:
                # older plugins report no λ
                launch_s = sample.step_model_per_prefill_step_s or 0.0
                fit = (*(getattr(sample, name) for name in COEFFICIENTS[:-1]), launch_s)
                if None not in fit:
                    _remember(self._models, key, fit)

    def _update_gpus(self, gpus: Iterable[GpuSample]) -> None:
        """Store the GPUs of each replica. A GPU is dropped if its last sample is more than GAP_S
        older than the replica's newest sample, because the server has restarted on other GPUs."""
        changed: dict[str, dict[str, _Gpu]] = {}
        for gpu in gpus:
            if gpu.model_name is None:
                continue
            if gpu.replica not in changed:
                changed[gpu.replica] = dict(self._gpus.get(gpu.replica, {}))
            known = changed[gpu.replica]
            if gpu.gpu in known or len(known) < MAX_ENGINES:
                known[gpu.gpu] = _Gpu(gpu.model_name, gpu.at_unix_ns)
        for replica, known in changed.items():
            oldest_unix_ns = max(each.at_unix_ns for each in known.values()) - GAP_S * 10**9
            named = {
                name: each for name, each in known.items() if each.at_unix_ns >= oldest_unix_ns
            }
            if _names(named) != _names(self._gpus.get(replica, {})):
                self._usd_per_s.clear()
            _remember(self._gpus, replica, named)

    def price(self, requests: RequestRows) -> None:
        """Set the cost of each request whose engine has a price."""
        with self._lock:
            self._price(requests)

    def _price(self, requests: RequestRows) -> None:
        for place, row in enumerate(requests.rows):
            usd_per_s = self._known_rate((row[_REPLICA], row[_ENGINE]))
            if usd_per_s is None:
                continue
            if (billed_s := row[_BILLED]) is not None:
                requests.rows[place] = _priced(row, billed_s * usd_per_s, PricedBy.LEDGER)
            elif (modelled_s := self._modelled_s(row)) is not None:
                requests.rows[place] = _priced(row, modelled_s * usd_per_s, PricedBy.TOKENS)

    def usd_per_s(self, replica: str | None, engine: int | None) -> float | None:
        """Return the price per second of an engine with all its GPUs, or None if unknown."""
        with self._lock:
            return self._known_rate((replica, engine))

    def _known_rate(self, key: tuple[str | None, int | None]) -> float | None:
        try:
            return self._usd_per_s[key]
        except KeyError:
            usd_per_s = self._rate(key)
            _remember(self._usd_per_s, key, usd_per_s)
            return usd_per_s

    def _rate(self, key: tuple[str | None, int | None]) -> float | None:
        replica, number = key
        if replica is None:
            return None
        if number is None:
            # If all engines of the replica have the same price, use this price.
            engines = [each for each in self._starts if each[0] == replica]
            rates = {self._rate(each) for each in engines}
            return rates.pop() if len(rates) == 1 else self._of(replica, None)
        return self._of(replica, self._starts.get((replica, number)))

    def _of(self, replica: str, start: EngineStart | None) -> float | None:
        device = start.device if start is not None else None
        gpus = start.gpus if start is not None else None
        names = _names(self._gpus.get(replica, {}))
        if device is None and names:
            device = next(iter(names.values()))
            engines = sum(1 for each in self._starts if each[0] == replica)
            gpus = gpus or max(1, len(names) // max(1, engines))
        region = start.region if start is not None else None
        rate = self._prices.rate(replica=replica, device=device, gpus=gpus, region=region)
        return None if rate is None else rate.usd_per_s

    def _modelled_s(self, row: Row) -> float | None:
        if row[_REPLICA] is None or row[_ENGINE] is None:
            return None
        fit = self._models.get((row[_REPLICA], row[_ENGINE]))
        prompt, output = row[_PROMPT], row[_OUTPUT]
        if fit is None or prompt is None or output is None:
            return None
        base_s, token_s, attention_s, context_s, decode_s, launch_s = fit
        computed = max(0, prompt - (row[_CACHED] or 0))
        attention = computed * (prompt - computed / 2)
        each_s = base_s / ((row[_RUNNING] or 0) + 1)
        modelled_s: float = (
            launch_s
            + token_s * computed
            + attention_s * attention
            + output * (each_s + decode_s + context_s * (prompt + output / 2))
        )
        return modelled_s


def _priced(row: Row, cost_usd: float, priced_by: PricedBy) -> Row:
    return (*row[:_COST], cost_usd, priced_by.value)  # the row's last two columns


def _names(gpus: Mapping[str, _Gpu]) -> dict[str, str]:
    return {name: each.model for name, each in gpus.items()}


def _remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    known.pop(key, None)
    if len(known) >= MAX_ENGINES:
        del known[next(iter(known))]
    known[key] = value
