"""Read NVIDIA GPUs through dcgm-exporters.

Use it for GPUs older than Hopper, or for GPUs on other machines. By default, an exporter samples
every 30 s. With the option `-c 1000`, it samples every second.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from collector.gpus.dcgm_series import NAMES, gpus_of
from collector.gpus.reader import (
    Absence,
    AbsenceReason,
    GpuReadFailure,
    GpuReading,
    ReaderError,
    Reading,
)
from collector.scrape.exposition import samples_of
from collector.scrape.failure_reasons import DiscoveryError, ScrapeError, ScrapeFailureReason
from collector.scrape.fetch import Clients, fetch
from collector.scrape.targets import Discovery, Target

TIMEOUT_S: Final = 5.0
_WHY: Final = {
    ScrapeFailureReason.UNREACHABLE: AbsenceReason.UNREACHABLE,
    ScrapeFailureReason.TIMEOUT: AbsenceReason.TIMEOUT,
    ScrapeFailureReason.UNAUTHORISED: AbsenceReason.SHUT,
    ScrapeFailureReason.TLS: AbsenceReason.SHUT,
    ScrapeFailureReason.NO_TOKEN: AbsenceReason.SHUT,
}


class DcgmReader:
    """Scrapes the dcgm-exporters of one `--dcgm` option."""

    def __init__(
        self,
        discovery: Discovery,
        clients: Clients,
        clock_unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._discovery = discovery
        self._clients = clients
        self._clock_unix_ns = clock_unix_ns

    async def read(self) -> Reading:
        """Return every GPU of every exporter.

        Raises:
            ReaderError: discovery fails, or all exporters fail.
        """
        try:
            targets = await self._discovery.targets()
        except DiscoveryError as error:
            raise ReaderError(Absence(AbsenceReason.UNREACHABLE, str(error))) from error
        answers = await asyncio.gather(*(self._ask(target) for target in targets))
        failures = tuple(answer for answer in answers if isinstance(answer, GpuReadFailure))
        if failures and len(failures) == len(targets):
            raise ReaderError(failures[0].absence)
        gpus = (
            gpu for answer in answers if not isinstance(answer, GpuReadFailure) for gpu in answer
        )
        return Reading(tuple(gpus), failures)

    async def _ask(self, target: Target) -> tuple[GpuReading, ...] | GpuReadFailure:
        try:
            client = self._clients.of(target.access)
            body = await fetch(client, target.url, TIMEOUT_S, target.access)
            at_unix_ns = self._clock_unix_ns()
            gpus = await asyncio.to_thread(lambda: gpus_of(samples_of(body, NAMES), at_unix_ns))
        except ScrapeError as error:
            why = _WHY.get(error.reason, AbsenceReason.NOT_UNDERSTOOD)
            return GpuReadFailure(target.url, Absence(why, f"{target.url}: {error}"))
        except Exception as error:  # a defect of Tailspan
            return GpuReadFailure(
                target.url, Absence(AbsenceReason.FAILED, f"{target.url}: {type(error).__name__}")
            )
        if not gpus:
            return GpuReadFailure(
                target.url, Absence(AbsenceReason.NOT_UNDERSTOOD, f"{target.url}: no DCGM_FI_*")
            )
        return gpus
