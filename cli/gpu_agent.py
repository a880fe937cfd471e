"""Run `tailspan gpus --endpoint`.

It samples the GPUs, sends the samples and prints changes, until a signal stops it. Sampling never
waits for the collector. Samples are dropped and counted if they are too old or do not fit into the
bounded queue.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from cli.foreground import print_line
from cli.render.gpus import state_sentence
from collector.gpus.otlp_message import PATH, message
from collector.gpus.sampler import GpuSampler
from exporters.forwarding.forwarder import Forwarder
from server.gpu_setup import GpuSetup
from server.signals import stop_on_signals
from telemetry.gpus import GpuSample

CLOSE_S: Final = 5.0
SEND_S: Final = 5.0
"""Seconds between two messages, as for vLLM's samples. With one message instead of five in 5 s, the
collector takes a quarter less CPU time (`benchmarks/fleet.py`)."""
MAX_SAMPLES: Final = 512
"""A message is sent at once when it has this many samples."""
LOOK_S: Final = 2 * SEND_S
"""Interval in seconds between two checks. The agent prints what has changed since the last
check."""

_log = logging.getLogger(__name__)


async def run(setup: GpuSetup, forwarder: Forwarder, endpoint: str) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP. Starts and closes the forwarder."""
    stop = stop_on_signals(lambda: None)
    batches = Batches(forwarder)
    readers = setup.readers()
    sampler = GpuSampler(readers.all, setup.owners(receives_engines=False), batches.keep)
    forwarder.start()
    print_line(f"Sampling GPUs for {endpoint}. Ctrl-C stops it.")
    working = [
        asyncio.create_task(sampler.run()),
        asyncio.create_task(batches.run()),
        asyncio.create_task(_report_changes(sampler, forwarder)),
    ]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*working, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (*working, stopping):
            task.cancel()
        ends = await asyncio.gather(*working, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):  # a defect, which ended the sampling
                raise end
    finally:
        await readers.close()
        batches.send()
        await asyncio.to_thread(forwarder.close, CLOSE_S)
        print_line(summary(batches.samples, batches.messages, forwarder.counts()[0]))


class Batches:
    """Sends the first samples at once, then one message every `SEND_S` seconds."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._waiting: list[GpuSample] = []
        self.samples, self.messages = 0, 0

    async def keep(self, samples: Sequence[GpuSample]) -> None:
        """Add samples to the next message."""
        self.samples += len(samples)
        self._waiting += samples
        if not self.messages or len(self._waiting) >= MAX_SAMPLES:
            self.send()

    async def run(self) -> None:
        """Send periodically until cancelled."""
        while True:
            await asyncio.sleep(SEND_S)
            try:
                self.send()
            except Exception:  # a defect; later samples are still sent
                _log.exception("GPU samples could not be sent")

    def send(self) -> None:
        """Pass the collected samples to the forwarder."""
        if samples := self._waiting:
            self._waiting = []
            body = message(samples)
            self.messages += 1
            self._forwarder.offer(PATH, body, False)


async def _report_changes(sampler: GpuSampler, forwarder: Forwarder) -> None:
    printed: str | None = None
    is_rejecting, sent_before = False, 0
    while True:
        await asyncio.sleep(LOOK_S)
        now = state_sentence(sampler.report())
        if now != printed:
            printed = now
            print_line(now)
        results, queued_bytes = forwarder.counts()
        is_rejecting, news = acceptance_change(
            is_rejecting, results["sent"] - sent_before, queued_bytes
        )
        sent_before = results["sent"]
        if news is not None:
            print_line(news)


def acceptance_change(is_rejecting: bool, sent: int, queued_bytes: int) -> tuple[bool, str | None]:
    """Whether the collector rejects messages now, and a line to print after a change."""
    if queued_bytes and not sent and not is_rejecting:
        return True, "The collector does not accept messages. Samples are queued."
    if is_rejecting and sent:
        return False, "The collector accepts messages again."
    return is_rejecting, None


def summary(samples: int, messages: int, results: Mapping[str, int]) -> str:
    """A sentence with the number of samples, and the number of messages by result."""
    left = messages - sum(results.values())
    dropped = ", ".join(
        f"{count} {words}"
        for count, words in (
            (results["expired"], "expired before the collector accepted messages"),
            (results["full"], "did not fit in the queue"),
            (results["refused"], "were refused"),
            (left, "still waited"),
        )
        if count
    )
    sent = f"{samples:,} GPU samples in {results['sent']:,} messages sent"
    return f"{sent}; dropped: {dropped}." if dropped else f"{sent}; none dropped."
