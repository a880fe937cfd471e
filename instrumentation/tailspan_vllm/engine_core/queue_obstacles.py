"""Finds why requests stay in a scheduler's queue after a scheduling decision.

The checks repeat the conditions that end vLLM's own loop over the waiting requests. The condition
that lasts longest is checked first: a full batch (until a request ends), full KV-cache memory
(until a request ends or grows), an exhausted token budget (until the next step).

Source: vllm/v1/core/sched/scheduler.py, `Scheduler.schedule`, 0.12 to 0.33.
"""

from collections.abc import Set
from typing import Any

from tailspan_vllm.engine_core.queue_waits import Obstacle

_NONE: frozenset[str] = frozenset()


class QueueObstacles:
    """Examines the queue of one scheduler. The configuration is read only once."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        # Since 0.31, the batch may contain more requests than `max_num_running_reqs`.
        self._seats: int = getattr(scheduler, "max_num_active_reqs", None) or (
            scheduler.max_num_running_reqs
        )
        self._budget: int = scheduler.max_num_scheduled_tokens
        self._block_tokens: int = scheduler.vllm_config.cache_config.block_size
        self._chunked: bool = scheduler.scheduler_config.enable_chunked_prefill

    def held(self) -> Set[str]:
        """Return the requests that may not join the batch. Always empty before vLLM 0.18."""
        scheduler = self._scheduler
        held = getattr(scheduler, "deferred_waiting", None)  # since 0.31
        if held is None:
            held = getattr(scheduler, "skipped_waiting", None)
        return {request.request_id for request in held} if held else _NONE

    def obstacle(self, output: Any, held: Set[str], preempted: bool) -> Obstacle | None:
        """Return why eligible requests did not join the batch, or None if none of them waits.

        Args:
            output: the output of the scheduling decision.
            held: the requests that are not eligible.
            preempted: whether this decision preempted a running request.
        """
        scheduler = self._scheduler
        first = self._first(held)
        if first is None:
            return None
        paused = getattr(scheduler, "_pause_state", None)
        if paused is not None and paused.name != "UNPAUSED":
            return Obstacle.HELD
        sessions = getattr(scheduler, "num_waiting_for_streaming_input", 0)
        if len(scheduler.running) + sessions >= self._seats:
            return Obstacle.SEATS
        if preempted:
            return Obstacle.KV
        left = self._budget - output.total_num_scheduled_tokens
        if left <= 0:
            return Obstacle.BUDGET
        if first.status.name.startswith("WAITING_FOR"):
            return Obstacle.HELD
        if not self._chunked and first.num_tokens > left:
            return Obstacle.BUDGET
        # `BUDGET` also covers vLLM's other budgets: encoder inputs, and prefills balanced between
        # engines.
        return Obstacle.KV if self._lacks_blocks(first) else Obstacle.BUDGET

    def _first(self, held: Set[str]) -> Any:
        """Return the first eligible request in the scheduler's order, or None."""
        scheduler = self._scheduler
        # Since 0.31, the first queue contains requests that already hold blocks, for example
        # because their cache was fetched. The second queue contains all other requests, including
        # ineligible ones.
        for queue in (getattr(scheduler, "kv_holding_waiting", None), scheduler.waiting):
            if queue and not held:
                return queue.peek_request()
            for request in queue or ():
                if request.request_id not in held:
                    return request
        return None

    def _lacks_blocks(self, request: Any) -> bool:
        """Return whether the free blocks may be too few for the request, assuming no cache hits."""
        cache = self._scheduler.kv_cache_manager
        groups = len(cache.kv_cache_config.kv_cache_groups)
        needed: int = -(-request.num_tokens // self._block_tokens) * groups
        reserve: int = getattr(cache, "watermark_blocks", 0)
        free: int = cache.block_pool.get_num_free_blocks()
        return needed + reserve + groups > free
