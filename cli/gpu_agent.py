"""The life of `tailspan gpus --endpoint`: sample, send, say what changes, stop.

Sampling never waits for the collector: what it does not take waits in a bounded queue, and what
grows too old there, or finds no room, is dropped and counted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from cli.foreground import say
from cli.render.gpus import standing
from collector.gpus.otlp_message import PATH, message
from collector.gpus.sampler import GpuSampler
from exporters.forwarding.forwarder import Forwarder
from server.gpu_setup import GpuSetup
from server.signals import stop_on_signals
from telemetry.gpus import GpuSample

CLOSE_S: Final = 5.0
LOOK_S: Final = 5.0
"""How often the state of things is looked at, to say what changed."""


async def run(setup: GpuSetup, forwarder: Forwarder, endpoint: str) -> None:
    """Run until Ctrl-C, SIGTERM, or the end of the terminal.

    Args:
        setup: which GPUs, and whose.
        forwarder: sends; it is started and closed here.
        endpoint: where to, for people.
    """
    stop = stop_on_signals(lambda: None)
    told, messages = 0, 0

    async def keep(samples: Sequence[GpuSample]) -> None:
        nonlocal told, messages
        told, messages = told + len(samples), messages + 1
        forwarder.offer(PATH, message(samples), False)

    readers = setup.readers()
    sampler = GpuSampler(readers.all, setup.owners(receives_engines=False), keep)
    forwarder.start()
    say(f"Sampling GPUs for {endpoint}. Ctrl-C stops it.")
    working = [
        asyncio.create_task(sampler.run()),
        asyncio.create_task(_tell(sampler, forwarder)),
    ]
    asked = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*working, asked], return_when=asyncio.FIRST_COMPLETED)
        for task in (*working, asked):
            task.cancel()
        ends = await asyncio.gather(*working, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):  # a defect of ours, which ended it
                raise end
    finally:
        await readers.close()
        await asyncio.to_thread(forwarder.close, CLOSE_S)
        say(summary(told, messages, forwarder.counts()[0]))


async def _tell(sampler: GpuSampler, forwarder: Forwarder) -> None:
    said: str | None = None
    away, sent_before = False, 0
    while True:
        await asyncio.sleep(LOOK_S)
        now = standing(sampler.report())
        if now != said:
            said = now
            say(now)
        results, held_bytes = forwarder.counts()
        away, news = taking(away, results["sent"] - sent_before, held_bytes)
        sent_before = results["sent"]
        if news is not None:
            say(news)


def taking(away: bool, sent: int, held_bytes: int) -> tuple[bool, str | None]:
    """Whether the collector takes nothing, and what there is to say of it.

    Args:
        away: whether it took nothing at the last look.
        sent: messages sent since then.
        held_bytes: what waits.
    """
    if held_bytes and not sent and not away:
        return True, "The collector takes nothing just now; what is sampled waits."
    if away and sent:
        return False, "The collector takes it again."
    return away, None


def summary(told: int, messages: int, results: Mapping[str, int]) -> str:
    """What became of everything: messages, of which each holds the samples of one look."""
    left = messages - sum(results.values())
    dropped = ", ".join(
        f"{count} {words}"
        for count, words in (
            (results["expired"], "found nobody in time"),
            (results["full"], "found no room"),
            (results["refused"], "were refused"),
            (left, "still waited"),
        )
        if count
    )
    sent = f"{told:,} samples of GPUs in {results['sent']:,} messages sent"
    return f"{sent}; dropped: {dropped}." if dropped else f"{sent}; none dropped."
