"""Find the requests whose prefill delayed another request.

Pure. The row reports how many seconds others' prefill cost. These seconds are divided among the
requests whose prefill overlapped, in proportion to the prompt tokens computed in the overlap. So
the delays sum to what the row reports. Within one step no finer division is possible.
"""

from dataclasses import dataclass

import numpy as np

from diagnosis.growth.own_work import uncached_tokens
from diagnosis.inputs.requests import FloatArray, Requests


@dataclass(frozen=True, slots=True)
class Delayer:
    """One request that delayed another. `row` is its position in the requests given."""

    row: int
    cost_s: float
    tokens: float
    """Prompt tokens of this request that were computed during the overlap."""


def delayers(requests: Requests, victim: int, most: int = 10) -> list[Delayer]:
    """Return the requests that delayed one request, largest delay first.

    Args:
        requests: the requests of its replica and engine around that time, including the request
            itself.
        victim: its position in `requests`.
        most: the largest number of delayers to return.
    """
    number = requests.number
    begun_s = (requests.received_unix_ns - requests.received_unix_ns[victim]) / 1e9
    queued_s = begun_s + np.nan_to_num(number("frontend_s"))
    scheduled_s = queued_s + np.nan_to_num(number("queue_s"))
    first_token_s = scheduled_s + np.nan_to_num(number("prefill_s"))
    last_token_s = first_token_s + np.nan_to_num(number("decode_s"))
    tokens = np.nan_to_num(uncached_tokens(requests))
    tokens[victim] = 0.0
    replica, engine = requests.label("replica").codes, number("engine")
    tokens[replica != replica[victim]] = 0.0
    # Data-parallel engines of a replica share no step.
    tokens[(engine != engine[victim]) & np.isfinite(engine) & np.isfinite(engine[victim])] = 0.0

    def computed(from_s: float, to_s: float) -> FloatArray:
        overlap = np.minimum(first_token_s, to_s) - np.maximum(scheduled_s, from_s)
        length = np.maximum(first_token_s - scheduled_s, 1e-9)
        share: FloatArray = np.clip(overlap, 0.0, None) / length
        return tokens * np.minimum(share, 1.0)

    cost_s, met = np.zeros(len(requests)), np.zeros(len(requests))
    for columns, from_s, to_s in (
        (("handoff_s",), begun_s[victim], queued_s[victim]),
        (("queue_budget_s", "queue_step_s"), queued_s[victim], scheduled_s[victim]),
        (("prefill_others_prefill_s",), scheduled_s[victim], first_token_s[victim]),
        (("decode_others_prefill_s",), first_token_s[victim], last_token_s[victim]),
    ):
        lost_s = float(sum(np.nan_to_num(number(name)[victim]) for name in columns))
        shared = computed(from_s, to_s)
        whole = float(shared.sum())
        if lost_s > 0 and whole > 0:
            cost_s += lost_s * shared / whole
            met += shared
    order = np.argsort(-cost_s, kind="stable")[:most]
    return [Delayer(int(row), float(cost_s[row]), float(met[row])) for row in order if cost_s[row]]
