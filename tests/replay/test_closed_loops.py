import numpy as np
import pytest

from replay.closed_loops import (
    MAX_DISPERSION,
    MIN_IN_FLIGHT,
    MIN_REQUESTS,
    closed_loops,
)


def waiting(
    clients: int, number: int, think_s: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted times of receipt, and the times of end; each client waits for its response."""
    chance = np.random.default_rng(seed)
    times = []
    for client in range(clients):
        at_s = 0.01 * client
        for _ in range(number // clients):
            latency_s = chance.lognormal(0.0, 0.5)
            times.append((at_s, at_s + latency_s))
            at_s += latency_s + chance.exponential(think_s) if think_s else latency_s
    # The end is cut off: clients without further requests would look like a lower load.
    until_s = 0.7 * max(times)[0]
    received_s, ended_s = np.array(sorted(each for each in times if each[0] < until_s)).T
    return received_s, ended_s


def independent(rate_per_s: float, number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    received_s = np.cumsum(chance.exponential(1 / rate_per_s, number))
    return received_s, received_s + chance.lognormal(0.0, 0.5, number)


@pytest.mark.parametrize(("clients", "think_s"), [(2, 0.0), (8, 0.0), (8, 0.05), (32, 0.1)])
def test_clients_that_wait_are_found(clients: int, think_s: float) -> None:
    received_s, ended_s = waiting(clients, 50 * clients, think_s)
    found = closed_loops(received_s, ended_s, np.zeros(len(received_s), int))
    assert found.tenants == (0,)
    linked = found.after >= 0
    assert linked.mean() > 0.85
    assert (ended_s[found.after[linked]] + found.think_s[linked]).tolist() == pytest.approx(
        received_s[linked].tolist()
    )
    assert len(set(found.after[linked].tolist())) == linked.sum()


@pytest.mark.parametrize("rate_per_s", [0.1, 1.0, 3.0, 10.0, 40.0])
def test_independent_users_are_not(rate_per_s: float) -> None:
    for seed in range(200):
        times = independent(rate_per_s, MIN_REQUESTS + 10, seed)
        assert closed_loops(*times, np.zeros(MIN_REQUESTS + 10, int)).tenants == ()


def test_the_limit_of_dispersion_is_below_every_poisson_sample() -> None:
    lowest = 1.0
    for seed in range(1_000):
        received_s, ended_s = independent(MIN_IN_FLIGHT * 1.2, 80, seed)
        at = np.searchsorted(np.sort(ended_s), received_s, side="right")
        in_flight = (np.arange(1, 81) - at)[10:]
        if in_flight.mean() >= 2:
            lowest = min(lowest, in_flight.var() / in_flight.mean())
    assert lowest > MAX_DISPERSION


def test_a_schedule_at_fixed_times_is_not_a_closed_loop() -> None:
    chance = np.random.default_rng(1)
    received_s = np.arange(200.0)
    ended_s = received_s + 1.5 + 0.4 * chance.random(200)
    assert closed_loops(received_s, ended_s, np.zeros(200, int)).tenants == ()


@pytest.mark.parametrize("rate_per_s", [3.0, 10.0, 40.0])
def test_a_constant_rate_with_many_requests_in_flight_is_not_a_closed_loop(
    rate_per_s: float,
) -> None:
    chance = np.random.default_rng(1)
    received_s = np.arange(400) / rate_per_s + chance.normal(0, 0.002, 400)
    ended_s = received_s + chance.lognormal(0.0, 0.2, 400)
    assert closed_loops(received_s, ended_s, np.zeros(400, int)).tenants == ()


def test_each_tenant_is_judged_alone() -> None:
    one, other = waiting(4, 200, 0.0), independent(5.0, 200)
    received_s = np.concatenate([one[0], other[0]])
    ended_s = np.concatenate([one[1], other[1]])
    tenant = np.repeat([0, 1], [len(one[0]), len(other[0])])
    order = np.argsort(received_s)
    found = closed_loops(received_s[order], ended_s[order], tenant[order])
    assert found.tenants == (0,)
    assert (found.after[tenant[order] == 1] == -1).all()


def test_no_requests_have_no_loops() -> None:
    none = np.zeros(0)
    assert closed_loops(none, none, none.astype(int)).tenants == ()
