"""What keeps a scheduler's queue from moving, read off it after each decision.

The conditions are those at which vLLM's own loop over the waiting requests ends, asked in
the order in which they last: a batch that is at its limit stays so until a request ends,
memory until one ends or grows, and the tokens of a step come back with the next.

Source: vllm/v1/core/sched/scheduler.py, `Scheduler.schedule`, 0.12 to 0.33.
"""

from collections.abc import Set
from typing import Any

from tailspan_vllm.engine_core.queue_waits import Obstacle

_NOBODY: frozenset[str] = frozenset()


class Watch:
    """Reads one scheduler. What its configuration fixes is looked up once."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        # Since 0.31 more requests may be in the batch than have a seat of their own.
        self._seats: int = getattr(scheduler, "max_num_active_reqs", None) or (
            scheduler.max_num_running_reqs
        )
        self._budget: int = scheduler.max_num_scheduled_tokens
        self._block_tokens: int = scheduler.vllm_config.cache_config.block_size
        self._chunked: bool = scheduler.scheduler_config.enable_chunked_prefill

    def held(self) -> Set[str]:
        """Requests that are not eligible themselves; nobody before 0.18, which doesn't say."""
        scheduler = self._scheduler
        held = getattr(scheduler, "deferred_waiting", None)  # since 0.31
        if held is None:
            held = getattr(scheduler, "skipped_waiting", None)
        return {request.request_id for request in held} if held else _NOBODY

    def obstacle(self, output: Any, held: Set[str], preempted: bool) -> Obstacle | None:
        """What keeps those who are eligible from joining the batch.

        Args:
            output: what was scheduled.
            held: those who are not eligible.
            preempted: whether this decision cost a running request its place.

        Returns: None where nobody who is eligible waits.
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
        # What is left to withhold is a budget of another kind: encoder inputs, or prefills
        # balanced between engines.
        return Obstacle.KV if self._lacks_blocks(first) else Obstacle.BUDGET

    def _first(self, held: Set[str]) -> Any:
        """The first who is eligible, in the order in which the scheduler asks."""
        scheduler = self._scheduler
        # Since 0.31 who holds blocks already, such as of a cache that was sent for, is in the
        # first of these, and those held back are among the others.
        for queue in (getattr(scheduler, "kv_holding_waiting", None), scheduler.waiting):
            if queue and not held:
                return queue.peek_request()
            for request in queue or ():
                if request.request_id not in held:
                    return request
        return None

    def _lacks_blocks(self, request: Any) -> bool:
        """Whether the blocks that are free may not do for it, cache hits left aside."""
        cache = self._scheduler.kv_cache_manager
        groups = len(cache.kv_cache_config.kv_cache_groups)
        needed: int = -(-request.num_tokens // self._block_tokens) * groups
        reserve: int = getattr(cache, "watermark_blocks", 0)
        free: int = cache.block_pool.get_num_free_blocks()
        return needed + reserve + groups > free
