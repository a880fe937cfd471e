"""Read the traffic of a window, and fit a model of each engine for a replay."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from analysis.access.evidence import require_all_tenants
from analysis.counted_requests import CountedAs, counted_as
from analysis.present_arguments import EngineKey, latest_change, runs_by_engine
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
    StepFit,
    StepReports,
    fit_front_end,
    fit_steps,
    stalls_of,
)
from replay.server_model import ServerModel
from replay.step_model import without_drafts
from store.columns.request_columns import request_columns
from store.queries import request_count, sample_table
from store.replicas.engine_starts import in_force, starts_between
from telemetry.printable import printable
from telemetry.starts import EngineStart, read
from telemetry.window import Window

LEAD_S: Final = 60
"""Requests from this many seconds before the window are replayed but not counted."""
PACE_INTERVAL_S: Final = 5
"""Length in seconds of the intervals for which an engine's speed is computed."""
MIN_REQUESTS: Final = 100
"""Minimum number of requests. The 95 % interval of a P50 then extends from about P40 to P60."""
MAX_REQUESTS: Final = 200_000
"""Maximum number of requests. A prediction needs 82 replays. For this many requests, they take
about two minutes of CPU time (docs/benchmarks.md#replay)."""
MAX_LEFT_OUT: Final = 0.05
"""Maximum share of the requests that have no phases from the plugin, and maximum share of the
requests whose engine cannot be replayed."""
MAX_NAMED: Final = 3
"""Maximum number of engines that an error message names."""
UNLIMITED: Final = 2**31 - 1

REQUEST_COLUMNS: Final = (
    *("received_unix_ns", "replica", "engine", "tenant", "source", "outcome", "lora", "streamed"),
    *("frontend_s", "handoff_s", "queue_s", "prefill_s", "decode_s", "delivery_s"),
    *("queue_held_s", "kv_load_s", "grammar_s", "adapter_wait_s", "decode_own_s"),
    *("ttft_s", "tpot_s", "itl_max_s", "e2e_s"),
    *("prompt_tokens", "cached_tokens", "external_cached_tokens", "prefix_ladder"),
    *("output_tokens", "running_at_arrival"),
)

_WORK: Final = (
    *("steps_total", "scheduled_prefill_tokens_total", "prefill_attention_total"),
    *("context_tokens_total", "decodes_total", "prefill_steps_total"),
)
_COEFFICIENTS: Final = (
    *("step_model_base_s", "step_model_per_prefill_token_s"),
    *("step_model_per_prefill_attention_s", "step_model_per_context_token_s"),
    *("step_model_per_decode_s", "step_model_per_prefill_step_s"),
)
assert len(_WORK) == len(_COEFFICIENTS) == COEFFICIENTS
_NS: Final = 10**9


class NotReplayableError(ValueError):
    """The window cannot be replayed."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEngine:
    """One engine of a recorded window, or the part of the window in which it had the same
    arguments."""

    replica: str
    engine: int
    model: ServerModel
    conditions: Conditions
    rows: IntArray
    """(n,) the row of each request of this engine in `Recorded.requests`."""
    arrivals: Arrivals
    start: EngineStart
    waiting: Sequence[int] = ()
    """Indices in `Recorded.tenants` of the tenants whose clients wait for each answer of this
    engine before they send the next request. In the replay, these clients also wait."""
    from_s: float = -np.inf
    """Start of the part, on the time axis of `Arrivals.received_s`. It is −∞ for the first part."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The traffic of a window: all requests whose phases the plugin reported."""

    window: Window
    requests: pa.Table
    """The requests of all engines, in order of receipt."""
    counted: BoolArray
    """(n,) whether a request was received in the window."""
    engines: Sequence[RecordedEngine]
    tenants: Sequence[str]
    adapters: Sequence[str]
    """The names of the LoRA adapters. `Arrivals.adapter` contains their indices."""
    lead_s: float
    """Seconds from the first request to the start of the window."""
    left_out: Mapping[str, int]
    """For each reason, the number of requests that cannot be replayed."""
    simulated: bool
    waiting: Sequence[int] = ()
    """Indices in `tenants` of the tenants whose clients wait for each answer, over all engines.
    `RecordedEngine.waiting` contains a tenant only if each of its clients sends all requests to one
    engine."""
    prefill_apart: bool = False
    """Whether some servers do only prefills. The rows of a joined request are then replayed as
    separate requests of their servers."""

    @property
    def replicas(self) -> int:
        """Number of servers. A server may have several engines."""
        return len({each.replica for each in self.engines})

    @property
    def streamed(self) -> BoolArray:
        """(n,) whether a response was streamed. True if unknown."""
        return _streamed(self.requests)

    def column(self, name: str) -> FloatArray:
        """A column of the requests: (n,), NaN if unknown."""
        return _floats(self.requests[name])

    def latency(self, name: str) -> FloatArray:
        """A latency of the requests: (n,), NaN if it is unknown or undefined.

        TTFT is defined only for streamed responses. The first byte of other responses is sent at
        the end."""
        found = self.column(name)
        return np.where(self.streamed, found, np.nan) if name == "ttft_s" else found


def read_recorded(
    engine: Engine,
    window: Window,
    extra_columns: Sequence[str] = (),
    replica: str | None = None,
    *,
    present_only: bool = False,
    in_parts: bool = False,
) -> Recorded:
    """Read the traffic of a window, and fit a model of each engine.

    Args:
        replica, present_only, in_parts: see `recorded_of`.

    Raises:
        NotReplayableError: there are too few or too many requests, or an engine uses a feature that
            the replay does not model.
    """
    lead = Window(max(0, window.from_unix_ns - LEAD_S * _NS), window.to_unix_ns)
    require_all_tenants(engine, "a replay")
    if (number := request_count(engine, lead)) > MAX_REQUESTS:
        raise NotReplayableError(
            f"{number:,} requests; allowed: at most {MAX_REQUESTS:,}. Choose a shorter range."
        )
    starts = [
        *in_force(engine, lead.from_unix_ns),
        *starts_between(engine, lead.from_unix_ns, lead.to_unix_ns),
    ]
    columns = list(dict.fromkeys([*REQUEST_COLUMNS, *extra_columns]))
    recorded = recorded_of(
        request_columns(engine, lead, columns),
        sample_table(engine, lead),
        starts,
        window,
        replica,
        present_only=present_only,
        in_parts=in_parts,
    )
    apart = counted_as(engine, window) is not CountedAs.REQUESTS
    return replace(recorded, prefill_apart=apart)


def recorded_of(
    requests: pa.Table,
    samples: pa.Table,
    starts: Sequence[EngineStart],
    window: Window,
    replica: str | None = None,
    *,
    present_only: bool = False,
    in_parts: bool = False,
) -> Recorded:
    """Fit a model of each engine to the tables of a window. Engines that cannot be replayed are
    left out.

    Args:
        requests: the requests from `LEAD_S` before the window to its end, with `REQUEST_COLUMNS`,
            in order of receipt.
        samples: the samples of the engines from the same time range.
        starts: the starts of the engines. The latest start of each engine is used.
        replica: the only replica whose requests the question needs, or None for all. Any share of
            the other replicas' requests may be left out.
        present_only: whether the window begins `LEAD_S` after the latest change of the engines'
            arguments. Earlier requests are then left out.
        in_parts: whether to fit a model to each part of the window in which an engine had the same
            arguments. By default, each engine has one model with its latest arguments.

    Raises:
        NotReplayableError: there are too few or too many requests, or too many requests cannot be
            replayed.
    """
    left_out = Counter[str]()
    too_few = "Choose a longer range."
    if present_only:
        present = _since_change(requests, samples, starts, window, replica)
        if present is not None:
            requests, samples, window, why, number = present
            left_out[why] = number
            too_few = f"{number:,} requests are left out: {why}. Ask again later."
    received_ns = requests["received_unix_ns"].to_numpy()
    seen = np.isfinite(_floats(requests["queue_s"])) & np.isfinite(_floats(requests["decode_s"]))
    produced = _floats(requests["output_tokens"]) >= 1
    whole = seen & produced & (_floats(requests["prompt_tokens"]) >= 1)
    in_window = received_ns >= window.from_unix_ns
    if missing := int((~whole & in_window).sum()):
        left_out["without tokens, or without phases from the plugin"] = missing
    kept = requests.filter(pa.array(whole))
    counted = kept["received_unix_ns"].to_numpy() >= window.from_unix_ns
    if counted.sum() < MIN_REQUESTS:
        raise NotReplayableError(
            f"{int(counted.sum())} requests with phases from the plugin; needed: at least"
            f" {MIN_REQUESTS}. {too_few}"
        )
    accepted = pc.fill_null(pc.not_equal(requests["outcome"], "rejected"), True)
    needed = np.ones(requests.num_rows, dtype=bool)
    if replica is not None:
        needed = np.array([name == replica for name in requests["replica"].to_pylist()], dtype=bool)
    unseen = (~whole & in_window & needed & accepted.to_numpy(zero_copy_only=False)).sum()
    number = int((whole & in_window & needed).sum())
    if unseen > MAX_LEFT_OUT * (unseen + number):
        raise NotReplayableError(
            f"{int(unseen)} of {int(unseen + number)} requests have no phases from the"
            f" plugin; allowed: at most {MAX_LEFT_OUT:.0%}. Install the plugin on every server."
        )
    recorded = samples_of(samples)
    origin_ns = int(received_ns[0])
    parts = _parts(kept, starts, in_parts)
    fits: dict[_PartKey, _Fit] = {}
    unfit: list[_Unfit] = []
    for key, part in parts.items():
        try:
            fits[key] = _fit(recorded, key, part, origin_ns)
        except NotReplayableError as error:
            unfit.append(_Unfit(str(error), part.rows))
    if unfit:
        left_out.update(_left_out(unfit, counted, counted & needed[whole], bool(fits)))
        replayable = np.ones(kept.num_rows, dtype=bool)
        replayable[np.concatenate([each.rows for each in unfit])] = False
        kept, counted = kept.filter(pa.array(replayable)), counted[replayable]
        parts = _parts(kept, starts, in_parts)
    tenants, tenant = _codes(kept["tenant"])
    adapters, adapter = _codes(kept["lora"])
    adapter[np.array(adapters)[adapter] == ""] = -1
    engines = [
        _recorded_engine(
            kept.take(pa.array(part.rows)), recorded, fits[key], part, tenant, adapter, origin_ns
        )
        for key, part in parts.items()
    ]
    simulated = bool(pc.any(pc.equal(kept["source"], "simulator")).as_py())
    lead_s = max(window.from_unix_ns - origin_ns, 0) / _NS
    received_s = (kept["received_unix_ns"].to_numpy() - origin_ns) / _NS
    ended_s = received_s + np.nan_to_num(_floats(kept["e2e_s"]))
    waiting = closed_loops(received_s, ended_s, tenant).tenants
    return Recorded(
        *(window, kept, counted, engines, tenants, adapters, lead_s, left_out, simulated, waiting)
    )


class _SinceChange(NamedTuple):
    """The part of a recording since the latest change of the engines' arguments."""

    requests: pa.Table
    samples: pa.Table
    window: Window
    why: str
    """Which requests of the range are left out, and why."""
    left_out: int


def _since_change(
    requests: pa.Table,
    samples: pa.Table,
    starts: Sequence[EngineStart],
    window: Window,
    replica: str | None,
) -> _SinceChange | None:
    """The part of the window in which all engines have their present arguments. Return None if it
    is the whole window.

    The part begins `LEAD_S` after the change. Requests received between the change and the start of
    the part are also replayed, but not counted.
    """
    mine = [each for each in starts if replica in (None, each.replica)]
    change = latest_change(mine, _last_sampled(samples))
    if change is None:
        return None
    from_ns = min(change.at_unix_ns + LEAD_S * _NS, window.to_unix_ns)
    if from_ns <= window.from_unix_ns:
        return None
    received_ns = requests["received_unix_ns"].to_numpy()
    number = int(((received_ns >= window.from_unix_ns) & (received_ns < from_ns)).sum())
    sampled_ns = samples["at_unix_ns"].to_numpy()
    return _SinceChange(
        requests.filter(pa.array(received_ns >= change.at_unix_ns)),
        samples.filter(pa.array(sampled_ns >= change.at_unix_ns)),
        Window(from_ns, window.to_unix_ns),
        f"received until {LEAD_S} s after {change.what}",
        number,
    )


def _last_sampled(samples: pa.Table) -> dict[EngineKey, int]:
    """The time of each engine's latest sample."""
    latest = samples.group_by(["replica", "engine"]).aggregate([("at_unix_ns", "max")])
    return {
        (str(each["replica"]), each["engine"] or 0): each["at_unix_ns_max"]
        for each in latest.to_pylist()
    }


def _rows_by_engine(requests: pa.Table) -> dict[tuple[str, int], IntArray]:
    numbers = np.nan_to_num(_floats(requests["engine"])).astype(np.int64).tolist()
    found: dict[tuple[str, int], list[int]] = {}
    for row, key in enumerate(zip(requests["replica"].to_pylist(), numbers, strict=True)):
        found.setdefault((str(key[0]), key[1]), []).append(row)
    return {key: np.array(found[key]) for key in sorted(found)}


class _PartKey(NamedTuple):
    replica: str
    engine: int
    from_unix_ns: int


class _Part(NamedTuple):
    """The part of a window in which an engine had the same arguments."""

    start: EngineStart | None
    """The latest engine start in the part, or None if no start was reported."""
    to_unix_ns: int
    rows: IntArray


def _parts(
    requests: pa.Table, starts: Sequence[EngineStart], in_parts: bool
) -> dict[_PartKey, _Part]:
    """The parts of each engine that have requests, in order of time. Without `in_parts`, each
    engine has one part."""
    received_ns = requests["received_unix_ns"].to_numpy()
    runs = runs_by_engine(starts)
    found = {}
    for key, rows in _rows_by_engine(requests).items():
        same = runs.get(key, [[]])
        if not in_parts:
            same = same[-1:]
        begins = [0, *(each[0].at_unix_ns for each in same[1:])]
        for of_part, from_ns, to_ns in zip(same, begins, [*begins[1:], 2**63 - 1], strict=True):
            at_ns = received_ns[rows]
            own = rows[(at_ns >= from_ns) & (at_ns < to_ns)]
            if own.size:
                newest = of_part[-1] if of_part else None
                found[_PartKey(*key, from_ns)] = _Part(newest, to_ns, own)
    return found


class _Unfit(NamedTuple):
    reason: str
    """The reason, with the name of the engine. Names are shortened, so the texts of two engines may
    be equal."""
    rows: IntArray


def _left_out(
    unfit: Sequence[_Unfit], counted: BoolArray, needed: BoolArray, some_fit: bool
) -> dict[str, int]:
    """For each reason, the number of requests of engines that cannot be replayed.

    Args:
        unfit: the engines that cannot be replayed, at least one.
        counted, needed: (n,) whether a request was received in the window, and whether the question
            needs it.
        some_fit: whether another engine can be replayed.

    Raises:
        NotReplayableError: the question needs too many of these requests.
    """
    lacking, number = sum(int(needed[each.rows].sum()) for each in unfit), int(needed.sum())
    if not some_fit or lacking > MAX_LEFT_OUT * number:
        worst = max(unfit, key=lambda each: int(needed[each.rows].sum()))
        raise NotReplayableError(
            f"{worst.reason}. {lacking:,} of {number:,} requests cannot be replayed; allowed: at"
            f" most {MAX_LEFT_OUT:.0%}"
        )
    numbers = [(int(counted[each.rows].sum()), each.reason) for each in unfit]
    largest = sorted((each for each in numbers if each[0]), key=lambda each: -each[0])
    found: Counter[str] = Counter()
    for lost, reason in largest[:MAX_NAMED]:
        found[reason] += lost
    if more := largest[MAX_NAMED:]:
        found[f"{len(more):,} more engines, which cannot be replayed"] = sum(
            lost for lost, _ in more
        )
    return found


class _Fit(NamedTuple):
    start: EngineStart
    samples: BoolArray
    steps: StepFit
    config: EngineConfig
    from_unix_ns: int


def _fit(samples: Samples, key: _PartKey, part: _Part, origin_ns: int) -> _Fit:
    (replica, engine, from_ns), start = key, part.start
    where = f"replica {printable(replica, 63)}"
    where += f", engine {engine}" if engine else ""
    if start is None:
        raise NotReplayableError(f"{where}: its engine's arguments were not reported")
    of_engine = samples.replica.is_value(replica) & (samples.number("engine") == engine)
    at_ns = samples.at_unix_ns
    mine = of_engine & (at_ns >= from_ns) & (at_ns < part.to_unix_ns)
    try:
        steps = fit_steps(_step_reports(samples, mine, origin_ns))
    except FitError:
        # If a part has too few steps, the step times of the engine's other parts are used too.
        mine = of_engine
        try:
            steps = fit_steps(_step_reports(samples, mine, origin_ns))
        except FitError as error:
            raise NotReplayableError(f"{where}: {error}") from None
    try:
        config = engine_config(read(start.arguments), start.version, where)
    except NotReplayableError:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        why = printable(str(error), 120)
        raise NotReplayableError(f"{where} reports an argument without meaning: {why}") from None
    return _Fit(start, mine, steps, config, from_ns)


def _recorded_engine(
    requests: pa.Table,
    samples: Samples,
    fit: _Fit,
    part: _Part,
    tenant: IntArray,
    adapter: IntArray,
    origin_ns: int,
) -> RecordedEngine:
    start, mine, steps, config, from_ns = fit
    rows = part.rows

    def column(name: str) -> FloatArray:
        return _floats(requests[name])

    frontend_s = column("frontend_s") - np.nan_to_num(column("handoff_s"))
    received_s = (requests["received_unix_ns"].to_numpy() - origin_ns) / _NS
    # If the front end is not in Python, rows begin with the queue phase.
    first_token_s = np.nan_to_num(column("frontend_s")) + column("queue_s") + column("prefill_s")
    streamed = _streamed(requests)
    front_end = fit_front_end(
        EdgeReports(
            received_s=received_s,
            first_token_s=first_token_s,
            last_token_s=first_token_s + column("decode_s"),
            frontend_s=frontend_s,
            first_byte_s=np.where(streamed, column("ttft_s") - first_token_s, np.nan),
            delivery_s=column("delivery_s"),
            prompt_tokens=column("prompt_tokens"),
            running=np.nan_to_num(column("running_at_arrival")),
        )
    )
    step = without_drafts(steps.model, config.num_speculative_tokens)
    engine = replace(config, step=step, step_noise_quantiles=steps.noise)
    prompt_tokens = column("prompt_tokens").astype(np.int64)
    cached = np.nan_to_num(column("cached_tokens")).astype(np.int64)
    # The replay computes the wait for an adapter slot.
    adapter_s = np.nan_to_num(column("adapter_wait_s")) if config.max_loras else 0.0
    loops = closed_loops(received_s, received_s + np.nan_to_num(column("e2e_s")), tenant[rows])
    arrivals = Arrivals(
        received_s=received_s,
        after=loops.after if loops.tenants else None,
        think_s=loops.think_s if loops.tenants else None,
        prompt_tokens=prompt_tokens,
        output_tokens=column("output_tokens").astype(np.int64),
        cached_tokens=np.minimum(cached, prompt_tokens - 1),
        frontend_s=np.maximum(np.nan_to_num(frontend_s), 0.0),
        held_s=np.maximum(np.nan_to_num(column("queue_held_s")) - adapter_s, 0.0),
        adapter=adapter[rows] if config.max_loras else None,
        streamed=streamed,
        tenant=tenant[rows],
        acceptance=_acceptance(samples, mine, engine, column),
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
        (from_ns - origin_ns) / _NS if from_ns else -np.inf,
    )


def engine_config(
    arguments: Mapping[str, Any], version: str | None = None, where: str = "the engine"
) -> EngineConfig:
    """The configuration of an engine for the replay, from its reported arguments.

    Raises:
        NotReplayableError: an argument is missing, or belongs to a feature that the replay does not
            model.
    """
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
    max_loras = number("lora.max_loras", 0)
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
        max_loras=max_loras,
        max_cpu_loras=max(max_loras, number("lora.max_cpu_loras", 0)),
        num_speculative_tokens=number("speculative.num_speculative_tokens", 0),
        async_scheduling=bool(arguments.get("scheduler.async_scheduling")),
        scheduler_reserve_full_isl=reserves_prompt(version),
    )


def reserves_prompt(version: str | None) -> bool:
    """Return whether this version of vLLM reserves the blocks of a whole prompt by default."""
    parts = (version or "").removeprefix("v").split(".")[:2]
    return all(map(str.isdecimal, parts)) and tuple(map(int, parts)) >= (0, 32)


def _acceptance(
    samples: Samples, mine: BoolArray, model: EngineConfig, column: Callable[[str], FloatArray]
) -> FloatArray | None:
    """The probability that a drafted token is accepted, for each request.

    The number of decode steps is estimated. It is the request's own decode time, divided by the
    time of a step with only this request. The number of tokens per step is then scaled to the mean
    in the samples. After a rejected token, all later drafted tokens are rejected. If each of k
    drafted tokens is accepted with probability p, a step has 1 + p + p² + … + pᵏ tokens on average.
    """
    drafted = model.num_speculative_tokens
    if not drafted:
        return None
    mean = 1.0 + drafted * (samples.ratio("accepted_tokens_total", "draft_tokens_total", mine) or 0)
    decoded, own_s = column("output_tokens") - 1, column("decode_own_s")
    context = column("prompt_tokens") + decoded / 2
    each_s = model.step.sequence_s * (1 + drafted) + model.step.prefill_token_s * drafted
    step_s = model.step.base_s + each_s + model.step.context_token_s * context
    steps = own_s / step_s
    tokens = np.full(len(decoded), mean)
    known = (decoded > 0) & (steps > 0)
    if known.any():
        tokens[known] = decoded[known] / steps[known]
        tokens[known] *= mean * steps[known].sum() / decoded[known].sum()
    chances = np.linspace(0.0, 1.0, 1_001)
    made = (chances[:, None] ** np.arange(drafted + 1)).sum(axis=1)
    return np.asarray(np.interp(tokens, made, chances))


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
    place = np.floor(at_s / PACE_INTERVAL_S).astype(np.int64)
    first = int(place.min())
    place -= first
    intervals = int(place.max()) + 1

    def risen(name: str) -> FloatArray:
        rise = samples.rises(name)[mine]
        known = np.isfinite(rise)
        total = np.bincount(place[known], rise[known], minlength=intervals).astype(np.float64)
        total[np.bincount(place[known], minlength=intervals) == 0] = np.nan
        return total

    def latest(name: str) -> FloatArray:
        values = samples.number(name)[mine]
        known = np.flatnonzero(np.isfinite(values))
        found = np.full(intervals, np.nan)
        found[place[known]] = values[known]
        return found

    work = np.stack([risen(name) for name in _WORK], axis=1)
    coefficients = np.stack([latest(name) for name in _COEFFICIENTS], axis=1)
    for values in (work, coefficients):
        without = np.isnan(values[:, -1]) & np.isfinite(values[:, :-1]).all(axis=1)
        values[without, -1] = 0.0
    return StepReports(
        starts_s=(first + np.arange(intervals, dtype=np.float64)) * PACE_INTERVAL_S,
        work=work,
        busy_s=risen("busy_s_total"),
        stall_s=risen("stall_s_total"),
        coefficients=coefficients,
        error_ratio=latest("step_model_error_ratio"),
    )


def _floats(column: pa.ChunkedArray) -> FloatArray:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _streamed(requests: pa.Table) -> BoolArray:
    known = pc.fill_null(requests["streamed"], True)
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=bool)


def _codes(column: pa.ChunkedArray) -> tuple[list[str], IntArray]:
    """The distinct values, and for each row the index of its value. An unknown value is ""."""
    values = np.asarray([value or "" for value in column.to_pylist()], dtype=object)
    names, codes = np.unique(values, return_inverse=True)
    return [str(name) for name in names], codes.reshape(-1).astype(np.int64)
