"""The requests in the scheduler's queue: why each request waits, and the KV cache loaded for it."""

import time
from collections.abc import Container
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.engine_core.kv_loads import KvLoads
from tailspan_vllm.engine_core.queue_obstacles import NO_HOLDS, QueueObstacles
from tailspan_vllm.engine_core.queue_waits import HoldReason, Queue, QueueWait
from tailspan_vllm.request.parts import KvLoad


class WaitingRequests:
    """Use this only on the engine core's thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.queue: Queue | None = Queue()
        """None if the reasons for waiting cannot be determined."""
        self._obstacles: QueueObstacles | None = None
        self._loads: KvLoads | None = None
        self._describes_loads = True
        """False after a failure."""
        self._loading: dict[str, KvLoad | None] = {}
        self._evicted = False

    def joined(self, request_id: str) -> None:
        """Record the arrival of a request."""
        if self.queue is not None and len(self.queue) < self._most:
            self.queue.joined(request_id, time.monotonic())

    def decided(self, scheduler: Any, output: Any, at: float) -> None:
        """Record why requests stay in the queue after this scheduling decision."""
        if self.queue is None:
            return
        try:
            if self._obstacles is None:
                self._obstacles = QueueObstacles(scheduler)
            if output.scheduled_new_reqs or output.scheduled_cached_reqs.resumed_req_ids:
                self._obstacles.batch_changed()
            if not len(self.queue):
                self.queue.decided(at, None, NO_HOLDS)
                self._evicted = False
                return
            held = self._obstacles.held()
            obstacle = self._obstacles.obstacle(output, held, self._evicted)
            self.queue.holds_known = self._obstacles.holds_known
            changed = self.queue.decided(at, obstacle, held)
            self._evicted = False
            for request_id, hold in changed.items():
                if hold is HoldReason.KV_LOAD:
                    request = scheduler.requests.get(request_id)
                    self._loading[request_id] = self._load_of(scheduler, request)
        except Exception:
            guard.note_failure("queue")
            self.queue = None

    def admitted(self, request_id: str, at: float) -> QueueWait | None:
        """Remove a request that joins the batch. Return its wait."""
        return None if self.queue is None else self.queue.admitted(request_id, at)

    def load_for(self, scheduler: Any, request_id: str, request: Any) -> KvLoad | None:
        """The KV cache that was loaded for a request that joins the batch."""
        if request_id in self._loading:
            return self._loading.pop(request_id)
        return self._load_of(scheduler, request)

    def left(self, request_id: str) -> QueueWait | None:
        """Remove a request that was never scheduled. Return its wait."""
        return None if self.queue is None else self.queue.left(request_id, time.monotonic())

    def batch_changed(self, request_id: str, *, evicted: bool) -> None:
        """Record that a request was preempted (`evicted`) or has ended."""
        if evicted:
            self._evicted = True
        else:
            self._loading.pop(request_id, None)
        if self._obstacles is not None:
            self._obstacles.batch_changed()

    def keep(self, alive: Container[str], most: int) -> None:
        """If there are more than `most` requests, remove the requests that vLLM no longer has."""
        if self.queue is not None and len(self.queue) > most:
            self.queue.keep(alive)

    def forget_loads(self) -> None:
        """Forget all KV-cache loads, because some may be wrong."""
        self._loading.clear()

    def _load_of(self, scheduler: Any, request: Any) -> KvLoad | None:
        tokens = external_tokens(request)
        if not tokens or not self._describes_loads:
            return None
        try:
            if self._loads is None:
                self._loads = KvLoads(scheduler)
            return self._loads.load_of(request, tokens)
        except Exception:
            guard.note_failure("kv_load")
            self._describes_loads = False
            return None


def external_tokens(request: Any, start: int | None = None) -> int | None:
    """Number of prompt tokens that a KV connector provided.

    Args:
        start: the number of prompt tokens before the first chunk, if known. vLLM counts the tokens
            when it starts a load. If a part of the load fails, vLLM does not correct the number.
    """
    prefill = getattr(request, "prefill_stats", None)
    if prefill is not None:
        external = int(prefill.num_external_cached_tokens)
        if external and start is not None and load_failed(prefill.num_cached_tokens, start):
            external = max(0, external - (prefill.num_cached_tokens - start))
        return external
    tokens = getattr(request, "num_external_computed_tokens", None)
    return None if tokens is None else int(tokens)


def load_failed(counted: int, start: int) -> bool:
    """Whether a load failed, so that the engine computed tokens that vLLM counted as cached.

    After a load of the whole prompt, vLLM computes the last token again.

    Args:
        counted: vLLM's number of cached prompt tokens.
        start: the number of prompt tokens before the first chunk.
    """
    return start < counted - 1
