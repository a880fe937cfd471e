"""Find the requests that delayed another request.

Pure. The delayed request's row reports how many seconds of delay the prefills and the decodes of
other requests caused. The delay by prefills is divided among the requests whose prefill overlapped
in time with the delayed request, in proportion to the prompt tokens computed during the overlap.
The delay by decodes is divided among the requests whose decode overlapped with the delayed request,
in proportion to the output tokens. So the sum of the delays equals the reported seconds. A more
exact division would need the work of each step, which is not recorded.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from diagnosis.growth.own_work import uncached_tokens
from diagnosis.inputs.requests import FloatArray, Requests

_QUEUE: Final = ("queue_budget_s", "queue_step_s")


@dataclass(frozen=True, slots=True)
class Delayer:
    """A request that delayed another request by `cost_s` seconds. `row` is the index of the
    delaying request in the argument `requests`."""

    row: int
    cost_s: float
    tokens: float
    """Prompt tokens of the delaying request that were computed during the overlap."""


@dataclass(frozen=True, slots=True)
class TenantDelay:
    """The delay of one request by the requests of one tenant."""

    tenant: str | None
    requests: int
    prefill_s: float
    decode_s: float

    @property
    def cost_s(self) -> float:
        """Seconds of delay by prefills and decodes together."""
        return self.prefill_s + self.decode_s


def delayers(requests: Requests, victim: int, most: int = 10) -> list[Delayer]:
    """Return the requests whose prefill delayed a request, largest delay first.

    Args:
        requests: the requests of the same replica and engine at about the same time, including the
            delayed request itself.
        victim: the index of the request in `requests`.
        most: the largest number of delayers to return.
    """
    cost_s, met = _Overlaps(requests, victim).prefills()
    order = np.argsort(-cost_s, kind="stable")[:most]
    return [Delayer(int(row), float(cost_s[row]), float(met[row])) for row in order if cost_s[row]]


def tenant_delays(requests: Requests, victim: int) -> list[TenantDelay]:
    """Return the seconds by which each tenant's requests delayed a request, largest delay first.
    See `delayers` for the arguments."""
    overlaps = _Overlaps(requests, victim)
    prefill_s, _ = overlaps.prefills()
    decode_s = overlaps.decodes()
    tenants = requests.label("tenant")
    rows: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(prefill_s + decode_s).tolist():
        rows[int(tenants.codes[row])].append(row)
    found = [
        TenantDelay(
            tenants.values[code] if code >= 0 else None,
            len(each),
            float(prefill_s[each].sum()),
            float(decode_s[each].sum()),
        )
        for code, each in rows.items()
    ]
    return sorted(found, key=lambda each: -each.cost_s)


class _Overlaps:
    """The time ranges in which the work of other requests overlaps with one request in the same
    engine."""

    def __init__(self, requests: Requests, victim: int) -> None:
        self._requests, self._victim = requests, victim
        number = requests.number
        self._begun_s = (requests.received_unix_ns - requests.received_unix_ns[victim]) / 1e9
        self._queued_s = self._begun_s + np.nan_to_num(number("frontend_s"))
        self._scheduled_s = self._queued_s + np.nan_to_num(number("queue_s"))
        self._first_token_s = self._scheduled_s + np.nan_to_num(number("prefill_s"))
        self._last_token_s = self._first_token_s + np.nan_to_num(number("decode_s"))

    def prefills(self) -> tuple[FloatArray, FloatArray]:
        """Return the seconds of delay by each request's prefill, and the request's prompt tokens in
        the overlap, both (n,)."""
        at = self._victim
        queued_s, scheduled_s = self._queued_s[at], self._scheduled_s[at]
        first_s, last_s = self._first_token_s[at], self._last_token_s[at]
        return self._divide_lost_time(
            uncached_tokens(self._requests),
            (self._scheduled_s, self._first_token_s),
            (
                (("handoff_s",), self._begun_s[at], queued_s),
                (_QUEUE, queued_s, scheduled_s),
                (("prefill_others_prefill_s",), scheduled_s, first_s),
                (("decode_others_prefill_s",), first_s, last_s),
            ),
        )

    def decodes(self) -> FloatArray:
        """Return the seconds of delay by each request's decode: (n,)."""
        at = self._victim
        first_s = self._first_token_s[at]
        cost_s, _ = self._divide_lost_time(
            self._requests.number("output_tokens"),
            (self._first_token_s, self._last_token_s),
            (
                (("prefill_others_decode_s",), self._scheduled_s[at], first_s),
                (("decode_others_decode_s",), first_s, self._last_token_s[at]),
            ),
        )
        return cost_s

    def _divide_lost_time(
        self,
        tokens: FloatArray,
        work: tuple[FloatArray, FloatArray],
        lost: Sequence[tuple[Sequence[str], float, float]],
    ) -> tuple[FloatArray, FloatArray]:
        """Divide the delay in each time range among the requests whose work overlaps the time
        range.

        Args:
            tokens: (n,) the number of tokens of each request's work.
            work: when each request's work began and when it ended, in seconds: two arrays (n,).
            lost: for each time range, the columns with the seconds of delay, and the range's start
                and end.

        Returns:
            Two arrays (n,): the seconds of delay by each request, and the number of tokens that
            each request computed in the time ranges.
        """
        tokens = self._of_its_engine(np.nan_to_num(tokens))
        begun_s, ended_s = work
        length_s = np.maximum(ended_s - begun_s, 1e-9)
        cost_s, met = np.zeros(len(tokens)), np.zeros(len(tokens))
        for columns, from_s, to_s in lost:
            lost_s = float(
                sum(np.nan_to_num(self._requests.number(name)[self._victim]) for name in columns)
            )
            overlap_s = np.minimum(ended_s, to_s) - np.maximum(begun_s, from_s)
            shared = tokens * np.minimum(np.clip(overlap_s, 0.0, None) / length_s, 1.0)
            whole = float(shared.sum())
            if lost_s > 0 and whole > 0:
                cost_s += lost_s * shared / whole
                met += shared
        return cost_s, met

    def _of_its_engine(self, tokens: FloatArray) -> FloatArray:
        """Return a copy of `tokens`, with 0 for the request itself and for other engines'
        requests."""
        ours, at = tokens.copy(), self._victim
        ours[at] = 0.0
        replica, engine = self._requests.label("replica").codes, self._requests.number("engine")
        ours[replica != replica[at]] = 0.0
        # Data-parallel engines of a replica do not share steps.
        ours[(engine != engine[at]) & np.isfinite(engine) & np.isfinite(engine[at])] = 0.0
        return ours
