"""Compute which engine serves each request after the routing or an engine is reset. Pure.

Most routers send fewer requests to a slow engine, and the other engines get these requests.
"""

from collections.abc import Collection, Sequence

import numpy as np

from analysis.counterfactual.window_requests import WindowRequests
from replay.arrivals import IntArray


def in_baseline_shares(
    requests: WindowRequests, baseline: WindowRequests, engines: int
) -> IntArray:
    """Return the engine of each request: (n,). The engines take turns, and each engine gets the
    same share of the requests as in the baseline."""
    counts = np.bincount(baseline.engine, minlength=engines)
    numbers = np.ceil(counts / counts.sum() * len(requests.at_s)).astype(np.int64)
    turns = [(np.arange(each) + 0.5) / max(each, 1) for each in numbers]
    order = np.argsort(np.concatenate(turns), kind="stable")
    return np.repeat(np.arange(engines), numbers)[order][: len(requests.at_s)]


def with_usual_servers(
    requests: WindowRequests,
    window: WindowRequests,
    baseline: WindowRequests,
    models: Sequence[str | None],
    usual: Collection[int],
    chance: np.random.Generator,
) -> IntArray:
    """Return the engine of each request if the engines in `usual` get their shares of the baseline:
    (n,).

    Randomly chosen requests move from engines with too many requests to engines with too few.
    Requests that come from the baseline do not move, because they already have the baseline's
    engines.

    Args:
        requests: the requests to route.
        window, baseline: the recorded requests, from which the shares are computed.
        models: the model of each engine. Requests move only between engines of the same model.
        usual: the engines that get their shares of the baseline. The other engines keep the
            proportions of their shares.
    """
    found = requests.engine.copy()
    counts_now, counts_usual = (
        np.bincount(each.engine[each.at_s >= 0], minlength=len(models))
        for each in (window, baseline)
    )
    names = np.array([str(each) for each in models])
    for name in np.unique(names):
        mine = np.flatnonzero((names == name) & ((counts_now > 0) | (counts_usual > 0)))
        if not counts_now[mine].all() or not counts_usual[mine].all():
            continue  # an engine was away, so the router had no choice
        now = counts_now[mine] / counts_now[mine].sum()
        before = counts_usual[mine] / counts_usual[mine].sum()
        is_usual = np.isin(mine, list(usual))
        wanted = np.where(is_usual, before, now)
        wanted[~is_usual] *= (1.0 - before[is_usual].sum()) / max(now[~is_usual].sum(), 1e-9)
        lacking = np.maximum(wanted - now, 0.0)
        if not lacking.any():
            continue
        stays = np.ones(len(models))
        stays[mine] = wanted / now
        moves = (requests.row >= 0) & (requests.at_s >= 0) & np.isin(found, mine)
        moves &= chance.random(len(found)) >= stays[found]
        found[moves] = chance.choice(mine, int(moves.sum()), p=lacking / lacking.sum())
    return found
