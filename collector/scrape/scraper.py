"""Scrape each target every few seconds, and store the samples.

Each target has its own task. Samples that the store does not accept are lost and counted.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collector.normalise.values import EARLIEST_UNIX_NS
from collector.scrape import exposition
from collector.scrape.failure_log import FailureLog
from collector.scrape.failure_reasons import DiscoveryError, ScrapeError, ScrapeFailureReason
from collector.scrape.fetch import Clients, fetch
from collector.scrape.targets import MAX_TARGETS, Discovery, Target
from collector.sink import Listener, Sink
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline, Source
from telemetry.tasks import Task

_log = logging.getLogger(__name__)

REFRESH_S: Final = 5.0
"""Interval between two discoveries of targets."""
QUIET_S: Final = 300.0
"""The scraper counts as stalled if no discovery succeeds for this time. A discovery takes 5 s if
DNS does not respond."""
MAX_TIMEOUT_S: Final = 5.0
PLUGIN_PRECEDENCE_NS: Final = 60 * 10**9
"""After a sample from a replica's plugin, scrapes of this replica are not stored for this time."""
PROCESS: Final = 0
"""The process id that is stored for scraped samples, because a scrape does not report a process
id."""


@dataclass(slots=True)
class TargetState:
    """The last results of one target."""

    target: Target
    up: bool | None = None
    """Whether the last scrape succeeded, or None before the first scrape."""
    software: str | None = None
    duration_s: float | None = None
    last_success_unix_ns: int | None = None
    unusable_values: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Maps each `ScrapeFailureReason` to the number of failures."""
    log: FailureLog = field(default_factory=FailureLog)

    @property
    def url(self) -> str:
        """The target's address."""
        return self.target.url


@dataclass(slots=True)
class _Counting:
    started_unix_ns: int
    reported_s: float | None
    totals: dict[str, float]


class Scraper(Listener):
    """Scrapes all targets until it is cancelled. It is also a listener, and records which replicas
    have the plugin."""

    def __init__(
        self,
        discoveries: Sequence[Discovery],
        sink: Sink,
        listeners: Sequence[Listener] = (),
        *,
        every_s: float = 5.0,
        clock_unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._discoveries = discoveries
        self._sink = sink
        self._listeners = listeners
        self._every_s = every_s
        self._timeout_s = min(every_s, MAX_TIMEOUT_S)
        self._clock_unix_ns = clock_unix_ns
        self._clients = Clients()
        self.task = Task("scrape", quiet_s=QUIET_S)
        self._found: dict[str, Sequence[Target]] = {}
        self.lost: dict[str, str] = {}
        """The discoveries that currently fail, and why."""
        self._discovery_logs = {each.name: FailureLog() for each in discoveries}
        self._states: dict[Target, TargetState] = {}
        self._counting: dict[tuple[Target, int], _Counting] = {}
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._ours_unix_ns: dict[str, int] = {}

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Record which replicas have the plugin."""
        now_unix_ns = self._clock_unix_ns()
        ours = {each.replica for each in samples if each.source is not Source.SCRAPE}
        # Record only replicas of targets. Senders could invent any number of names.
        for replica in ours & {target.replica for target in self._states}:
            self._ours_unix_ns[replica] = now_unix_ns

    def discoveries(self) -> dict[str, bool]:
        """Whether the last run of each discovery of targets succeeded."""
        return {
            discovery.name: discovery.name not in self.lost
            for discovery in self._discoveries
            if discovery.name in self._found or discovery.name in self.lost
        }

    def report(self) -> list[TargetState]:
        """The state of each target, sorted by address."""
        # Return a copy, because /metrics calls this method on a different thread.
        states = list(self._states.values())
        return sorted(states, key=lambda state: str(state.target))

    async def run(self) -> None:
        """Discover targets and scrape them, until cancelled."""
        try:
            while True:
                await self.discover()
                self.task.succeeded(time.time())
                for target in [each for each, task in self._tasks.items() if task.done()]:
                    # `scrape` never raises, so other code cancelled this task.
                    self.task.failed("EndedByItself")
                    del self._tasks[target]
                for target in self._states.keys() - self._tasks.keys():
                    self._tasks[target] = asyncio.create_task(self._scrape_forever(target))
                for target in self._tasks.keys() - self._states.keys():
                    self._tasks.pop(target).cancel()
                await asyncio.sleep(REFRESH_S)
        finally:
            asking, self._tasks = list(self._tasks.values()), {}
            clients, self._clients = self._clients, Clients()
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await clients.aclose()

    async def discover(self) -> None:
        """Discover targets once. If a discovery fails, its previous targets stay in use."""
        for discovery in self._discoveries:
            try:
                self._found[discovery.name] = await discovery.targets()
                self.lost.pop(discovery.name, None)
            except DiscoveryError as error:
                end = self._discovery_log(discovery, str(error))
                if end is not None:
                    _log.warning("scrape targets: %s%s", error, end)
            except Exception as error:  # a defect
                self.task.failed(error)
                end = self._discovery_log(discovery, type(error).__name__)
                if end is not None:
                    _log.exception("scrape targets: %s failed%s", discovery.name, end)
        wanted = {target.url: target for found in self._found.values() for target in found}
        now = set(list(wanted.values())[:MAX_TARGETS])
        for target in now - self._states.keys():
            self._states[target] = TargetState(target)
        for target in self._states.keys() - now:
            del self._states[target]
            for key in [key for key in self._counting if key[0] == target]:
                del self._counting[key]
        now_unix_ns = self._clock_unix_ns()
        horizon = now_unix_ns - PLUGIN_PRECEDENCE_NS
        # The clock may have been set back.
        self._ours_unix_ns = {
            replica: at for replica, at in self._ours_unix_ns.items() if horizon < at <= now_unix_ns
        }

    def _discovery_log(self, discovery: Discovery, why: str) -> str | None:
        """Record a failure. Return the end of its log line, or None if it is not logged."""
        begun = self.lost.get(discovery.name) != why
        self.lost[discovery.name] = why
        return self._discovery_logs[discovery.name].due(self._clock_unix_ns(), begun=begun)

    async def _scrape_forever(self, target: Target) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            await self.scrape(target)
            due_s = max(due_s + self._every_s, loop.time())
            await asyncio.sleep(due_s - loop.time())

    async def scrape(self, target: Target) -> None:
        """Scrape one target once, and store its samples or count the failure."""
        state = self._states[target]
        begun = time.monotonic()
        try:
            client = self._clients.of(target.access)
            body = await fetch(client, target.url, self._timeout_s, target.access)
            # Parse on a thread, because parsing a large response would block the event loop.
            answer = await asyncio.to_thread(exposition.read, body)
            await self._store_samples(target, answer)
        except ScrapeError as error:
            end = self._target_log(state)
            if end is not None:
                _log.warning("scrape: %s is down: %s%s", target.url, error, end)
            state.failures[error.reason] += 1
            return
        except Exception as error:  # a defect
            end = self._target_log(state)
            if end is not None:
                _log.exception("scrape: %s is down: parsing its response failed%s", target.url, end)
            self.task.failed(error)
            state.failures[ScrapeFailureReason.FAILED] += 1
            return
        state.up = True
        state.software = answer.software
        state.unusable_values += answer.unusable_values
        state.duration_s = time.monotonic() - begun
        state.last_success_unix_ns = self._clock_unix_ns()

    def _target_log(self, state: TargetState) -> str | None:
        """Record a failure. Return the end of its log line, or None if it is not logged."""
        begun = state.up is not False
        state.up = False
        return state.log.due(self._clock_unix_ns(), begun=begun)

    async def _store_samples(self, target: Target, answer: exposition.ParsedExposition) -> None:
        at_unix_ns = self._clock_unix_ns()
        if at_unix_ns - self._ours_unix_ns.get(target.replica, 0) < PLUGIN_PRECEDENCE_NS:
            return
        samples = [
            self._sample(target, number, fields, answer.started_unix_s, at_unix_ns)
            for number, fields in answer.engines.items()
        ]
        try:
            await asyncio.wrap_future(self._sink.submit([], samples))
        except Exception as error:  # any failure of the writer
            raise ScrapeError(ScrapeFailureReason.NOT_STORED) from error
        for listener in self._listeners:
            try:
                listener.on_stored([], samples)
            except Exception as error:  # the rows are stored
                self.task.failed(error)
                _log.exception("a listener failed on the samples of %s", target.url)

    def _sample(
        self,
        target: Target,
        number: int,
        fields: Mapping[str, Any],
        process_started_s: float | None,
        at_unix_ns: int,
    ) -> EngineSample:
        return EngineSample(
            replica=target.replica,
            engine=number,
            process=PROCESS,
            at_unix_ns=at_unix_ns,
            started_unix_ns=self._started(target, number, fields, process_started_s, at_unix_ns),
            source=Source.SCRAPE,
            region=target.region,
            **fields,
        )

    def _started(
        self,
        target: Target,
        number: int,
        fields: Mapping[str, Any],
        process_started_s: float | None,
        at_unix_ns: int,
    ) -> int:
        """The start of the totals.

        If the server does not report its start, the result is the time of the first scrape after
        the last restart. A restart is detected if the server reports a later start than before, or
        if a total is lower than in the last scrape.
        """
        usable_unix_ns = 0
        # The server's clock may be wrong. Compare in seconds, because infinity cannot be converted
        # to an integer.
        if EARLIEST_UNIX_NS / 1e9 <= (process_started_s or 0.0) <= at_unix_ns / 1e9:
            usable_unix_ns = int((process_started_s or 0.0) * 1e9)
        totals = {name: value for name, value in fields.items() if name.endswith("_total")}
        before = self._counting.get((target, number))
        if before is None:
            started_unix_ns = usable_unix_ns or at_unix_ns
        elif (
            # If a reported start is in the future, it becomes usable when this time is reached, and
            # this is not a restart.
            process_started_s != before.reported_s and usable_unix_ns > before.started_unix_ns
        ):
            started_unix_ns = usable_unix_ns
        elif any(value < before.totals.get(name, 0) for name, value in totals.items()):
            started_unix_ns = at_unix_ns
        else:
            started_unix_ns = before.started_unix_ns
        self._counting[target, number] = _Counting(started_unix_ns, process_started_s, totals)
        return started_unix_ns
