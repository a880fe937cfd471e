"""Adapters: a few in the batch at a time, more in the host's memory, the rest far away.

Pure. A request whose adapter has no slot among those of the running ones is passed over. One
whose adapter is not on the GPU has it loaded in its first step, and all who are in that step
wait for it.

Source: vLLM v1/core/sched/scheduler.py and lora/worker_manager.py.
"""

from collections import Counter, OrderedDict

FROM_HOST_S = 0.015
"""From the host's memory to the GPU: some 100 MB over PCIe, and unpacking."""
FROM_STORAGE_S = 0.15
"""From disk or network to the host, and the checks."""


class LoraSlots:
    """The adapters of one engine.

    Args:
        on_gpu: how many may be used in one batch.
        on_host: how many the host's memory keeps.
    """

    def __init__(self, on_gpu: int, on_host: int) -> None:
        self._on_gpu = on_gpu
        self._on_host = on_host
        self._gpu: OrderedDict[str, None] = OrderedDict()
        self._host: OrderedDict[str, None] = OrderedDict()
        self.running: Counter[str] = Counter()
        self.pace = 1.0
        """How much longer a load takes than on storage that is well."""

    def has_room(self, adapter: str | None) -> bool:
        """Whether a request for it may join the batch."""
        return adapter is None or adapter in self.running or len(self.running) < self._on_gpu

    def join(self, adapter: str | None) -> float:
        """A request for it joins the batch; seconds that loading it takes."""
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
        return load_s

    def leave(self, adapter: str | None) -> None:
        """A request for it leaves the batch."""
        if adapter is not None:
            self.running[adapter] -= 1
            if not self.running[adapter]:
                del self.running[adapter]

    def _touch(self, kept: OrderedDict[str, None], adapter: str, room: int) -> None:
        kept[adapter] = None
        kept.move_to_end(adapter)
        while len(kept) > room:
            # What runs stays; there are never more of those than there is room.
            kept.pop(next(each for each in kept if each not in self.running))
