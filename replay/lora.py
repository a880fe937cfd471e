"""Simulate LoRA adapters: a few on the GPU, more in host memory, the rest in storage.

Pure. The scheduler skips a request while there is no free slot for its adapter. An adapter that is
not on the GPU is loaded in the request's first step. All requests of this step wait for the
adapter.

Source: vLLM v1/core/sched/scheduler.py and lora/worker_manager.py.
"""

from collections import Counter, OrderedDict

FROM_HOST_S = 0.015
"""Seconds to copy an adapter of about 100 MB from host memory to the GPU, and to unpack it."""
FROM_STORAGE_S = 0.15
"""Seconds to load an adapter from disk or network to host memory, and to check it."""


class LoraSlots:
    """The adapters of one engine.

    Args:
        on_gpu: maximum number of adapters in a batch.
        on_host: maximum number of adapters in host memory.
    """

    def __init__(self, on_gpu: int, on_host: int) -> None:
        self._on_gpu = on_gpu
        self._on_host = on_host
        self._gpu: OrderedDict[str, None] = OrderedDict()
        self._host: OrderedDict[str, None] = OrderedDict()
        self.running: Counter[str] = Counter()
        self.pace = 1.0
        self.loads = True
        """Whether loading an adapter takes time."""

    def has_room(self, adapter: str | None) -> bool:
        """Return whether a request for this adapter can join the batch."""
        return adapter is None or adapter in self.running or len(self.running) < self._on_gpu

    def join(self, adapter: str | None) -> float:
        """Add a request with this adapter to the batch. Return the seconds to load the adapter."""
        if adapter is None:
            return 0.0
        self.running[adapter] += 1
        load_s = 0.0
        if adapter not in self._gpu:
            load_s = FROM_HOST_S
            if adapter not in self._host:
                load_s += FROM_STORAGE_S * self.pace
        self._touch(self._gpu, adapter, self._on_gpu)
        self._touch(self._host, adapter, self._on_host)
        return load_s if self.loads else 0.0

    def leave(self, adapter: str | None) -> None:
        """Remove a request with this adapter from the batch."""
        if adapter is not None:
            self.running[adapter] -= 1
            if not self.running[adapter]:
                del self.running[adapter]

    def _touch(self, kept: OrderedDict[str, None], adapter: str, room: int) -> None:
        kept[adapter] = None
        kept.move_to_end(adapter)
        while len(kept) > room:
            # Adapters of running requests are not evicted. Running requests never use more adapters
            # than there are slots, so another adapter can always be evicted.
            kept.pop(next(each for each in kept if each not in self.running))
