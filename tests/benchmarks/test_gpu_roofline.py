from pathlib import Path

import pytest

from benchmarks.gpu_roofline import NOTHING, level, main, table
from cost.pricefile import load_prices
from cost.pricing import Pricing
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from store.database import open_database
from store.writer import Writer
from telemetry.request_rows import RequestRows
from telemetry.window import Window


def test_the_table_has_measured_and_modelled_values_and_the_cost(tmp_path: Path) -> None:
    case = run(FleetConfig(duration_s=40.0, replicas=2, seed=3))
    pricing = Pricing(load_prices())
    pricing.update(case.starts, case.samples, case.gpus)
    requests = RequestRows.of(case.requests)
    pricing.price(requests)
    engine = open_database(f"sqlite:///{tmp_path}/tailspan.db")
    with Writer(engine) as writer:
        writer.submit(requests, case.samples, case.starts, case.gpus).result(30)
    first = min(each.at_unix_ns for each in case.samples)
    replica = case.starts[0].replica
    window = Window(first + 5 * 10**9, first + 35 * 10**9)
    found = level(engine, replica, 16, window)
    absent = level(engine, "nobody", 4, window)
    engine.dispose()
    assert found.account is not None
    assert found.requests > 10
    header, row, empty, *_ = table([found, absent])
    assert header.split()[:3] == ["clients", "req/s", "tokens/s"]
    assert row.split()[0] == "16"
    assert "memory" in row
    assert row.count(NOTHING) == 0
    assert empty.split()[3:] == [NOTHING] * 7


def test_no_server_is_loaded_without_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    """`make bench` must not load another server that listens on port 8000."""
    assert main([]) == 0
    assert main(["--port", "1"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "nothing measured: give the port of a server to load with --port"
    assert output[1].startswith("nothing measured: no server on port 1")
