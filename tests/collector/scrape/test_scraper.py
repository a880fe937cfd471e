import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from collector.scrape import exposition
from collector.scrape.engine_series import NAMES, STARTED
from collector.scrape.failure_reasons import DiscoveryError, ScrapeFailureReason
from collector.scrape.scraper import PLUGIN_PRECEDENCE_NS, Scraper
from collector.scrape.targets import Target
from collector.testing import MemorySink
from telemetry.engines import EngineSample
from telemetry.requests import Source
from tests.collector.conftest import WallClock
from tests.collector.scrape.conftest import Stranger, responding

NOW_UNIX_NS = 1_796_000_000 * 10**9


class Found:
    name = "found"

    def __init__(self, *urls: str) -> None:
        self.urls = urls
        self.lost = False

    async def targets(self) -> Sequence[Target]:
        if self.lost:
            raise DiscoveryError("gone")
        return [Target(url, url.split("/")[2]) for url in self.urls]


def exposed(tokens: float, started_s: float | None = None) -> Any:
    """Return the metrics of a server that has generated `tokens` tokens."""
    start = f"process_start_time_seconds {started_s}\n" if started_s else ""
    return responding(f"vllm:generation_tokens_total {tokens}\n{start}".encode())


async def scraped(
    stranger: Stranger, manners: Sequence[Any], **about: Any
) -> tuple[MemorySink, Scraper]:
    """Scrape one target every 5 s, once for each response."""
    clock, sink, turn = WallClock(NOW_UNIX_NS), MemorySink(), iter(manners)

    async def in_turn(reader: Any, writer: Any) -> None:
        await next(turn)(reader, writer)

    async with stranger(in_turn) as url:
        scraper = Scraper([Found(url)], sink, clock_unix_ns=clock, **about)
        await scraper.discover()
        for _ in manners:
            [state] = scraper.report()
            await scraper.scrape(state.target)
            clock.unix_ns += 5 * 10**9
        return sink, scraper


def quick(*discoveries: Found, sink: MemorySink) -> Scraper:
    scraper = Scraper(discoveries, sink, every_s=0.01)
    scraper._timeout_s = 20.0  # a busy machine may not answer within the interval
    return scraper


def test_an_answer_becomes_a_sample_with_its_source(stranger: Stranger) -> None:
    sink, scraper = asyncio.run(scraped(stranger, [exposed(44, 1_795_000_000)]))
    [sample] = sink.samples
    assert (sample.source, sample.decode_tokens_total) == (Source.SCRAPE, 44)
    assert (sample.at_unix_ns, sample.started_unix_ns) == (NOW_UNIX_NS, 1_795_000_000 * 10**9)
    assert sample.replica.startswith("127.0.0.1:")
    assert (sample.waiting, sample.steps_total) == (None, None)
    [state] = scraper.report()
    assert (state.up, state.software, state.failures) == (True, "vLLM", {})


def test_a_total_that_decreases_restarts_the_count(stranger: Stranger) -> None:
    """Not every server reports its start time."""
    sink, _ = asyncio.run(scraped(stranger, [exposed(10), exposed(20), exposed(3), exposed(4)]))
    since = [(each.started_unix_ns - NOW_UNIX_NS) // 10**9 for each in sink.samples]
    assert since == [0, 0, 10, 10]


def test_a_newer_process_start_begins_a_new_count(stranger: Stranger) -> None:
    """The total may be larger than before the restart. A start time in the future is ignored."""
    later, ahead = NOW_UNIX_NS / 1e9 - 100, NOW_UNIX_NS / 1e9 + 86_400
    sink, _ = asyncio.run(
        scraped(stranger, [exposed(10, later - 50), exposed(90, later), exposed(95, ahead)])
    )
    since = [(each.started_unix_ns - NOW_UNIX_NS) // 10**9 for each in sink.samples]
    assert since == [-150, -100, -100]


def test_a_start_that_was_in_the_future_begins_no_new_count(stranger: Stranger) -> None:
    """The server's clock is 7 s ahead, so its start is usable from the third scrape."""
    ahead = exposed(10, NOW_UNIX_NS / 1e9 + 7)
    sink, _ = asyncio.run(scraped(stranger, [ahead] * 3))
    since = [(each.started_unix_ns - NOW_UNIX_NS) // 10**9 for each in sink.samples]
    assert since == [0, 0, 0]


def test_a_failure_is_counted_and_the_next_answer_taken(stranger: Stranger) -> None:
    sink, scraper = asyncio.run(scraped(stranger, [responding(b"", "500 no"), exposed(1)]))
    [state] = scraper.report()
    assert state.up is True
    assert state.failures == {ScrapeFailureReason.HTTP_STATUS: 1}
    assert len(sink.samples) == 1


def test_a_failing_store_fails_only_one_response(stranger: Stranger) -> None:
    async def scrape() -> None:
        sink = MemorySink()
        sink.refusal = RuntimeError("full")
        async with stranger(exposed(1)) as url:
            scraper = Scraper([Found(url)], sink)
            await scraper.discover()
            [state] = scraper.report()
            await scraper.scrape(state.target)
            assert (state.up, state.failures) == (False, {ScrapeFailureReason.NOT_STORED: 1})

    asyncio.run(scrape())


@pytest.mark.parametrize("source", [Source.INSTRUMENTATION, Source.SCRAPE])
def test_engines_of_the_instrumentation_are_not_scraped(stranger: Stranger, source: Source) -> None:
    """With both the plugin's samples and the scrape, each token would be counted twice.

    After a minute without samples of the plugin, the scrape is used.
    """

    async def scrape() -> None:
        clock, sink = WallClock(NOW_UNIX_NS), MemorySink()
        async with stranger(exposed(1)) as url:
            scraper = Scraper([Found(url)], sink, clock_unix_ns=clock)
            await scraper.discover()
            [state] = scraper.report()
            ours = EngineSample(
                replica=state.target.replica,
                engine=0,
                process=7,
                at_unix_ns=NOW_UNIX_NS,
                started_unix_ns=NOW_UNIX_NS,
                source=source,
            )
            scraper.on_stored([], [ours])
            await scraper.scrape(state.target)
            assert len(sink.samples) == (0 if source is Source.INSTRUMENTATION else 1)
            assert state.up
            clock.unix_ns += PLUGIN_PRECEDENCE_NS
            await scraper.scrape(state.target)
            assert sink.samples
            clock.unix_ns += 3600 * 10**9
            scraper.on_stored([], [ours])
            clock.unix_ns -= 3600 * 10**9  # the clock is set back
            await scraper.discover()
            await scraper.scrape(state.target)
            assert len(sink.samples) == 2 + (source is Source.SCRAPE)

    asyncio.run(scrape())


def test_targets_change_and_stay_when_discovery_fails() -> None:
    async def discover() -> None:
        discovery = Found("http://a:1/m", "http://b:1/m")
        scraper = Scraper([discovery], MemorySink())
        await scraper.discover()
        assert [state.url for state in scraper.report()] == ["http://a:1/m", "http://b:1/m"]
        discovery.lost = True
        await scraper.discover()
        assert len(scraper.report()) == 2
        assert scraper.discoveries() == {"found": False}
        discovery.lost, discovery.urls = False, ("http://b:1/m",)
        await scraper.discover()
        assert [state.url for state in scraper.report()] == ["http://b:1/m"]
        assert scraper.discoveries() == {"found": True}

    asyncio.run(discover())


def test_a_silent_target_does_not_delay_the_others(stranger: Stranger) -> None:
    async def never(reader: Any, writer: Any) -> None:
        await reader.read()

    async def run() -> None:
        sink = MemorySink()
        async with stranger(never) as silent, stranger(exposed(1)) as good:
            scraper = quick(Found(silent, good), sink=sink)
            running = asyncio.create_task(scraper.run())
            async with asyncio.timeout(20):
                while len(sink.samples) < 3:
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert {sample.replica for sample in sink.samples} == {good.split("/")[2]}

    asyncio.run(run())


IMPOSSIBLE = ("+Inf", "-Inf", "NaN", "-1", "1e308", "-1e308", "0", "1e19", "abc", "")


def test_no_value_of_any_series_ends_the_asking(stranger: Stranger) -> None:
    texts = []
    for value in IMPOSSIBLE:
        texts += [
            f"{STARTED} {value}\n",
            "".join(f"{name} {value}\n" for name in NAMES),
            "".join(f'{name}{{model_name="{n}"}} {value}\n' for name in NAMES for n in "ab"),
        ]
    manners = [responding(f"vllm:num_requests_running 3\n{text}".encode()) for text in texts]
    sink, scraper = asyncio.run(scraped(stranger, manners))
    [state] = scraper.report()
    assert ScrapeFailureReason.FAILED not in state.failures
    assert ScrapeFailureReason.NOT_STORED not in state.failures
    assert scraper.task.failures == 0
    assert all(0 < each.started_unix_ns <= each.at_unix_ns for each in sink.samples)


def test_totals_whose_sum_overflows_are_unknown(stranger: Stranger) -> None:
    """With such a total, the store would refuse the whole sample."""
    lines = [f'vllm:generation_tokens_total{{model_name="{n}"}} 9e18' for n in "ab"]
    text = "\n".join([*lines, "vllm:num_requests_running 3", ""]).encode()
    sink, scraper = asyncio.run(scraped(stranger, [responding(text)]))
    [sample] = sink.samples
    assert (sample.decode_tokens_total, sample.running) == (None, 3)
    assert scraper.report()[0].unusable_values == 1


def test_a_defect_affects_one_target_which_is_scraped_again(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The exception is logged once, and counted each time."""
    real = exposition.read
    answers = iter([KeyError, KeyError, real])

    def read(body: bytes) -> Any:
        kind = next(answers)
        if kind is KeyError:
            raise KeyError("a defect")
        return real(body)

    monkeypatch.setattr(exposition, "read", read)
    sink, scraper = asyncio.run(scraped(stranger, [exposed(1)] * 3))
    [state] = scraper.report()
    assert (state.up, state.failures) == (True, {ScrapeFailureReason.FAILED: 2})
    assert scraper.task.failures == 2
    assert len(sink.samples) == 1
    assert caplog.text.count("Traceback") == 1


def test_a_task_that_ended_is_replaced_and_a_discovery_that_fails_is_named(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.scrape.scraper.REFRESH_S", 0.01)

    class Broken(Found):
        name = "broken"

        async def targets(self) -> Sequence[Target]:
            raise TypeError("a defect")

    async def run() -> None:
        async with stranger(exposed(1)) as url:
            scraper = quick(Found(url), Broken(), sink=MemorySink())
            running = asyncio.create_task(scraper.run())
            async with asyncio.timeout(30):
                while not scraper._tasks:
                    await asyncio.sleep(0.01)
                [first] = scraper._tasks.values()
                first.cancel()
                while first in scraper._tasks.values() or not scraper._tasks:
                    await asyncio.sleep(0.01)
                while not (states := scraper.report()) or not states[0].up:
                    await asyncio.sleep(0.01)
            assert scraper.discoveries() == {"found": True, "broken": False}
            assert scraper.task.failures >= 2
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert scraper._tasks == {}

    asyncio.run(run())


def test_a_flapping_target_logs_one_line_in_five_minutes(
    stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    down, up = responding(b"", "500 no"), exposed(1)
    asyncio.run(scraped(stranger, [down, up] * 31))  # 310 s
    lines = [each.getMessage() for each in caplog.records if each.name.endswith("scraper")]
    assert len(lines) == 2
    assert lines[0].endswith("500")
    assert lines[1].endswith("500 (29 more failures since the last line)")


def test_a_failure_that_lasts_is_logged_although_it_began_after_another(
    stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    down, up = responding(b"", "500 no"), exposed(1)
    asyncio.run(scraped(stranger, [down, up, *[down] * 120]))  # 610 s
    lines = [each.getMessage() for each in caplog.records if each.name.endswith("scraper")]
    assert len(lines) == 2, lines


def test_a_flapping_discovery_logs_one_line_in_five_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def flap() -> None:
        clock, found = WallClock(NOW_UNIX_NS), Found("http://h:1/metrics")
        scraper = Scraper([found], MemorySink(), clock_unix_ns=clock)
        for _ in range(124):
            found.lost = not found.lost
            await scraper.discover()
            clock.unix_ns += 5 * 10**9

    asyncio.run(flap())
    assert [each.getMessage() for each in caplog.records] == [
        "scrape targets: gone",
        "scrape targets: gone (29 more failures since the last line)",
        "scrape targets: gone (29 more failures since the last line)",
    ]
