from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import Engine

from cost.bill import Bill, bill
from cost.groups import BillGroup
from cost.pricefile import load_prices, parse_prices
from simulator.dataset import run
from simulator.faults import SimulatedFault
from simulator.fleet_config import FleetConfig
from store import dialects
from store.billing.billing_data import read_billing_data
from store.connections import writing
from store.retention import delete_older
from store.rollups.bucket_builder import build_marked
from store.rollups.marks import SAMPLE_ROLLUPS
from store.writer import Writer
from telemetry.billing_data import COEFFICIENTS
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.store.conftest import put

Requests = Callable[..., RequestTimeline]
NS = 10**9
HOUR_S = 490_000 * 3_600
H100 = parse_prices("replicas: [{match: 'r', usd_per_hour: 3.6}]", "mine")


def seconds(engine: Engine, from_s: int, to_s: int) -> dict[int, float]:
    cells = read_billing_data(engine, Window(from_s * NS, to_s * NS)).cells
    found: dict[int, float] = {}
    for hour, billed in zip(
        cells.hour_unix_s.tolist(), cells.sums["billed_s"].tolist(), strict=True
    ):
        found[hour - HOUR_S] = found.get(hour - HOUR_S, 0.0) + billed
    return {hour: value for hour, value in sorted(found.items()) if value}


@pytest.mark.parametrize("rolled", [True, False])
def test_two_hours_share_a_request(engine: Engine, request_row: Requests, rolled: bool) -> None:
    """It runs 10 s before the hour's end and 30 s after it: shares of 1/4 and 3/4."""
    put(
        engine,
        request_row(
            received_unix_ns=(HOUR_S + 3_580) * NS,
            replica="r",
            frontend_s=4.0,
            queue_s=6.0,
            prefill_s=10.0,
            decode_s=30.0,
            e2e_s=50.0,
            billed_s=8.0,
            wasted_s=0.0,
        ),
    )
    if rolled:
        build_marked(engine, HOUR_S + 10_000)
    assert seconds(engine, HOUR_S, HOUR_S + 7_200) == pytest.approx({0: 2.0, 3_600: 6.0})
    assert seconds(engine, HOUR_S, HOUR_S + 3_600) == pytest.approx({0: 2.0})
    assert seconds(engine, HOUR_S + 3_600, HOUR_S + 7_200) == pytest.approx({3_600: 6.0})
    assert seconds(engine, HOUR_S + 3_600, HOUR_S + 3_600 + 60) == pytest.approx({3_600: 6.0})


@pytest.mark.parametrize("rolled", [True, False])
def test_two_bills_share_a_request_of_an_earlier_hour(
    sqlite: Engine, request_row: Requests, rolled: bool
) -> None:
    """It runs for half an hour, up to 20 minutes after an hour's end. The bills meet in these 20
    minutes, and the later hour's own requests are short."""
    at: dict[str, Any] = {"replica": "r", "frontend_s": 0.0, "queue_s": 0.0, "prefill_s": 0.0}
    put(
        sqlite,
        request_row(
            1,
            received_unix_ns=(HOUR_S + 3_000) * NS,
            **at,
            decode_s=1_800.0,
            e2e_s=1_800.0,
            billed_s=1_800.0,
        ),
        request_row(
            2, received_unix_ns=(HOUR_S + 3_605) * NS, **at, decode_s=1.0, e2e_s=1.0, billed_s=1.0
        ),
    )
    if rolled:
        build_marked(sqlite, HOUR_S + 10_000)
    assert seconds(sqlite, HOUR_S, HOUR_S + 4_200) == pytest.approx({0: 600.0, 3_600: 601.0})
    assert seconds(sqlite, HOUR_S + 4_200, HOUR_S + 7_200) == pytest.approx({3_600: 600.0})
    assert seconds(sqlite, HOUR_S + 3_300, HOUR_S + 4_200) == pytest.approx(
        {0: 300.0, 3_600: 601.0}
    )


def test_deleted_samples_limit_the_bills_start(engine: Engine, request_row: Requests) -> None:
    put(engine, request_row(received_unix_ns=HOUR_S * NS, replica="r", billed_s=8.0))
    build_marked(engine, HOUR_S + 10_000)
    delete_older(engine, NS, (HOUR_S + 7_200) * NS, pause=lambda: None)
    assert (
        read_billing_data(engine, Window(HOUR_S * NS, (HOUR_S + 60) * NS)).engines_from_unix_ns == 0
    )
    with writing(engine) as connection:
        dialects.of(engine).remove(
            connection, SAMPLE_ROLLUPS.state, SAMPLE_ROLLUPS.state.c.width_s > 0
        )
    for _ in range(2):
        found = read_billing_data(engine, Window(HOUR_S * NS, (HOUR_S + 3_600) * NS))
        assert found.cells.sums["billed_s"].sum() == 8.0
        assert found.engines_from_unix_ns == pytest.approx((HOUR_S + 7_200) * NS, abs=60 * NS)
        build_marked(engine, HOUR_S + 10_000)


def test_a_label_without_rollups_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"cannot group a bill by .config.; allowed: model, lora"):
        read_billing_data(engine, Window(0, 60 * NS), ["config"])


def fleets_bill(engine: Engine, cause: str) -> Bill:
    """The bill of a minute of two replicas under a fault, up to the last sample."""
    fault = SimulatedFault(cause=cause, start_s=20.0, end_s=45.0, severity=1.0)
    case = run(FleetConfig(duration_s=60.0, replicas=2, faults=(fault,), seed=11))
    put(engine, *case.requests, *case.samples, *case.starts, *case.gpus)
    last = max(sample.at_unix_ns for sample in case.samples)
    found = bill(read_billing_data(engine, Window(0, last + 1), ["tenant"]), load_prices())
    for line in [*found.lines, *([found.total] if found.total else [])]:
        assert line.idle_usd is not None
        parts = line.requests_usd + line.wasted_usd + line.idle_usd
        parts += line.loading_usd + line.unbilled_usd
        assert parts == pytest.approx(line.bill_usd, rel=1e-9)
    return found


@pytest.mark.parametrize(("cause", "gpus"), [("preemption", 1), ("slow_rank", 4)])
def test_a_fleet_is_billed_to_the_last_second(sqlite: Engine, cause: str, gpus: int) -> None:
    found = fleets_bill(sqlite, cause)
    assert found.total is not None
    assert (found.total.wasted_usd > 0) is (cause == "preemption")
    for line in [*found.lines, found.total]:
        assert line.unbilled_usd == pytest.approx(0, abs=1e-9 * line.bill_usd)
        assert line.bill_usd == pytest.approx(line.wall_s * gpus * 3.99 / 3_600, rel=1e-9)


def test_work_for_requests_lost_with_their_engine_is_unbilled(sqlite: Engine) -> None:
    """A restart loses the accounts of running requests."""
    total = fleets_bill(sqlite, "config_change").total
    assert total is not None
    assert 0 < total.unbilled_usd < 0.15 * total.bill_usd
    assert 0 < total.loading_usd < 0.5 * total.bill_usd


HOURS: tuple[tuple[int, float, int, int], ...] = (
    (0, 1.0, 1_500, 60),
    (25, 2.0, 200, 400),
    (62, 0.5, 4_000, 200),
)
"""Hours after HOUR_S, requests per second for five minutes, tokens in, tokens out."""


def three_days(request_row: Requests, sample_row: Callable[..., EngineSample]) -> tuple[Any, Any]:
    """Requests and samples of three hours of different traffic, with restarts in between."""
    requests: list[RequestTimeline] = []
    samples: list[EngineSample] = []
    for hour, rate, prompt, output in HOURS:
        begun_s = HOUR_S + hour * 3_600
        decodes = rate * (output - 1)
        per_s = {
            "busy_s_total": 0.2 + rate * 0.3,
            "steps_total": 40.0,
            "prefill_steps_total": rate,
            "scheduled_prefill_tokens_total": rate * prompt,
            "prefill_attention_total": rate * prompt**2 / 2,
            "context_tokens_total": decodes * prompt,
            "decodes_total": decodes,
        }
        for at in range(0, 301, 10):
            totals = {name: at * each for name, each in per_s.items()}
            whole = {
                name: value if name in ("busy_s_total", "prefill_attention_total") else int(value)
                for name, value in totals.items()
            }
            fit = dict(zip(COEFFICIENTS, (0.004, 3e-5, 1e-9, 2e-8, 5e-5, 2e-3), strict=True))
            samples.append(
                sample_row(
                    replica="r",
                    started_unix_ns=begun_s * NS,
                    at_unix_ns=(begun_s + at) * NS,
                    **whole,
                    **fit,
                )
            )
        for at in range(int(300 * rate)):
            requests.append(
                request_row(
                    len(requests),
                    received_unix_ns=begun_s * NS + int(at / rate * NS),
                    replica="r",
                    frontend_s=0.0,
                    queue_s=0.1,
                    prefill_s=0.2,
                    decode_s=1.0,
                    e2e_s=1.3,
                    billed_s=0.3,
                    wasted_s=0.0,
                    prompt_tokens=prompt,
                    cached_tokens=0,
                    output_tokens=output,
                )
            )
    return requests, samples


def test_rates_are_the_same_from_rows_from_minutes_and_from_hours(
    sqlite: Engine, request_row: Requests, sample_row: Callable[..., EngineSample]
) -> None:
    requests, samples = three_days(request_row, sample_row)
    put(sqlite, *requests, *samples)
    end_s = HOUR_S + 72 * 3_600

    def billed(from_s: int, to_s: int) -> Sequence[BillGroup]:
        return bill(read_billing_data(sqlite, Window(from_s * NS, to_s * NS)), H100).groups

    (of_rows,) = billed(HOUR_S, end_s)
    build_marked(sqlite, end_s + 7_200)
    (of_hours,) = billed(HOUR_S, end_s)
    of_minutes = [
        group
        for day in range(3)
        for group in billed(HOUR_S + day * 86_400, HOUR_S + (day + 1) * 86_400)
    ]
    assert of_rows.in_usd > 0
    for name in ("usd", "in_usd", "out_usd"):
        whole = getattr(of_rows, name)
        assert getattr(of_hours, name) == pytest.approx(whole, rel=1e-9)
        assert sum(getattr(each, name) for each in of_minutes) == pytest.approx(whole, rel=1e-9)
    assert of_hours.usd_per_1k_in == pytest.approx(of_rows.usd_per_1k_in, rel=1e-9)
    # different traffic, so equal rates are no coincidence
    shares = [each.in_usd / ((each.in_usd + each.out_usd) or 1.0) for each in of_minutes]
    assert max(shares) > 2 * min(shares)


def test_two_fleets_of_one_name_have_no_negative_idle_time(sqlite: Engine) -> None:
    """Two replicas each, started 1.5 s apart: four engines together."""
    one, other = (
        run(
            FleetConfig(duration_s=60.0, replicas=2, seed=seed, started_unix_ns=round(began_s * NS))
        )
        for seed, began_s in ((1, HOUR_S), (2, HOUR_S + 1.5))
    )
    with Writer(sqlite) as writer:
        for case in (one, other):
            writer.submit(case.requests, case.samples, case.starts, case.gpus).result(30)
    found = bill(read_billing_data(sqlite, Window(HOUR_S * NS, (HOUR_S + 120) * NS)), load_prices())
    assert found.total is not None
    assert found.total.wall_s == pytest.approx(4 * 64, rel=0.05)
    assert found.engines == pytest.approx(4, rel=0.05)
    for line in [*found.lines, found.total]:
        assert line.idle_usd is not None
        assert line.idle_usd >= 0
        assert line.requests_usd <= line.bill_usd
    assert found.uptime.contradicted_s == 0


def test_minutes_have_no_negative_idle_time_and_sum_to_the_whole(sqlite: Engine) -> None:
    """A step at a minute's end is busy time of both minutes."""
    case = run(FleetConfig(duration_s=180.0, replicas=4, seed=5, started_unix_ns=HOUR_S * NS))
    put(sqlite, *case.requests, *case.samples, *case.starts, *case.gpus)

    def idle_usd(from_s: int, to_s: int) -> list[float]:
        window = Window((HOUR_S + from_s) * NS, (HOUR_S + to_s) * NS)
        return [
            line.idle_usd or 0.0
            for line in bill(read_billing_data(sqlite, window), load_prices()).lines
        ]

    minutes = [each for at in range(0, 180, 60) for each in idle_usd(at, at + 60)]
    assert min(minutes) >= 0
    assert sum(minutes) == pytest.approx(sum(idle_usd(0, 180)), rel=0.01)
