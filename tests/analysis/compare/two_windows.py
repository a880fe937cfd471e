"""Stores two simulated windows, before and after a change."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from sqlalchemy import Engine

from replay.engine_config import EngineConfig
from replay.step_model import EIGHT_B_ON_H100, StepModel
from simulator.dataset import Dataset, run
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.writer import Writer
from telemetry.starts import read, written
from telemetry.window import Window

START_S = 1_763_634_000
SECONDS = 180
BEFORE = Window(START_S * 10**9, (START_S + SECONDS) * 10**9)
AFTER = Window((START_S + 600) * 10**9, (START_S + 600 + SECONDS) * 10**9)
CONFIG = FleetConfig(
    duration_s=float(SECONDS + 20), seed=5, replicas=2, workload=Workload(rate_per_s=6.0)
)


@cache
def simulated(start_s: int, seed: int, slower: float) -> Dataset:
    """Return a simulated window; each step takes `slower` times as long."""
    step = StepModel(
        **{name: getattr(EIGHT_B_ON_H100, name) * slower for name in StepModel.__dataclass_fields__}
    )
    return run(
        replace(CONFIG, seed=seed, started_unix_ns=start_s * 10**9, engine=EngineConfig(step=step))
    )


def store(url: str, slower: float = 1.2) -> None:
    """Store a window, and ten minutes later a window of a server with slower steps."""
    put(url, [simulated(START_S, 5, 1.0), simulated(START_S + 600, 6, slower)])


def store_canary(url: str, start_s: int = START_S, slower: float = 1.5) -> None:
    """Store a window in which only sim-1 has a new version and configuration.

    The steps of sim-1 take `slower` times as long.
    """
    stable, canary = simulated(start_s, 5, 1.0), simulated(start_s, 6, slower)
    put(
        url,
        [
            replace(
                stable,
                requests=[each for each in stable.requests if each.replica == "sim-0"],
                samples=[each for each in stable.samples if each.replica == "sim-0"],
                starts=[
                    replace(each, version="0.31.0")
                    for each in stable.starts
                    if each.replica == "sim-0"
                ],
            ),
            replace(
                canary,
                requests=[
                    replace(each, config="beef")
                    for each in canary.requests
                    if each.replica == "sim-1"
                ],
                samples=[
                    replace(each, config="beef")
                    for each in canary.samples
                    if each.replica == "sim-1"
                ],
                starts=[
                    replace(each, version="0.32.0", config="beef")
                    for each in canary.starts
                    if each.replica == "sim-1"
                ],
            ),
        ],
    )


def put(url: str, windows: Sequence[Dataset]) -> None:
    engine = open_database(url)
    with Writer(engine) as writer:
        for each in windows:
            writer.submit(each.requests, each.samples, starts=each.starts).result(60)
    engine.dispose()


def store_deploy(url: str, slower: float = 1.2) -> None:
    """Store the same windows as `store`, but the second one has `max_num_seqs=64`, as after a
    deploy."""
    before, after = simulated(START_S, 5, 1.0), simulated(START_S + 600, 6, slower)
    starts = [
        replace(
            each,
            config="beef",
            arguments=written({**read(each.arguments), "scheduler.max_num_seqs": 64}),
        )
        for each in after.starts
    ]
    put(url, [before, replace(after, starts=starts)])


def store_restarted(url: str, slower: float = 1.2) -> None:
    """Store the same windows as `store`, but the second one has a new version and configuration."""
    before, after = simulated(START_S, 5, 1.0), simulated(START_S + 600, 6, slower)
    put(
        url,
        [
            before,
            replace(
                after,
                requests=[replace(each, config="beef") for each in after.requests],
                samples=[replace(each, config="beef") for each in after.samples],
                starts=[replace(each, version="0.32.0", config="beef") for each in after.starts],
            ),
        ],
    )


def store_two_models(url: str, quantised: bool = False) -> None:
    """Store two windows of a small and a large model.

    Before the change, the small model has two replicas and the large model has one. After it, the
    small model has one and the large model has two. With `quantised`, both models have other names
    after the change.
    """
    put(
        url,
        [
            served(start_s, seed, model, replicas, "-fp8" if quantised and after else "")
            for start_s, seed, after in ((START_S, 5, False), (START_S + 600, 6, True))
            for model, replicas in (("small", 1 if after else 2), ("large", 2 if after else 1))
        ],
    )


def served(start_s: int, seed: int, model: str, replicas: int, suffix: str) -> Dataset:
    """Return the window of a model with one or two replicas. Each has three requests/s."""
    # With equal seeds, the requests of both models would have equal ids.
    seed, slower = (seed, 1.0) if model == "small" else (seed + 10, 2.0)
    data = simulated(start_s, seed, slower)
    names = {f"sim-{number}": f"{model}-{number}" for number in range(replicas)}
    return replace(
        data,
        requests=[
            replace(each, replica=names[each.replica], model=f"{model}{suffix}")
            for each in data.requests
            if each.replica in names
        ],
        samples=[
            replace(each, replica=names[each.replica])
            for each in data.samples
            if each.replica in names
        ],
        starts=[
            replace(each, replica=names[each.replica])
            for each in data.starts
            if each.replica in names
        ],
    )


def opened(folder: Path, fill: Callable[[str], object]) -> Iterator[Engine]:
    url = f"sqlite:///{folder / 'tailspan.db'}"
    fill(url)
    engine = open_database(url)
    yield engine
    engine.dispose()
