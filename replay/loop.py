"""Replay arrivals on a model of their servers. An hour of one replica is replayed in under a
second.

Pure: model, arrivals, conditions and seed determine the outcome. A compiled loop (`replay.kernel`)
computes the same results as the engine in plain Python (`replay.reference`).

    model = ServerModel(engine=EngineConfig(max_num_seqs=64))
    now = replay(model, arrivals)
    more_seats = replace(model, engine=replace(model.engine, max_num_seqs=128))
    then = replay(more_seats, arrivals)
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from replay.arrivals import Arrivals, FloatArray, IntArray
from replay.conditions import Conditions
from replay.engine_config import EngineConfig
from replay.outcome import EngineOutcome, ReplayOutcome
from replay.server_model import ROUTERS, ServerModel, engine_seed
from replay.speculation import DRAWS, draft_draws
from replay.step_clock import NOISE_STEPS, step_noise

Records = NDArray[np.void]
_NO_CONDITIONS: Final = Conditions()
MAX_BYTES: Final = 2**30
"""Maximum memory for the tables of all engines. Their size is engines × shared prefixes."""


class NotReplayedError(ValueError):
    """The model has a feature that the compiled loop does not support, or is too large."""


def replay(
    model: ServerModel,
    arrivals: Arrivals,
    seed: str = "",
    conditions: Conditions = _NO_CONDITIONS,
) -> ReplayOutcome:
    """Replay arrivals on a model.

    Args:
        seed: seed of step noise and of the acceptance of drafted tokens.

    Raises:
        NotReplayedError: the loop does not support the model, or the engines need too much memory.
    """
    _refuse(model.engine, arrivals)
    # imported only here, because the import takes half a second
    from replay import kernel

    n, replicas = len(arrivals), range(model.replicas)
    seats = min(model.engine.max_num_seqs, max(n, 1))
    segments, offsets, key_count = _segments(arrivals, model.engine.block_size)
    jobs = _jobs(arrivals, offsets)
    adapters = jobs["adapter"].max(initial=-1) + 1
    _refuse_too_large(model, key_count, seats + adapters)
    stalls, stall_offsets = _events(
        [
            [(each.at_s, -each.for_s if each.in_full else each.for_s) for each in of_replica]
            for of_replica in map(conditions.stalls_of, replicas)
        ]
    )
    paces, pace_offsets = _events([conditions.paces_of(number) for number in replicas])
    engines = _engines(model, key_count, stall_offsets, pace_offsets)
    seeds = [engine_seed(seed, number) for number in replicas]
    drafts = model.engine.num_speculative_tokens
    after = arrivals.after
    kernel.run(
        _options(model, key_count),
        engines,
        jobs,
        segments,
        _extents(model.replicas * key_count + n),
        np.full((len(replicas), seats), -1),
        np.full((len(replicas), 4), -1),
        np.zeros((len(replicas), adapters), dtype=np.int64),
        _noise(model.engine, seeds),
        np.stack([np.array(draft_draws(each) if drafts else [0.0]) for each in seeds]),
        stalls,
        paces,
        np.arange(n) if after is None else np.nonzero(after < 0)[0],
    )
    return _outcome(model, arrivals, jobs, engines)


def warm(compiling: Callable[[], None] = lambda: None) -> bool:
    """Compile the loop, or load it from numba's cache. Return whether it was compiled.

    Args:
        compiling: called before a compilation, which takes about 15 s.
    """
    from numba.core.event import Listener, install_listener

    Listener.register(_Compilations)
    listener = _Compilations(compiling)
    one = np.ones(1, dtype=np.int64)
    with install_listener("numba:compile", listener):
        replay(
            ServerModel(), Arrivals(received_s=np.zeros(1), prompt_tokens=one, output_tokens=one)
        )
    return listener.any


class _Compilations:
    def __init__(self, begun: Callable[[], None]) -> None:
        self.any = False
        self._begun = begun

    def notify(self, event: Any) -> None:
        """Handle the start or the end of the compilation of one function."""
        if event.is_start and not self.any:
            self.any = True
            self._begun()


def _noise(config: EngineConfig, seeds: Sequence[str]) -> FloatArray:
    return np.stack(
        [_noise_of(config.step_noise_ratio, config.step_noise_quantiles, each) for each in seeds]
    )


@lru_cache(maxsize=256)
def _noise_of(ratio: float, quantiles: tuple[float, ...], seed: str) -> FloatArray:
    """Return the noise factors of an engine's steps. The result is cached, because replays of
    different edits use the same seeds."""
    config = EngineConfig(step_noise_ratio=ratio, step_noise_quantiles=quantiles)
    return np.array(step_noise(config, seed))


def _refuse(config: EngineConfig, arrivals: Arrivals) -> None:
    if config.kv_connector:
        raise NotReplayedError(f"kv_connector: {config.kv_connector}; a replay allows: False")
    if arrivals.adapter is not None and not config.max_loras and (arrivals.adapter >= 0).any():
        raise NotReplayedError("max_loras: 0; some requests have an adapter")


def _refuse_too_large(model: ServerModel, key_count: int, places: int) -> None:
    from replay.kernel import ENGINE, EXTENT

    draws = DRAWS if model.engine.num_speculative_tokens else 1
    words = places + NOISE_STEPS + draws
    each_bytes = ENGINE.itemsize + key_count * EXTENT.itemsize + words * 8
    if (needed := model.replicas * each_bytes) > MAX_BYTES:
        raise NotReplayedError(
            f"{model.replicas:,} engines with {key_count:,} shared prefixes need"
            f" {needed / 1e9:,.1f} GB of memory; allowed: at most {MAX_BYTES / 1e9:.1f} GB. Choose"
            " fewer engines or a shorter range."
        )


def _options(model: ServerModel, key_count: int) -> Records:
    from replay.kernel import OPTIONS

    config, step, front = model.engine, model.engine.model, model.front_end
    options = np.zeros(1, OPTIONS)
    values: dict[str, float] = {
        "router": ROUTERS.index(model.router),
        "slack": model.affinity_slack,
        "seats": config.max_num_seqs,
        "step_tokens": config.max_num_batched_tokens,
        "queue_places": config.max_num_queued_reqs,
        "max_model_len": config.max_model_len,
        "block_size": config.block_size,
        "reuse": config.enable_prefix_caching,
        "by_priority": config.policy == "priority",
        "ahead": config.async_scheduling,
        "reserve_whole": config.scheduler_reserve_full_isl,
        "long_limit": config.long_prefill_token_threshold,
        "drafts": config.num_speculative_tokens,
        "adapters": config.max_loras,
        "key_count": key_count,
        "left_from": model.replicas * key_count,
        "front_pace": front.pace,
        **{each.name: getattr(step, each.name) for each in fields(step)},
        **{each.name: getattr(front, each.name) for each in fields(front) if each.name != "pace"},
    }
    for name, value in values.items():
        options[name] = value
    return options


def _jobs(arrivals: Arrivals, offsets: IntArray) -> Records:
    from replay.kernel import JOB

    n = len(arrivals)
    jobs = np.zeros(n, JOB)
    for name in JOB.names or ():
        if name.endswith("_s"):
            jobs[name] = np.nan
    for name in ("engine", "fills", "next", "previous", "work_before", "adapter"):
        jobs[name] = -1
    jobs["received_s"] = arrivals.received_s
    jobs["prompt"], jobs["output"] = arrivals.prompt_tokens, arrivals.output_tokens
    jobs["segments"], jobs["segments_end"] = offsets[:-1], offsets[1:]
    jobs["think_s"] = jobs["held_s"] = 0.0
    for name, column in (
        ("spared", arrivals.cached_tokens),
        ("frontend_s", arrivals.frontend_s),
        ("held_s", arrivals.held_s),
        ("priority", arrivals.priority),
        ("adapter", arrivals.adapter),
        ("acceptance", arrivals.acceptance),
        ("think_s", arrivals.think_s),
    ):
        if column is not None:
            jobs[name] = column
    jobs["follower"], jobs["next_follower"] = _followers(n, arrivals.after)
    return jobs


def _followers(n: int, after: IntArray | None) -> tuple[IntArray, IntArray]:
    first, following = np.full(n, -1), np.full(n, -1)
    if after is not None:
        for row in np.nonzero(after >= 0)[0][::-1]:
            following[row] = first[after[row]]
            first[after[row]] = row
    return first, following


def _segments(arrivals: Arrivals, block_size: int) -> tuple[Records, IntArray, int]:
    """Divide shared prefixes into blocks, as `Job.lease_blocks` does.

    Returns:
        The segments (m,), the index of each request's first segment (n + 1,), and the number of
        keys.
    """
    from replay.kernel import SEGMENT

    n, prefixes = len(arrivals), arrivals.prefixes
    if prefixes is None or not len(prefixes.keys):
        return np.zeros(0, SEGMENT), np.zeros(n + 1, dtype=np.int64), 0
    rows = np.repeat(np.arange(n), np.diff(prefixes.offsets))
    computed_tokens = arrivals.prompt_tokens + arrivals.output_tokens - 1
    ends = np.minimum(prefixes.end_tokens, computed_tokens[rows]) // block_size
    before = np.concatenate([[0], ends[:-1]])
    before[np.concatenate([[True], rows[1:] != rows[:-1]])] = 0
    kept = ends > before
    names, keys = np.unique(prefixes.keys[kept], return_inverse=True)
    segments = np.zeros(len(keys), SEGMENT)
    segments["key"], segments["blocks"] = keys, (ends - before)[kept]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=n))])
    return segments, offsets, len(names)


def _events(of_replicas: Sequence[Sequence[tuple[float, float]]]) -> tuple[Records, IntArray]:
    """Return the events (stalls or changes of pace) of all replicas, sorted by replica. Also return
    the index of each replica's first event: (r + 1,) for r replicas."""
    from replay.kernel import EVENT

    events = np.array([tuple(each) for some in of_replicas for each in some], EVENT)
    return events, np.cumsum([0, *map(len, of_replicas)])


def _extents(nodes: int) -> Records:
    from replay.kernel import EXTENT

    extents = np.zeros(nodes, EXTENT)
    extents["newer"] = extents["older"] = -1
    return extents


def _engines(
    model: ServerModel, key_count: int, stall_offsets: IntArray, pace_offsets: IntArray
) -> Records:
    from replay.kernel import ENGINE

    engines = np.zeros(model.replicas, ENGINE)
    for name in ("blocked_by", "last_work", "idle_oldest", "idle_newest"):
        engines[name] = -1
    for name in ("free", "blank"):
        engines[name] = model.engine.num_gpu_blocks
    engines["pace"] = 1.0
    engines["first_extent"] = np.arange(model.replicas) * key_count
    engines["next_stall"], engines["stalls_end"] = stall_offsets[:-1], stall_offsets[1:]
    engines["next_pace"], engines["paces_end"] = pace_offsets[:-1], pace_offsets[1:]
    return engines


def _outcome(
    model: ServerModel, arrivals: Arrivals, jobs: Records, engines: Records
) -> ReplayOutcome:
    def column(name: str) -> Any:
        return np.ascontiguousarray(jobs[name])

    rejected = jobs["engine"] < 0
    received_s, last_s, first_s = column("received_s"), column("last_s"), column("first_s")
    last_byte_s = np.where(rejected, np.nan, jobs["last_byte_s"])
    first_byte_s = column("first_byte_s")
    if arrivals.streamed is not None:
        first_byte_s = np.where(arrivals.streamed, first_byte_s, last_byte_s)
    several = np.where(arrivals.output_tokens > 1, arrivals.output_tokens - 1, np.nan)
    return ReplayOutcome(
        received_s=received_s,
        frontend_s=jobs["queued_s"] - jobs["held_s"] - received_s,
        queue_s=jobs["scheduled_s"] - jobs["queued_s"] + jobs["held_s"],
        prefill_s=first_s - jobs["scheduled_s"],
        decode_s=last_s - first_s,
        delivery_s=last_byte_s - last_s,
        ttft_s=first_byte_s - received_s,
        tpot_s=(last_s - first_s) / several,
        itl_max_s=column("gap_s"),
        e2e_s=last_byte_s - received_s,
        preemptions=column("preemptions"),
        cached_tokens=column("cached"),
        engine=column("engine"),
        rejected=rejected,
        engines=EngineOutcome(
            steps=engines["steps"].copy(),
            busy_s=engines["busy_s"].copy(),
            end_s=engines["now_s"].copy(),
            blocked_seats_s=engines["seats_s"].copy(),
            blocked_kv_s=engines["kv_s"].copy(),
            blocked_tokens_s=engines["tokens_s"].copy(),
            preemptions=engines["preemptions"].copy(),
            prompt_tokens=engines["looked_up"].copy(),
            cached_tokens=engines["found"].copy(),
        ),
    )
