"""The rows of an OTLP message, and the counts of its items that produced no row."""

from collections import Counter
from dataclasses import dataclass, field

from collector.drop_reasons import WHY, DroppedValue, Refusal, Skip
from telemetry.application_operations import ApplicationOperation
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.request_rows import RequestRows
from telemetry.starts import EngineStart


@dataclass(slots=True)
class NormalisedBatch:
    """The rows of one message. Each of its items is counted as accepted, skipped or refused."""

    requests: RequestRows = field(default_factory=RequestRows)
    samples: list[EngineSample] = field(default_factory=list)
    starts: list[EngineStart] = field(default_factory=list)
    gpus: list[GpuSample] = field(default_factory=list)
    in_flight: list[InFlightRequest] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    operations: list[ApplicationOperation] = field(default_factory=list)
    lookups: list[CacheLookup] = field(default_factory=list)
    cold_starts: list[ColdStart] = field(default_factory=list)
    accepted: int = 0
    skipped: Counter[Skip] = field(default_factory=Counter)
    refused: Counter[Refusal] = field(default_factory=Counter)
    truncated_texts: int = 0
    dropped_values: Counter[DroppedValue] = field(default_factory=Counter)
    sample_points: list[int] = field(default_factory=list)
    gpu_points: list[int] = field(default_factory=list)
    lookup_spans: list[int] = field(default_factory=list)
    """For each row of `lookups`, the number of spans to count: 0 if the span is already counted as
    a request or an operation, and 1 otherwise."""
    leads_ns: dict[str, int] = field(default_factory=dict)
    """Maps each sender to the nanoseconds by which its clock is ahead of Tailspan's clock. It
    contains only clocks that `SenderClocks` has measured."""
    why: dict[Refusal, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there are no rows to store."""
        rows = (self.requests, self.samples, self.starts, self.gpus, self.in_flight)
        spans = (self.probes, self.operations, self.lookups, self.cold_starts)
        return not any(rows) and not any(spans)

    @property
    def complaint(self) -> str:
        """The response's text about refused items, such as `2 negative, 1 too_old`."""
        why = {**WHY, **self.why}
        refused = [
            f"{count} {reason}" + (f" ({why[reason]})" if reason in why else "")
            for reason, count in self.refused.most_common()
        ]
        dropped = [f"{n} {reason} (value dropped)" for reason, n in self.dropped_values.items()]
        return ", ".join([*refused, *dropped])
