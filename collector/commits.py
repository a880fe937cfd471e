"""Let coroutines wait until the rows of a message are committed.

A whole transaction wakes the event loop only once. `asyncio.wrap_future` would make a system call
for each message.
"""

import asyncio
from collections import deque
from concurrent.futures import Future


class Commits:
    """Lets coroutines wait for commits. Call `wait` on one event loop only."""

    def __init__(self) -> None:
        self._settled: deque[tuple[Future[None], asyncio.Future[None]]] = deque()
        self._waking = False

    async def wait(self, commit: Future[None]) -> None:
        """Wait for a commit, or raise its exception. Cancelling the wait cancels the commit."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def settle(done: Future[None]) -> None:
            self._settled.append((done, waiting))
            if loop.is_closed():
                return
            # `_pass_on` resets `_waking` before it reads `_settled`. So no commit is missed.
            if not self._waking:
                self._waking = True
                loop.call_soon_threadsafe(self._pass_on)

        commit.add_done_callback(settle)
        try:
            await waiting
        except asyncio.CancelledError:
            commit.cancel()
            raise

    def _pass_on(self) -> None:
        self._waking = False
        while self._settled:
            done, waiting = self._settled.popleft()
            if waiting.done():
                continue
            if done.cancelled():
                waiting.cancel()
            elif (error := done.exception()) is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(None)
