"""Read the state of a fleet: samples, requests, starts and incidents of a window."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from analysis.starts import LABELS, Start, StartsQuestion, answer_starts
from analysis.stored_data import StoredData, stored_data
from store.alerting.incidents import read_overlapping
from store.columns.downsampled import engine_samples, gpu_samples, requests
from store.replicas.cold_starts import all_starts_between
from store.replicas.engine_starts import in_force, starts_between
from store.retention import KEEP_ROWS_NS
from telemetry.cold_starts import ColdStart
from telemetry.incidents import IncidentRow
from telemetry.labels import SAMPLE_LABELS
from telemetry.starts import EngineStart
from telemetry.window import Window

_SECOND_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class FleetQuestion:
    """A window of a fleet.

    Attributes:
        equals: labels of the requests. Those that engines have also select the engines.
        engine_columns, gpu_columns, request_columns: the columns to read.
        first_of: the number of the newest starts whose first requests are read.
    """

    window: Window
    equals: Mapping[str, str]
    engine_columns: Sequence[str]
    gpu_columns: Sequence[str]
    request_columns: Sequence[str]
    first_of: int


@dataclass(frozen=True, slots=True)
class FleetState:
    """The rows of a fleet. In a long window, only the rows of some time slots are read.

    Attributes:
        samples_every_s: seconds between the slots of engine samples, or None if all were read.
        requests_one_in: one of this many slots of requests was read.
        before, between, at_end: the engines' starts in force before the window, in it, and in force
            at its end.
        known_starts: the starts with measured parts since the oldest stored rows.
        newest_starts: the newest starts of the window, with their first requests.
        incident: the newest incident that overlaps the window, or None.
        ignored_labels: labels of the question that engines do not have.
    """

    samples: pa.Table
    samples_every_s: int | None
    gpus: pa.Table
    requests: pa.Table
    requests_one_in: int
    before: Sequence[EngineStart]
    between: Sequence[EngineStart]
    at_end: Sequence[EngineStart]
    known_starts: Sequence[ColdStart]
    newest_starts: Sequence[Start]
    incident: IncidentRow | None
    ignored_labels: Sequence[str]
    stored: StoredData


def answer_fleet(engine: Engine, question: FleetQuestion) -> FleetState:
    """Read the samples, requests, starts and incidents of a window."""
    window, equals = question.window, question.equals
    of_engine = {label: value for label, value in equals.items() if label in SAMPLE_LABELS}
    of_gpu = {label: value for label, value in equals.items() if label == "replica"}
    samples = engine_samples(engine, window, question.engine_columns, of_engine)
    traffic = requests(engine, window, question.request_columns, equals)
    incidents = read_overlapping(
        engine, window.from_unix_ns // _SECOND_NS, -(-window.to_unix_ns // _SECOND_NS)
    )
    of_start = {label: value for label, value in equals.items() if label in LABELS}
    newest = answer_starts(engine, StartsQuestion(window, of_start, question.first_of)).starts
    return FleetState(
        samples=samples.table,
        samples_every_s=samples.every_s if samples.one_in > 1 else None,
        gpus=gpu_samples(engine, window, question.gpu_columns, of_gpu).table,
        requests=traffic.table,
        requests_one_in=traffic.one_in,
        before=in_force(engine, window.from_unix_ns),
        between=starts_between(engine, window.from_unix_ns, window.to_unix_ns),
        at_end=in_force(engine, window.to_unix_ns),
        known_starts=_known_starts(engine, window, of_start),
        newest_starts=newest,
        incident=incidents[-1] if incidents else None,
        ignored_labels=[label for label in equals if label not in of_engine],
        stored=stored_data(engine, window),
    )


def _known_starts(
    engine: Engine, window: Window, of_start: Mapping[str, str]
) -> Sequence[ColdStart]:
    since = max(window.to_unix_ns - KEEP_ROWS_NS, 0)
    of_place = {label: value for label, value in of_start.items() if label != "model"}
    known = all_starts_between(engine, since, window.to_unix_ns, of_place)
    model = of_start.get("model")
    if model is None:
        return known
    return [each for each in known if each.model in (model, None)]  # unknown if it failed
