"""The two ways on from the collector: the sink that keeps rows, the listeners that watch."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart


class Sink(Protocol):
    """Keeps rows. A repeated row is no error, so a sender may always send again."""

    def submit(
        self,
        requests: Sequence[RequestTimeline],
        samples: Sequence[EngineSample],
        starts: Sequence[EngineStart] = (),
        gpus: Sequence[GpuSample] = (),
        in_flight: Sequence[InFlightRequest] = (),
    ) -> Future[None]:
        """Take rows without waiting.

        Returns:
            Resolves once the rows are committed. Its exception is a ValueError where the
            rows themselves cannot be kept; any other may pass, and the rows are sent again.

        Raises:
            Exception: nothing was taken, there is no room now; the rows are sent again.
        """


class Forward(Protocol):
    """Sends messages on to somebody else. Never waits, never raises."""

    def __call__(self, path: str, body: bytes, json: bool) -> None:
        """Take a message as it came, with the path that OTLP over HTTP has for it."""


class Listener(Protocol):
    """Hears of rows after their commit, on the collector's event loop: be quick.

    A batch that a sender repeats is heard of again; who counts tells repeats apart.
    """

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """These rows have been committed."""


class GpuListener(Protocol):
    """Hears of samples of GPUs after their commit, likewise."""

    def on_gpus_stored(self, gpus: Sequence[GpuSample]) -> None:
        """These samples have been committed."""


class InFlightListener(Protocol):
    """Hears of reports of requests in flight after their commit, likewise."""

    def on_in_flight_stored(self, reports: Sequence[InFlightRequest]) -> None:
        """These reports have been committed."""
