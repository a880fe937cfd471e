import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from signal import SIGPIPE
from typing import Any

import pytest
from click.testing import Result

from simulator import dataset
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from telemetry.fields import fields_of
from telemetry.requests import (
    DECODE_PARTS,
    FIELDS,
    PHASES,
    PREFILL_PARTS,
    QUEUE_PARTS,
    Basis,
    Outcome,
    PricedBy,
    RequestTimeline,
    Source,
)
from tests.cli.output import objects

Run = Callable[..., Result]
Fill = Callable[..., None]
Requests = Callable[..., RequestTimeline]

DERIVED = {"tpot_s", "own_s", "others_prefill_s", "others_decode_s", "preempted_s", "stall_s"}
KEYS = {*FIELDS, *DERIVED, "started_at", "network_s"} - {"received_unix_ns"}


SUMS = {
    "e2e_s": PHASES,
    "queue_s": QUEUE_PARTS,
    "prefill_s": PREFILL_PARTS,
    "decode_s": DECODE_PARTS,
}


def test_json_contains_every_part_and_the_parts_sum(run: Run, fill: Fill) -> None:
    fault = SimulatedFault(cause="kv_cache_exhausted", start_s=20.0)
    fleet = FleetConfig(
        replicas=1,
        workload=Workload(rate_per_s=6.0),
        faults=(fault,),
        started_unix_ns=1_763_634_000 * 10**9,
        duration_s=120.0,
    )
    fill(*dataset.run(fleet).requests)
    found = objects(run("requests", "--format", "json"))
    summed = Counter[str]()
    for row in found:
        for whole, parts in SUMS.items():
            if row[whole] is not None and None not in (values := [row[part] for part in parts]):
                assert sum(values) == pytest.approx(row[whole], abs=1e-6), (whole, row)
                summed[whole] += 1
    assert len(found) > 300
    assert min(summed[whole] for whole in SUMS) > len(found) / 2
    assert max(row["queue_kv_s"] or 0.0 for row in found) > 0.1


def test_json_has_every_field_of_a_request(run: Run, fill: Fill, request_row: Requests) -> None:
    about: dict[str, Any] = {
        "trace_id": "ab" * 16,
        "request_id": "chatcmpl-x",
        "received_unix_ns": 1_763_634_001_500_000_000,
        "outcome": Outcome.LENGTH,
        "source": Source.SIMULATOR,
        "basis": Basis.ENGINE,
        "priced_by": PricedBy.LEDGER,
        "streamed": True,
        "e2e_s": 3.0,
        **dict.fromkeys(PHASES, 0.25),
        "decode_s": 2.0,
        **dict.fromkeys(QUEUE_PARTS, 0.05),
        **dict.fromkeys(PREFILL_PARTS, 0.05),
        **dict.fromkeys(DECODE_PARTS, 0.4),
        "output_tokens": 5,
    }
    sample: dict[type, Any] = {str: "a", int: 7, float: 0.125, bool: False}
    full = {
        each.name: about.get(each.name, sample[each.type]) for each in fields_of(RequestTimeline)
    }
    fill(request_row(1, **full))
    (found,) = objects(run("requests", "--format", "json"))
    assert found == {
        **{key: value for key, value in full.items() if key in KEYS},
        "started_at": 1_763_634_001.5,
        "tpot_s": 0.5,
        **{part: pytest.approx(0.45) for part in DERIVED - {"tpot_s"}},
        "network_s": None,
    }


def test_unknown_is_null(run: Run, fill: Fill, request_row: Requests) -> None:
    fill(request_row(1))
    (found,) = objects(run("requests", "--format", "json"))
    known = {"request_id", "trace_id", "span_id", "started_at", "outcome", "basis", "source"}
    assert set(found) == KEYS
    assert {key for key in KEYS if found[key] is not None} == {*known, "e2e_s"}


def test_rows_are_picked_sorted_and_limited(run: Run, fill: Fill, request_row: Requests) -> None:
    fill(
        request_row(1, tenant="a", ttft_s=0.1),
        request_row(2, tenant="b", ttft_s=0.3),
        request_row(3, tenant="a", ttft_s=0.2, outcome=Outcome.ABORT),
        request_row(4, tenant="a"),
        request_row(601, tenant="a"),
    )

    def numbers(*words: str) -> list[str]:
        found = objects(run("requests", "--format", "json", *words))
        return [each["request_id"].removeprefix("chatcmpl-") for each in found]

    assert numbers() == ["4", "3", "2", "1"]
    assert numbers("--sort", "-ttft_s") == ["2", "3", "1", "4"]
    assert numbers("--sort", "ttft_s", "--limit", "2") == ["1", "3"]
    assert numbers("--sort", "started_at", "--where", "tenant=a") == ["1", "3", "4"]
    assert numbers("--where", "tenant=a", "--where", "outcome=abort") == ["3"]
    assert numbers("--where", "model=", "--limit", "1") == ["4"]


def test_text_shows_the_window_and_the_number_and_aligns(
    run: Run, fill: Fill, request_row: Requests
) -> None:
    fill(
        request_row(1, tenant="acme", ttft_s=0.25, e2e_s=0.5),
        request_row(2, tenant="b", e2e_s=12.3456),
    )
    assert run("requests").stdout.splitlines() == [
        "Requests received 2025-11-20 10:20:00 to 10:30:00 UTC (10m)",
        "2 of 2, newest first",
        "",
        "received (UTC)       request_id  tenant  outcome    TTFT     E2E",
        "2025-11-20 10:20:02  chatcmpl-2  b       stop          -  12.3 s",
        "2025-11-20 10:20:01  chatcmpl-1  acme    stop     250 ms  500 ms",
    ]


def test_text_shows_a_screenful_and_the_total(run: Run, fill: Fill, request_row: Requests) -> None:
    fill(*(request_row(i) for i in range(30)))
    lines = run("requests").stdout.splitlines()
    assert lines[1] == "20 of 30, newest first"
    assert len(lines) == 4 + 20
    assert len(objects(run("requests", "--format", "json"))) == 30
    assert "5 of 30, sorted by -e2e_s" in run("requests", "--limit", "5", "--sort", "-e2e_s").stdout


def test_simulated_data_is_marked(run: Run, fill: Fill, request_row: Requests) -> None:
    fill(request_row(1, source=Source.SIMULATOR))
    assert "simulated data" in run("requests").stdout.splitlines()


def test_a_clients_label_cannot_send_terminal_commands(
    run: Run, fill: Fill, request_row: Requests
) -> None:
    fill(request_row(1, tenant="\x1b[2J\n\u202e"))
    assert "\x1b" not in run("requests").stdout
    assert r"\x1b[2J\n\u202e" in run("requests").stdout
    (found,) = objects(run("requests", "--format", "json"))
    assert found["tenant"] == "\x1b[2J\n\u202e"


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_empty_result_has_a_hint_and_is_not_a_failure(
    run: Run, fill: Fill, request_row: Requests, form: str
) -> None:
    def wanted(*words: str, window: bool = True) -> str:
        result = run("requests", "--format", form, *words, window=window)
        assert (result.exit_code, result.stdout) == (0, "")
        return result.stderr

    fill()
    assert "has no requests yet" in wanted()
    fill(request_row(1))
    assert "try --from 1763633101 --to 1763634002" in wanted(window=False)
    assert "with tenant=x. Remove a --where" in wanted("--where", "tenant=x")
    assert (
        "chatcmpl-1"
        in run("requests", *["--from", "1763633101", "--to", "1763634002"], window=False).stdout
    )


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--where", "tenant"], "'tenant': must be LABEL=VALUE"),
        (["--where", "colour=red"], "unknown label 'colour'; allowed: trace_id"),
        (["--where", "e2e_s=1"], "unknown label 'e2e_s'"),
        (["--where", "tenant=a", "--where", "tenant=b"], "tenant is given twice"),
        (["--where", "engine=x"], "--where 'engine=x': must be a whole number"),
        (["--sort", "colour"], "unknown key 'colour'; allowed: trace_id"),
        (["--limit", "0"], "0 is not in the range 1<=x<=2147483647"),
        (["--last", "15m"], "--last and --from exclude each other"),
    ],
)
def test_wrong_usage_exits_2_with_the_value_and_the_allowed_ones(
    run: Run, fill: Fill, words: list[str], wanted: str
) -> None:
    fill()
    result = run("requests", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert wanted in result.stderr


def test_without_a_database_nothing_is_created(run: Run, tmp_path: Path) -> None:
    result = run("requests")
    assert result.exit_code == 2
    assert "there is no database at" in result.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "tailspan.db").write_text("a letter, " * 1000)
    result = run("requests")
    assert result.exit_code == 2
    assert "file is not a database" in result.stderr


def test_the_default_window_is_the_last_quarter_of_an_hour(
    run: Run, fill: Fill, request_row: Requests
) -> None:
    now = time.time_ns()
    fill(
        request_row(1, received_unix_ns=now - 60 * 10**9),
        request_row(2, received_unix_ns=now - 3600 * 10**9),
    )
    assert len(objects(run("requests", "--format", "json", window=False))) == 1
    assert len(objects(run("requests", "--format", "json", "--last", "2h", window=False))) == 2


def test_a_closed_output_pipe_ends_the_command_as_in_a_shell(
    url: str, fill: Fill, request_row: Requests
) -> None:
    """`head -1` closes the pipe in `tailspan requests --format json | head -1`."""
    fill(*(request_row(i % 500, span_id=f"{i:016x}") for i in range(5_000)))
    words = ["requests", "--from", "1763634000", "--format", "json", "--database", url]
    with subprocess.Popen(
        [sys.executable, "-c", "from cli.main import main; main()", *words],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["request_id"] == "chatcmpl-499"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 128 + SIGPIPE


def test_the_clients_extra_latency_is_shown(run: Run, fill: Fill, request_row: Requests) -> None:
    fill(
        request_row(1, e2e_s=1.0, source=Source.INSTRUMENTATION, basis=Basis.HTTP),
        request_row(1, span_id="f" * 16, e2e_s=1.25, source=Source.CLIENT, basis=Basis.CLIENT),
    )
    (found,) = objects(run("requests", "--format", "json"))
    assert (found["source"], found["network_s"]) == ("instrumentation", 0.25)
    refused = run("requests", "--sort", "network_s")
    assert refused.exit_code == 2
    assert "network_s" in refused.output
