import json
from pathlib import Path
from typing import Any

import pytest

from collector.normalise.batch import NormalisedBatch
from collector.normalise.engine_points import normalise_points
from collector.normalise.known_layouts import KnownLayouts
from collector.normalise.layout_learning import learn
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample, GpuSource
from telemetry.requests import Source
from tests.collector.normalise.metric_messages import NOW_UNIX_NS

_SAMPLES = Path(__file__).parents[1] / "samples"


def _row(values: dict[str, Any]) -> EngineSample | GpuSample:
    source = values.pop("source")
    if "gpu" in values:
        return GpuSample(source=GpuSource(source), **values)
    return EngineSample(source=Source(source), **values)


@pytest.mark.parametrize("sender", ["tailspan-vllm-0.1.0", "tailspan-gpus-0.1.0"])
def test_recorded_messages_give_the_recorded_rows(sender: str) -> None:
    """Senders of older versions stay installed after the collector is updated."""
    body = (_SAMPLES / f"{sender}-metrics.otlp").read_bytes()
    recorded = json.loads((_SAMPLES / f"{sender}-metrics.rows.json").read_text())
    rows = list(map(_row, recorded["rows"]))
    layouts = KnownLayouts()
    layouts.add(learn(body, NOW_UNIX_NS))
    for batch in (normalise_points(body, NOW_UNIX_NS), layouts.read(body, NOW_UNIX_NS)):
        assert isinstance(batch, NormalisedBatch)
        assert [*batch.samples, *batch.gpus] == rows
        assert batch.accepted == recorded["accepted"]
        assert not batch.refused
