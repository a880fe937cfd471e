import asyncio
import threading
from contextlib import suppress

import pytest

from collector.gpus.driver_thread import DriverThread
from collector.gpus.reader import Absence, AbsenceReason, ReaderError, Reading
from tests.collector.gpus.making import reading


class Library:
    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.error: Exception | None = None
        self.going = threading.Event()
        self.going.set()
        self.closed = threading.Event()

    def read(self) -> Reading:
        self.threads.add(threading.current_thread().name)
        self.going.wait(30)
        if self.error is not None:
            raise self.error
        return Reading((reading(),))

    def close(self) -> None:
        self.closed.set()


def test_every_call_comes_from_one_thread() -> None:
    library = Library()

    async def read() -> None:
        apart = DriverThread(library)
        for _ in range(3):
            assert len((await apart.read()).gpus) == 1
        apart.close()

    asyncio.run(read())
    assert library.threads == {"gpu-library"}
    assert library.closed.wait(30)
    assert all(t.daemon for t in threading.enumerate() if t.name == "gpu-library")


def test_a_driver_that_hangs_is_not_called_again_until_it_returns() -> None:
    """A call each second would block one more thread each second."""
    library = Library()
    library.going.clear()

    async def read() -> None:
        apart = DriverThread(library, timeout_s=0.01)
        for _ in range(3):
            with pytest.raises(ReaderError) as late:
                await apart.read()
            assert late.value.absence.why is AbsenceReason.TIMEOUT
        library.going.set()
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await apart.read()).gpus
                except ReaderError:
                    await asyncio.sleep(0)
                else:
                    break
        apart.close()

    asyncio.run(read())
    assert len(library.threads) == 1


def test_an_exception_is_passed_on() -> None:
    library = Library()
    library.error = ReaderError(Absence(AbsenceReason.NO_DRIVER))

    async def read() -> None:
        apart = DriverThread(library)
        with pytest.raises(ReaderError, match="no_driver"):
            await apart.read()
        library.error = None
        assert (await apart.read()).gpus
        apart.close()

    asyncio.run(read())


def test_an_unused_driver_starts_no_thread_to_close() -> None:
    library = Library()
    DriverThread(library).close()
    assert not library.closed.is_set()


@pytest.mark.parametrize("later", range(5))
def test_a_stop_that_arrives_together_with_the_answer_is_not_lost(later: int) -> None:
    """In Python 3.11, `asyncio.wait_for` loses this cancellation, and sampling never ends."""
    library = Library()
    library.going.clear()

    async def read() -> None:
        apart = DriverThread(library, timeout_s=30)
        sampling = asyncio.create_task(apart.read())
        await asyncio.sleep(0.01)
        pending = apart._pending
        assert pending is not None
        library.going.set()
        pending.result(30)  # blocks the event loop, so `read` has not taken the result yet
        for _ in range(later):
            await asyncio.sleep(0)
        stopped = sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        assert sampling.cancelled() == stopped
        apart.close()

    asyncio.run(read())
