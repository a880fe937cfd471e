"""Sends one signal's items in order.

A batch that must be sent again stays at the front. A refused batch is halved, down to a single
item. A refused single item is dropped and counted. The size grows again with each accepted batch.

Source: OTLP specification, "Retryable response codes", "Throttling", "Bad data".
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from tailspan_vllm.export.retry import Backoff
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict, Post

T = TypeVar("T")

EXPORTS_PER_ROUND: Final = 64


class Outbox(Generic[T]):
    """Use this object only on one thread.

    Args:
        encode: encodes a batch. If it raises for a single item, the item is dropped.
        drop: called with the number of dropped items and the reason.
        note: called with every outcome.
    """

    def __init__(
        self,
        post: Post,
        encode: Callable[[Sequence[T]], bytes],
        batch_limit: int,
        drop: Callable[[int, str], None],
        note: Callable[[ExportResponse], None],
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self._post = post
        self._encode = encode
        self._batch_limit = batch_limit
        self._drop = drop
        self._note = note
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._size = batch_limit

    def send(self, queue: deque[T], taken: Callable[[Sequence[T]], None] = lambda _: None) -> None:
        """Send until the queue is empty, a pause begins, or `EXPORTS_PER_ROUND` is reached.

        Args:
            queue: the queue, to which other threads may append.
            taken: called with the items that were sent or dropped.
        """
        for _ in range(EXPORTS_PER_ROUND):
            if not queue or not self._backoff.due(self._clock()):
                return
            batch = [queue[index] for index in range(min(self._size, len(queue)))]
            outcome = self._export(batch)
            self._note(outcome)
            if not self._settled(outcome, batch):
                continue
            for _ in batch:
                queue.popleft()
            taken(batch)

    def _export(self, batch: Sequence[T]) -> ExportResponse:
        try:
            message = self._encode(batch)
        except Exception as error:
            return ExportResponse(
                ExportVerdict.REFUSED, f"cannot be encoded: {type(error).__name__}"
            )
        return self._post(message)

    def _settled(self, outcome: ExportResponse, batch: Sequence[T]) -> bool:
        now = self._clock()
        if outcome.verdict is ExportVerdict.ACCEPTED:
            self._backoff.reset()
            self._size = min(2 * self._size, self._batch_limit)
            if outcome.rejected:
                self._drop(min(outcome.rejected, len(batch)), "rejected")
            return True
        if outcome.retryable:
            self._backoff.wait(now, outcome.wait_s)
            return False
        if outcome.verdict is ExportVerdict.REFUSED and len(batch) > 1:
            self._size = len(batch) // 2
            return False
        self._drop(len(batch), outcome.verdict.value)
        if outcome.verdict is ExportVerdict.DENIED:
            # The collector would refuse the next batch too. With a pause, fewer items are lost.
            self._backoff.wait(now, outcome.wait_s)
        return True
