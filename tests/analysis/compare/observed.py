import numpy as np

from analysis.compare.parts import ObservedRequests


def observed(
    number: int,
    seed: int,
    factor: float = 1.0,
    prompts: float = 1.0,
    load: float = 8.0,
    groups: int = 2,
) -> ObservedRequests:
    """Return 10 requests per second with a latency that is a sum of known terms.

    The terms are 10 ms, 20 µs per token and 1 ms per running request.
    """
    chance = np.random.default_rng(seed)
    tokens = prompts * chance.lognormal(6.5, 0.8, number)
    running = chance.poisson(load, number).astype(np.float64)
    value_s = factor * (0.010 + 20e-6 * tokens + 1e-3 * running)
    return ObservedRequests(
        at_s=np.arange(number) / 10,
        value_s=value_s * chance.lognormal(0, 0.05, number),
        group=chance.integers(0, groups, number),
        model=np.zeros(number, dtype=np.int64),
        mix=np.stack([np.ones(number), tokens], axis=1),
        load=running[:, None],
        running=running,
    )
