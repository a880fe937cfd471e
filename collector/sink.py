"""The interfaces of sinks, which store rows, and of listeners, which receive stored rows."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Protocol

from telemetry.application_operations import ApplicationOperation
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart


class Sink(Protocol):
    """Stores rows. The same row may be submitted several times, so that a sender can always
    retry."""

    def submit(
        self,
        requests: Sequence[RequestTimeline],
        samples: Sequence[EngineSample],
        starts: Sequence[EngineStart] = (),
        gpus: Sequence[GpuSample] = (),
        in_flight: Sequence[InFlightRequest] = (),
        probes: Sequence[Probe] = (),
        operations: Sequence[ApplicationOperation] = (),
        lookups: Sequence[CacheLookup] = (),
        cold_starts: Sequence[ColdStart] = (),
        *,
        leads_ns: Mapping[str, int] = MappingProxyType({}),
    ) -> Future[None]:
        """Accept rows, without waiting.

        `leads_ns` maps a sender's name to the nanoseconds by which its clock is ahead of Tailspan's
        clock.

        Returns:
            A future that completes when the rows are committed. If the rows are invalid, it fails
            with a ValueError.

        Raises:
            Exception: the sink did not accept the rows. The rows may be submitted again.
        """


class Forward(Protocol):
    """Forwards messages to another backend. A call never waits and never raises."""

    def __call__(self, path: str, body: bytes, json: bool) -> None:
        """Accept a message as it was received. `path` is the OTLP/HTTP path of its signal."""


class Listener(Protocol):
    """Receives rows after their commit, on the collector's event loop.

    A listener must return quickly. It receives the rows of a repeated message again.
    """

    def on_stored(
        self, requests: Sequence[RequestTimeline], samples: Sequence[EngineSample]
    ) -> None:
        """Process committed rows."""


class GpuListener(Protocol):
    """Receives GPU samples after their commit. See `Listener`."""

    def on_gpus_stored(self, gpus: Sequence[GpuSample]) -> None:
        """Process committed samples."""


class InFlightListener(Protocol):
    """Receives reports of requests in flight after their commit. See `Listener`."""

    def on_in_flight_stored(self, reports: Sequence[InFlightRequest]) -> None:
        """Process committed reports."""


class ProbeListener(Protocol):
    """Receives probes after their commit. See `Listener`."""

    def on_probes_stored(self, probes: Sequence[Probe]) -> None:
        """Process committed probes."""
