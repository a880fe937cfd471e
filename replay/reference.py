"""Replay arrivals step by step in plain Python: the reference for the compiled loop.

Pure. `replay.loop` computes the same results about 30 times faster. Tests compare the results.
"""

import heapq
from dataclasses import dataclass
from math import isnan

import numpy as np

from replay.arrivals import Arrivals
from replay.conditions import Conditions
from replay.engine import ReplayEngine
from replay.front_end import ReplayFrontEnd
from replay.job import Job
from replay.outcome import EngineOutcome, ReplayOutcome
from replay.routing import least_outstanding, prefix_aware
from replay.server_model import ServerModel, engine_seed

_NEVER = float("inf")
_NO_CONDITIONS = Conditions()


def replay(
    model: ServerModel,
    arrivals: Arrivals,
    seed: str = "",
    conditions: Conditions = _NO_CONDITIONS,
) -> ReplayOutcome:
    """Replay arrivals on a model. See `replay.loop.replay`."""
    return _Replay(model, arrivals, seed, conditions).run()


@dataclass(slots=True)
class _Server:
    engine: ReplayEngine
    front_end: ReplayFrontEnd


class _Replay:
    def __init__(
        self, model: ServerModel, arrivals: Arrivals, seed: str, conditions: Conditions
    ) -> None:
        self._model = model
        self._arrivals = arrivals
        self._servers = [
            _Server(
                ReplayEngine(model.engine, engine_seed(seed, number), conditions.stalls_of(number)),
                ReplayFrontEnd(model.front_end.pace),
            )
            for number in range(model.replicas)
        ]
        self._paces = sorted(
            (pace.from_s, number, pace.factor)
            for number in range(model.replicas)
            for pace in conditions.paces_of(number)
        )
        for server in self._servers:
            # A recording contains the loading of adapters as stalls.
            server.engine.loras.loads = False
        self._turn = 0
        n = len(arrivals)
        self._jobs: list[Job | None] = [None] * n
        self._received_s = arrivals.received_s.astype(float)
        self._held_s = np.zeros(n) if arrivals.held_s is None else arrivals.held_s
        self._engine = np.full(n, -1)
        self._first_byte_s, self._last_byte_s = np.full(n, np.nan), np.full(n, np.nan)
        self._followers: dict[int, list[int]] = {}
        self._coming: list[tuple[float, int]] = []
        for row in range(n):
            before = -1 if arrivals.after is None else int(arrivals.after[row])
            if before < 0:
                self._coming.append((float(self._received_s[row]), row))
            else:
                self._followers.setdefault(before, []).append(row)
        heapq.heapify(self._coming)

    def run(self) -> ReplayOutcome:
        while True:
            arrival_s = self._coming[0][0] if self._coming else _NEVER
            event_s = min(arrival_s, self._paces[0][0]) if self._paces else arrival_s
            if self._followers:
                # In a closed loop, the end of a response causes a new arrival, which can be earlier
                # than all arrivals in `_coming`.
                for server in self._servers:
                    event_s = min(event_s, server.engine.next_event_s)
            if arrival_s == _NEVER and not self._outstanding():
                return self._outcome()
            self._advance(event_s)
            while self._paces and self._paces[0][0] <= event_s:
                _, number, factor = self._paces.pop(0)
                self._servers[number].engine.clock.pace = factor
            while self._coming and self._coming[0][0] <= event_s:
                self._receive(*heapq.heappop(self._coming))

    def _outstanding(self) -> int:
        return sum(server.engine.outstanding for server in self._servers)

    def _advance(self, until: float) -> None:
        ended = [(job, server) for server in self._servers for job in server.engine.advance(until)]
        for job, server in ended:
            self._deliver(job, server)

    def _receive(self, at_s: float, row: int) -> None:
        arrivals, model = self._arrivals, self._model
        self._received_s[row] = at_s
        job = Job(
            number=row,
            prompt_tokens=int(arrivals.prompt_tokens[row]),
            output_tokens=int(arrivals.output_tokens[row]),
            queued=at_s,
            prefixes=self._prefixes(row),
            acceptance=0.0 if arrivals.acceptance is None else float(arrivals.acceptance[row]),
            fetched_tokens=(
                0 if arrivals.cached_tokens is None else int(arrivals.cached_tokens[row])
            ),
            lora=(
                None
                if arrivals.adapter is None or arrivals.adapter[row] < 0
                else str(arrivals.adapter[row])
            ),
            priority=0 if arrivals.priority is None else int(arrivals.priority[row]),
        )
        chosen = self._choose(job)
        server = self._servers[chosen]
        engine = server.engine
        if job.prompt_tokens + job.output_tokens > model.engine.max_model_len or engine.full:
            self._answered(row, at_s)
            return
        recorded_s = float("nan") if arrivals.frontend_s is None else arrivals.frontend_s[row]
        if isnan(recorded_s):
            work_s = model.front_end.request_s(job.prompt_tokens, engine.running)
            job.queued = server.front_end.take(at_s + model.front_end.read_s, work_s)
        else:
            job.queued = at_s + float(recorded_s)
        job.queued += self._held_s[row]
        self._jobs[row] = job
        self._engine[row] = chosen
        engine.submit(job)

    def _prefixes(self, row: int) -> tuple[tuple[int, int], ...]:
        prefixes = self._arrivals.prefixes
        if prefixes is None:
            return ()
        mine = slice(prefixes.offsets[row], prefixes.offsets[row + 1])
        pairs = zip(prefixes.keys[mine], prefixes.end_tokens[mine], strict=True)
        return tuple((int(key), int(end)) for key, end in pairs)

    def _choose(self, job: Job) -> int:
        turn, self._turn = self._turn, self._turn + 1
        engines = [server.engine for server in self._servers]
        if self._model.router == "round_robin":
            return turn % len(engines)
        outstanding = [engine.outstanding for engine in engines]
        if self._model.router == "least_outstanding":
            return least_outstanding(outstanding, turn)
        job.lease_blocks(self._model.engine.block_size)
        limit = (job.prompt_tokens - 1) // self._model.engine.block_size
        cached = [engine.kv.hits(job.lease, limit) for engine in engines]
        return prefix_aware(outstanding, cached, self._model.affinity_slack, turn)

    def _deliver(self, job: Job, server: _Server) -> None:
        row, model = job.number, self._model.front_end
        assert job.first_token is not None
        assert job.last_token is not None
        write = server.front_end.write
        last_s = write(job.last_token, model.last_s(job.last_sequences))
        first_s = min(last_s, write(job.first_token, model.first_s(job.first_sequences)))
        streamed = self._arrivals.streamed is None or self._arrivals.streamed[row]
        self._first_byte_s[row] = first_s if streamed else last_s
        self._last_byte_s[row] = last_s
        self._answered(row, last_s)

    def _answered(self, row: int, at_s: float) -> None:
        think_s = self._arrivals.think_s
        for follower in self._followers.pop(row, ()):
            pause_s = 0.0 if think_s is None else float(think_s[follower])
            heapq.heappush(self._coming, (at_s + pause_s, follower))

    def _outcome(self) -> ReplayOutcome:
        jobs = self._jobs

        def column(of: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            found = (None if job is None else getattr(job, of) for job in jobs)
            return np.array([np.nan if each is None else each for each in found], dtype=float)

        scheduled_s, first_s, last_s = (
            column(name) for name in ("scheduled", "first_token", "last_token")
        )
        queued_s = column("queued")
        output_tokens = self._arrivals.output_tokens
        several = np.where(output_tokens > 1, output_tokens - 1, np.nan)
        engines = [server.engine for server in self._servers]
        return ReplayOutcome(
            received_s=self._received_s,
            frontend_s=queued_s - self._held_s - self._received_s,
            queue_s=scheduled_s - queued_s + self._held_s,
            prefill_s=first_s - scheduled_s,
            decode_s=last_s - first_s,
            delivery_s=self._last_byte_s - last_s,
            ttft_s=self._first_byte_s - self._received_s,
            tpot_s=(last_s - first_s) / several,
            itl_max_s=column("itl_max_s"),
            e2e_s=self._last_byte_s - self._received_s,
            preemptions=np.array([0 if job is None else len(job.preempted_at) for job in jobs]),
            cached_tokens=np.array(
                [0 if job is None else job.cached_tokens or 0 for job in jobs], dtype=np.int64
            ),
            engine=self._engine,
            rejected=self._engine < 0,
            engines=_engines(engines),
        )


def _engines(engines: list[ReplayEngine]) -> EngineOutcome:
    def totals(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([getattr(engine.totals, name) for engine in engines], dtype=np.int64)

    return EngineOutcome(
        steps=totals("steps"),
        busy_s=np.array([engine.totals.busy_s for engine in engines]),
        end_s=np.array([engine.last_step_s for engine in engines]),
        blocked_seats_s=np.array([engine.blocked.seats_s for engine in engines]),
        blocked_kv_s=np.array([engine.blocked.kv_s for engine in engines]),
        blocked_tokens_s=np.array([engine.blocked.budget_s for engine in engines]),
        preemptions=totals("preemptions"),
        prompt_tokens=totals("cache_query_tokens"),
        cached_tokens=totals("cache_hit_tokens"),
    )
