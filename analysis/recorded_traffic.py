"""Reads the traffic of a window, and fits a model of each engine that served it, for a replay.

Each engine's model is fitted to its own samples, start and requests (`replay.fit`). Requests that
arrived shortly before the window are replayed, too, because the engine still works on them when the
window begins. They are not counted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Samples
from replay.arrivals import Arrivals, BoolArray, FloatArray, IntArray
from replay.closed_loops import closed_loops
from replay.conditions import Conditions, Stall
from replay.engine_config import EngineConfig
from replay.fit import (
    COEFFICIENTS,
    EdgeReports,
    FitError,
    StepReports,
    fit_front_end,
    fit_steps,
    stalls_of,
)
from replay.server_model import ServerModel
from store.columns.request_columns import request_columns
from store.queries import Window, request_count, sample_table
from store.replicas.engine_starts import in_force, starts_between
from telemetry.starts import EngineStart, read

LEAD_S: Final = 60
"""Requests that arrived within this time before the window are replayed, too, so that the engine is
not empty when the window begins.
"""
STRETCH_S: Final = 5
"""Samples arrive each second; five of them smooth the time between two samples."""
LEAST_REQUESTS: Final = 100
"""Minimum number of requests.

With fewer, the 95 % interval of a P50 spans 20 percentiles, so an error could not be judged.
"""
MOST_REQUESTS: Final = 200_000
"""Maximum number of requests.

An answer needs 82 replays, which take about two minutes of CPU for this many requests
(docs/benchmarks.md#replay).
"""
MOST_LEFT_OUT: Final = 0.05
"""Maximum share of requests without an engine's account.

These requests were part of steps, too, which the replay would lack.
"""
UNLIMITED: Final = 2**31 - 1

REQUEST_COLUMNS: Final = (
    *("received_unix_ns", "replica", "engine", "tenant", "source", "outcome", "lora", "streamed"),
    *("frontend_s", "handoff_s", "queue_s", "prefill_s", "decode_s", "delivery_s"),
    *("ttft_s", "tpot_s", "itl_max_s", "e2e_s"),
    *("prompt_tokens", "cached_tokens", "output_tokens", "running_at_arrival"),
)

_WORK: Final = (
    *("steps_total", "scheduled_prefill_tokens_total", "prefill_attention_total"),
    *("context_tokens_total", "decodes_total"),
)
_COEFFICIENTS: Final = (
    *("step_model_base_s", "step_model_per_prefill_token_s"),
    *("step_model_per_prefill_attention_s", "step_model_per_context_token_s"),
    "step_model_per_decode_s",
)
assert len(_WORK) == len(_COEFFICIENTS) == COEFFICIENTS
_NS: Final = 10**9

UNMODELLED: Final[Mapping[str, str]] = {
    "kv_transfer.kv_connector": "KV transfer",
    "lora.max_loras": "LoRA adapters",
}
"""Arguments that the replay does not model, each with the name of its feature."""


class NotReplayableError(ValueError):
    """The window cannot be replayed; the message gives the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEngine:
    """One engine: its model, what happened to it, and the requests that it served."""

    replica: str
    engine: int
    model: ServerModel
    conditions: Conditions
    rows: IntArray
    """(n,) its requests, as rows of `Recorded.requests`."""
    arrivals: Arrivals
    start: EngineStart
    """What it reported at its start."""
    waiting: Sequence[int] = ()
    """The tenants whose clients wait for each answer before the next request."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The traffic of a window: all requests for which an engine sent an account."""

    window: Window
    requests: pa.Table
    """The requests of all engines, in order of receipt."""
    counted: BoolArray
    """(n,) whether a request was received in the window."""
    engines: Sequence[RecordedEngine]
    tenants: Sequence[str]
    lead_s: float
    """Seconds from the first request to the start of the window."""
    left_out: Mapping[str, int]
    """Maps a reason for not replaying requests to the number of these requests."""
    simulated: bool

    @property
    def replicas(self) -> int:
        """Number of servers; each has one engine or several."""
        return len({each.replica for each in self.engines})

    def column(self, name: str) -> FloatArray:
        """(n,) a column of the requests; NaN if unknown."""
        return _floats(self.requests[name])


def read_recorded(engine: Engine, window: Window, beside: Sequence[str] = ()) -> Recorded:
    """Read a window and fit its engines.

    Args:
        engine: from `open_database`.
        window: the range that is counted.
        beside: further columns of the requests.

    Raises:
        NotReplayableError: there are too few requests, or a feature that the replay does not model.
    """
    lead = Window(max(0, window.from_unix_ns - LEAD_S * _NS), window.to_unix_ns)
    if (number := request_count(engine, lead)) > MOST_REQUESTS:
        raise NotReplayableError(
            f"{number:,} requests; allowed: at most {MOST_REQUESTS:,}. Ask about a shorter range."
        )
    starts = [
        *in_force(engine, lead.from_unix_ns),
        *starts_between(engine, lead.from_unix_ns, lead.to_unix_ns),
    ]
    columns = list(dict.fromkeys([*REQUEST_COLUMNS, *beside]))
    return recorded_of(
        request_columns(engine, lead, columns), sample_table(engine, lead), starts, window
    )


def recorded_of(
    requests: pa.Table, samples: pa.Table, starts: Sequence[EngineStart], window: Window
) -> Recorded:
    """Fit the engines of a window to its tables.

    Args:
        requests: with `REQUEST_COLUMNS`, in order of receipt, from `LEAD_S` before the window on.
        samples: of the engines, over the same time.
        starts: of the engines; the latest of each is used.
        window: the range that is counted.

    Raises:
        NotReplayableError: there are too few requests, or a feature that the replay does not model.
    """
    received_ns = requests["received_unix_ns"].to_numpy()
    seen = np.isfinite(_floats(requests["queue_s"])) & np.isfinite(_floats(requests["decode_s"]))
    produced = _floats(requests["output_tokens"]) >= 1
    whole = seen & produced & (_floats(requests["prompt_tokens"]) >= 1)
    in_window = received_ns >= window.from_unix_ns
    left_out = Counter[str]()
    if missing := int((~whole & in_window).sum()):
        left_out["without tokens or without an engine's account"] = missing
    kept = requests.filter(pa.array(whole))
    counted = kept["received_unix_ns"].to_numpy() >= window.from_unix_ns
    if counted.sum() < LEAST_REQUESTS:
        raise NotReplayableError(
            f"{int(counted.sum())} requests with an engine's account; needed: at least"
            f" {LEAST_REQUESTS}. Ask about a longer range."
        )
    accepted = pc.fill_null(pc.not_equal(requests["outcome"], "rejected"), True)
    unseen = (~whole & in_window & accepted.to_numpy(zero_copy_only=False)).sum()
    if unseen > MOST_LEFT_OUT * (unseen + counted.sum()):
        raise NotReplayableError(
            f"{int(unseen)} of {int(unseen + counted.sum())} requests have no engine's account;"
            f" allowed: at most {MOST_LEFT_OUT:.0%}. Install the plugin on every server."
        )
    tenants, tenant = _codes(kept["tenant"])
    by_engine = {(each.replica, each.engine): each for each in starts}
    told = samples_of(samples)
    names = np.asarray(kept["replica"].to_pylist(), dtype=object)
    numbers = np.nan_to_num(_floats(kept["engine"])).astype(np.int64)
    origin_ns = int(received_ns[0])
    engines = []
    for name, number in sorted({(str(a), int(b)) for a, b in zip(names, numbers, strict=True)}):
        rows = np.flatnonzero((names == name) & (numbers == number))
        start = by_engine.get((name, number))
        if start is None:
            raise NotReplayableError(f"replica {name}: its engine's arguments are not reported")
        engines.append(
            _recorded_engine(kept.take(pa.array(rows)), told, start, rows, tenant, origin_ns)
        )
    simulated = bool(pc.any(pc.equal(kept["source"], "simulator")).as_py())
    lead_s = max(window.from_unix_ns - origin_ns, 0) / _NS
    return Recorded(window, kept, counted, engines, tenants, lead_s, left_out, simulated)


def _recorded_engine(
    requests: pa.Table,
    samples: Samples,
    start: EngineStart,
    rows: IntArray,
    tenant: IntArray,
    origin_ns: int,
) -> RecordedEngine:
    where = f"replica {start.replica}" + (f", engine {start.engine}" if start.engine else "")
    mine = samples.replica.is_value(start.replica) & (samples.number("engine") == start.engine)
    try:
        steps = fit_steps(_step_reports(samples, mine, origin_ns))
    except FitError as error:
        raise NotReplayableError(f"{where}: {error}") from None
    config = engine_config(read(start.arguments), start.version, where)

    def column(name: str) -> FloatArray:
        return _floats(requests[name])

    frontend_s = column("frontend_s") - np.nan_to_num(column("handoff_s"))
    first_token_s = column("frontend_s") + column("queue_s") + column("prefill_s")
    streamed = pc.fill_null(requests["streamed"], True).to_numpy(zero_copy_only=False)
    front_end = fit_front_end(
        EdgeReports(
            frontend_s=frontend_s,
            first_byte_s=np.where(streamed, column("ttft_s") - first_token_s, np.nan),
            delivery_s=column("delivery_s"),
            prompt_tokens=column("prompt_tokens"),
            running=np.nan_to_num(column("running_at_arrival")),
        )
    )
    engine = replace(config, step=steps.model, step_noise_quantiles=steps.noise)
    prompt_tokens = column("prompt_tokens").astype(np.int64)
    cached = np.nan_to_num(column("cached_tokens")).astype(np.int64)
    received_s = (requests["received_unix_ns"].to_numpy() - origin_ns) / _NS
    loops = closed_loops(received_s, received_s + np.nan_to_num(column("e2e_s")), tenant[rows])
    arrivals = Arrivals(
        received_s=received_s,
        after=loops.after if loops.tenants else None,
        think_s=loops.think_s if loops.tenants else None,
        prompt_tokens=prompt_tokens,
        output_tokens=column("output_tokens").astype(np.int64),
        cached_tokens=np.minimum(cached, prompt_tokens - 1),
        frontend_s=np.maximum(frontend_s, 0.0),
        streamed=streamed,
        tenant=tenant[rows],
        acceptance=_acceptance(samples, mine, config.num_speculative_tokens, len(rows)),
    )
    return RecordedEngine(
        start.replica,
        start.engine,
        ServerModel(engine=engine, front_end=front_end),
        Conditions(stalls=(_stalls(samples, mine, origin_ns),), paces=(steps.paces,)),
        rows,
        arrivals,
        start,
        loops.tenants,
    )


def engine_config(
    arguments: Mapping[str, Any], version: str | None = None, where: str = "the engine"
) -> EngineConfig:
    """Return a configuration with the arguments that an engine reported at its start.

    Raises:
        NotReplayableError: an argument is missing, or belongs to a feature that is not modelled.
    """
    for name, feature in UNMODELLED.items():
        if arguments.get(name):
            raise NotReplayableError(f"{where} uses {feature}, which the replay does not model")
    if int(arguments.get("parallel.pipeline_parallel_size", 1)) > 1:
        raise NotReplayableError(
            f"{where} uses pipeline parallelism, which the replay does not model"
        )
    needed = ("scheduler.max_num_seqs", "scheduler.max_num_batched_tokens", "cache.num_gpu_blocks")
    if missing := [name for name in needed if name not in arguments]:
        raise NotReplayableError(f"{where} does not report {', '.join(missing)}")

    def number(name: str, otherwise: int) -> int:
        return int(arguments.get(name) or otherwise)

    block_size = number("cache.block_size", 16)
    longest = number("model.max_model_len", 2**20)
    blocks = number("cache.num_gpu_blocks", 1)
    return EngineConfig(
        max_num_batched_tokens=number("scheduler.max_num_batched_tokens", 1),
        max_num_seqs=number("scheduler.max_num_seqs", 1),
        max_num_queued_reqs=number("scheduler.max_num_queued_reqs", UNLIMITED),
        max_model_len=min(longest, blocks * block_size),
        num_gpu_blocks=blocks,
        block_size=block_size,
        enable_prefix_caching=bool(arguments.get("cache.enable_prefix_caching", True)),
        policy="priority" if arguments.get("scheduler.policy") == "priority" else "fcfs",
        long_prefill_token_threshold=number("scheduler.long_prefill_token_threshold", 0),
        num_speculative_tokens=number("speculative.num_speculative_tokens", 0),
        scheduler_reserve_full_isl=reserves_prompt(version),
    )


def reserves_prompt(version: str | None) -> bool:
    """Return whether this version of vLLM reserves the blocks of a whole prompt by default."""
    parts = (version or "").split(".")
    return len(parts) > 1 and parts[1].isdigit() and (int(parts[0]), int(parts[1])) >= (0, 32)


def _acceptance(
    samples: Samples, mine: BoolArray, drafted: int, requests: int
) -> FloatArray | None:
    """Return the probability that a drafted token is accepted, for each request.

    Tokens after a rejected one are rejected too: with probability p for each of k tokens, the
    accepted share is (p + p² + … + pᵏ) / k.
    """
    if not drafted:
        return None
    share = samples.ratio("accepted_tokens_total", "draft_tokens_total", mine) or 0.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        accepted = sum(middle**place for place in range(1, drafted + 1)) / drafted
        low, high = (middle, high) if accepted < share else (low, middle)
    return np.full(requests, low)


def _stalls(samples: Samples, mine: BoolArray, origin_ns: int) -> tuple[Stall, ...]:
    return stalls_of(
        (samples.at_unix_ns[mine] - origin_ns) / _NS,
        samples.rises("stall_s_total")[mine],
        samples.number("longest_step_s")[mine],
    )


def _step_reports(samples: Samples, mine: BoolArray, origin_ns: int) -> StepReports:
    at_s = (samples.at_unix_ns[mine] - origin_ns) / _NS
    if not at_s.size:
        raise FitError("the engine sent no samples")
    place = np.floor(at_s / STRETCH_S).astype(np.int64)
    first = int(place.min())
    place -= first
    stretches = int(place.max()) + 1

    def risen(name: str) -> FloatArray:
        rise = samples.rises(name)[mine]
        known = np.isfinite(rise)
        total = np.bincount(place[known], rise[known], minlength=stretches).astype(np.float64)
        total[np.bincount(place[known], minlength=stretches) == 0] = np.nan
        return total

    def latest(name: str) -> FloatArray:
        values = samples.number(name)[mine]
        known = np.flatnonzero(np.isfinite(values))
        found = np.full(stretches, np.nan)
        found[place[known]] = values[known]
        return found

    return StepReports(
        starts_s=(first + np.arange(stretches, dtype=np.float64)) * STRETCH_S,
        work=np.stack([risen(name) for name in _WORK], axis=1),
        busy_s=risen("busy_s_total"),
        stall_s=risen("stall_s_total"),
        coefficients=np.stack([latest(name) for name in _COEFFICIENTS], axis=1),
        error_ratio=latest("step_model_error_ratio"),
    )


def _floats(column: pa.ChunkedArray) -> FloatArray:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _codes(column: pa.ChunkedArray) -> tuple[list[str], IntArray]:
    """Return the distinct values, and the index of each row's value; unknown is empty text."""
    values = np.asarray([value or "" for value in column.to_pylist()], dtype=object)
    names, codes = np.unique(values, return_inverse=True)
    return [str(name) for name in names], codes.reshape(-1).astype(np.int64)
