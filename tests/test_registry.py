"""Tests that tables written by hand use the registry's field names (telemetry/fields.py)."""

from dataclasses import fields

import pytest
from tailspan_vllm.otlp.request_span import _AS_RECORDED
from tailspan_vllm.request.record import RequestRecord

from alerts.fields import JUDGING, SELECTING
from collector.scrape.engine_series import ENGINES
from diagnosis.inputs.requests import LABELS, NUMBERS
from exporters.definitions.engine_series import ENGINE_GAUGES, ENGINE_TOTALS
from exporters.definitions.gpu_series import GPU_GAUGES
from store.queries import REQUEST_COLUMNS
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.fields import fields_of, on_the_wire
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import Probe
from telemetry.requests import RequestTimeline

NOUNS = (RequestTimeline, EngineSample, GpuSample, Probe, CacheLookup, ColdStart)
UNITS = {
    "_unix_ns": "ns",
    "_s": "s",
    "_s_total": "s",
    "_ratio": "1",
    "_tokens": "{token}",
    "_tokens_total": "{token}",
    "_bytes": "By",
    "_bytes_total": "By",
    "_bytes_per_s": "By/s",
    "_w": "W",
    "_j_total": "J",
    "_hz": "Hz",
    "_usd": "USD",
}
"""The unit of each name suffix; the longest matching suffix applies."""


@pytest.mark.parametrize("noun", NOUNS)
def test_a_fields_name_contains_its_unit(noun: type) -> None:
    for field in fields_of(noun):
        ends = [end for end in UNITS if field.name.endswith(end)]
        if ends:
            assert field.about.unit == UNITS[max(ends, key=len)], field.name


@pytest.mark.parametrize("noun", NOUNS)
def test_field_names_in_the_protocol_are_unique(noun: type) -> None:
    """If two fields had one name, the second would receive the value of the first."""
    sent = [each.about.wire for each in fields_of(noun) if each.about.wire is not None]
    assert len(sent) == len(on_the_wire(noun))


def test_tables_that_choose_fields_name_those_of_the_registry() -> None:
    """A field that was renamed only in the registry would be ignored without an error."""
    engine = {each.name: each.is_total for each in fields_of(EngineSample)}
    assert {*NUMBERS, *LABELS, *SELECTING, *JUDGING} <= set(REQUEST_COLUMNS)
    assert not any(engine[name] for name in ENGINE_GAUGES)
    assert all(engine[name] for name in ENGINE_TOTALS)
    assert set(GPU_GAUGES) <= {each.name for each in fields_of(GpuSample)}
    for table in ENGINES:
        assert set(table.fields) <= set(engine), table.name


def test_a_report_in_flight_has_a_requests_fields_under_their_names() -> None:
    row = {field.name for field in fields(RequestTimeline)}
    assert {field.name for field in fields(InFlightRequest)} - row == {"seen_unix_ns"}


def test_the_plugins_record_has_the_registrys_names() -> None:
    """The plugin cannot import the registry, so the two tables are compared here."""
    sent = on_the_wire(RequestTimeline)
    assert {wire: sent[wire].name for wire in _AS_RECORDED} == _AS_RECORDED
    assert set(_AS_RECORDED.values()) <= {field.name for field in fields(RequestRecord)}
