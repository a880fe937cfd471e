import io
import json
from dataclasses import replace

import pytest
from sqlalchemy import Engine

import analysis.trace_export
from analysis.trace_export import exported_parts
from replay.mooncake import MooncakeWriter, read_mooncake
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.writer import Writer
from telemetry.window import Window

BLOCK = 16
CONFIG = FleetConfig(duration_s=120.0, seed=5, workload=Workload(rate_per_s=5.0))


def _found(engine: Engine) -> tuple[float, float]:
    """Export simulated requests; return the recorded hit rate, and that of an infinite cache."""
    data = run(CONFIG)
    with Writer(engine) as writer:
        writer.submit(data.requests, data.samples, starts=data.starts).result(30)
    window = Window(CONFIG.started_unix_ns, CONFIG.started_unix_ns + 120 * 10**9)
    writer_of_lines = MooncakeWriter(BLOCK)
    rows = [
        json.loads(line)
        for part in exported_parts(engine, window, {})
        for line in writer_of_lines.lines(part.arrivals)
    ]
    seen: set[int] = set()
    hits = 0
    for row in rows:
        hits += BLOCK * sum(number in seen for number in row["hash_ids"])
        seen.update(row["hash_ids"])
    prompt_tokens = sum(row["input_length"] for row in rows)
    assert prompt_tokens == sum(each.prompt_tokens or 0 for each in data.requests)
    recorded = sum(each.cached_tokens or 0 for each in data.requests)
    return recorded / prompt_tokens, hits / prompt_tokens


def test_hash_ids_give_the_recorded_hit_rate(engine: Engine) -> None:
    recorded, found = _found(engine)
    assert recorded > 0.1
    assert found == pytest.approx(recorded, abs=0.02)


def test_parts_share_no_numbers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the export numbers its blocks separately. So the export may miss a hit between
    two parts, but it never adds a hit."""
    monkeypatch.setattr(analysis.trace_export, "PART_REQUESTS", 100)
    recorded, found = _found(engine)
    assert 0 < found < recorded


def test_all_lines_have_hash_ids_although_a_part_has_no_prefixes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin was installed in the middle of the window."""
    monkeypatch.setattr(analysis.trace_export, "PART_REQUESTS", 100)
    data = run(CONFIG)
    half_ns = CONFIG.started_unix_ns + 60 * 10**9
    rows = [
        replace(each, prefix_ladder=None) if each.received_unix_ns < half_ns else each
        for each in data.requests
    ]
    with Writer(engine) as writer:
        writer.submit(rows, []).result(30)
    window = Window(CONFIG.started_unix_ns, CONFIG.started_unix_ns + 120 * 10**9)
    writer_of_lines = MooncakeWriter(BLOCK)
    parts = list(exported_parts(engine, window, {}))
    assert any(each.without_ladder == len(each.arrivals) for each in parts)
    lines = [f"{line}\n" for each in parts for line in writer_of_lines.lines(each.arrivals)]
    found = read_mooncake(io.BytesIO("".join(lines).encode()), "t.jsonl", BLOCK)
    assert len(found) == len(lines)
    assert found.prefixes is not None
