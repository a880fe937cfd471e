"""Finds the obstacle that keeps requests in a scheduler's queue after a scheduling decision.

The checks duplicate the conditions that end vLLM's loop over the waiting requests. The condition
that usually lasts longest comes first: full batch, full KV-cache memory, exhausted token budget.

Source: vllm/v1/core/sched/scheduler.py, `Scheduler.schedule`, 0.12 to 0.33.
"""

from collections.abc import Mapping
from typing import Any, Final

from tailspan_vllm import guard
from tailspan_vllm.engine_core.queue_waits import HoldReason, Obstacle

NO_HOLDS: Final[Mapping[str, HoldReason]] = {}

_GRAMMAR: Final = frozenset({"WAITING_FOR_FSM", "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR"})
"""The status of a request whose grammar is being compiled, in all versions of vLLM."""


class QueueObstacles:
    """Examines the queue of one scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        # since 0.31, the batch may be larger than `max_num_running_reqs`
        self._seats: int = getattr(scheduler, "max_num_active_reqs", None) or (
            scheduler.max_num_running_reqs
        )
        self._budget: int = scheduler.max_num_scheduled_tokens
        self._block_tokens: int = scheduler.vllm_config.cache_config.block_size
        self._chunked: bool = scheduler.scheduler_config.enable_chunked_prefill
        lora_config = getattr(scheduler, "lora_config", None)
        self._adapter_slots: int | None = lora_config and lora_config.max_loras
        self._adapters: set[int] | None = None
        """The adapters in the batch; None if it has changed since they were read."""
        connectors = (
            getattr(scheduler, "connector", None),
            getattr(scheduler, "ec_connector", None),
        )
        self._connected = any(each is not None for each in connectors)

        self.holds_known = hasattr(scheduler, "deferred_waiting") or hasattr(
            scheduler, "skipped_waiting"
        )
        """False before vLLM 0.18, and after a reason could not be read."""

    def batch_changed(self) -> None:
        """Record that a request has joined or left the batch."""
        self._adapters = None

    def held(self) -> Mapping[str, HoldReason]:
        """Map the id of each ineligible request to the reason. The map is always empty before vLLM
        0.18."""
        scheduler = self._scheduler
        held = getattr(scheduler, "deferred_waiting", None)  # since 0.31
        if held is None:
            held = getattr(scheduler, "skipped_waiting", None)
        if not held:
            return NO_HOLDS
        if self.holds_known:
            try:
                holds = ((request.request_id, self._hold(request)) for request in held)
                return {request_id: hold for request_id, hold in holds if hold is not None}
            except Exception:
                guard.note_failure("held")
                self.holds_known = False
        return dict.fromkeys((request.request_id for request in held), HoldReason.OTHER)

    def _hold(self, request: Any) -> HoldReason | None:
        """Return why a request that vLLM skipped is not eligible, or None if it has become
        eligible.

        vLLM examines a skipped request again only when the batch has room. Until then, the request
        waits for the same obstacle as all eligible requests.
        """
        status = request.status.name
        if status == "WAITING_FOR_REMOTE_KVS":
            loaded = request.request_id in self._scheduler.finished_recving_kv_req_ids
            return None if loaded else HoldReason.KV_LOAD
        if status in _GRAMMAR:
            grammar = getattr(request.structured_output_request, "_grammar", None)
            done = getattr(grammar, "done", None)
            return None if done is not None and done() else HoldReason.GRAMMAR
        if status.startswith("WAITING_FOR"):
            return HoldReason.OTHER
        adapter = request.lora_request
        if adapter is not None and self._adapter_slots is not None:
            if self._adapters is None:
                loras = (each.lora_request for each in self._scheduler.running)
                self._adapters = {lora.lora_int_id for lora in loras if lora is not None}
            full = len(self._adapters) >= self._adapter_slots
            if full and adapter.lora_int_id not in self._adapters:
                return HoldReason.ADAPTER
        # A connector may still look up the request's KV cache or encoder outputs.
        return HoldReason.OTHER if self._connected else None

    def obstacle(
        self, output: Any, held: Mapping[str, HoldReason], preempted: bool
    ) -> Obstacle | None:
        """Return why eligible requests did not join the batch, or None if no eligible request
        waits."""
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
        # `BUDGET` also stands for vLLM's limits per step on encoder inputs and on prefills.
        return Obstacle.KV if self._lacks_blocks(first) else Obstacle.BUDGET

    def _first(self, held: Mapping[str, HoldReason]) -> Any:
        """Return the first eligible request in the scheduler's order, or None."""
        scheduler = self._scheduler
        # Requests that already hold blocks come first (since 0.31). Skipped requests come second
        # (0.18 to 0.30).
        for queue in (
            getattr(scheduler, "kv_holding_waiting", None),
            getattr(scheduler, "skipped_waiting", None),
            scheduler.waiting,
        ):
            if queue and not held:
                return queue.peek_request()
            for request in queue or ():
                if request.request_id not in held:
                    return request
        return None

    def _lacks_blocks(self, request: Any) -> bool:
        """Return whether there are too few free blocks for the request, assuming no cache hits."""
        cache = self._scheduler.kv_cache_manager
        groups = len(cache.kv_cache_config.kv_cache_groups)
        needed: int = -(-request.num_tokens // self._block_tokens) * groups
        reserve: int = getattr(cache, "watermark_blocks", 0)
        free: int = cache.block_pool.get_num_free_blocks()
        return needed + reserve + groups > free
