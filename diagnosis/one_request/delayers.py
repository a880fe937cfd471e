"""Who delayed a request: those whose prefill shared its engine while it waited or ran.

Pure. The seconds that others' prefill cost it are its row's own; they are divided among the
requests whose prefill overlapped, by the prompt tokens that were computed in the overlap. So
they sum to what the row says, and name whom to look at; within a step nobody can tell more.
"""

from dataclasses import dataclass

import numpy as np

from diagnosis.growth.own_work import uncached_tokens
from diagnosis.inputs.requests import FloatArray, Requests


@dataclass(frozen=True, slots=True)
class Delayer:
    """One request that cost another time. `row` is its place among the requests given."""

    row: int
    cost_s: float
    tokens: float
    """Prompt tokens of its that were computed meanwhile."""


def delayers(requests: Requests, victim: int, most: int = 10) -> list[Delayer]:
    """Those that delayed a request, costliest first.

    Args:
        requests: those of its replica and engine around it, itself among them.
        victim: its place among them.
        most: at most so many.
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
