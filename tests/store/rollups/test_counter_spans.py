import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select, true

from cost.energy import energy
from cost.pricefile import parse_prices
from cost.uptime import Hour, uptime_of
from store import dialects
from store.billing.billing_data import read_billing_data
from store.connections import writing
from store.retention import delete_older, delete_older_rollups
from store.rollups import sample_rollups
from store.rollups.bucket_builder import build_marked
from store.rollups.counter_spans import CounterSpans, end_to_end, joined
from store.rollups.marks import SAMPLE_ROLLUPS, begin, marked, pending
from store.rollups.sample_rollups import read_counter_spans
from store.rollups.sample_tables import ENGINES, KINDS, SAMPLE_MARKS
from store.rollups.tables import HOUR_S, MINUTE_S
from store.simulation_removal import delete_simulation
from telemetry.billing_data import COEFFICIENTS, WORK
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.window import Window

S = 10**9
START_S = 1_763_632_800
DAY_S = 86_400
LATER_S = START_S + 30 * DAY_S
EVER = Window(START_S * S, (START_S + 3 * HOUR_S) * S)
INSIDE = Window((START_S + 3_480) * S, (START_S + 7_260) * S)
PRICES = parse_prices("", "none")
QUIET_S = ((480, 3_360), (3_780, 6_960), (7_500, 9_900))
"""Seconds without samples, which keep the number of rollups small."""

Samples = Callable[..., EngineSample]
Gpus = Callable[..., GpuSample]
Write = Callable[..., None]


def awake(at_s: float) -> float:
    return next((until for start, until in QUIET_S if start < at_s < until), at_s)


def engine_samples(
    sample_row: Samples, replica: str, seed: int, every_s: float = 7.0
) -> list[EngineSample]:
    """Three hours of an engine with gaps, restarts and missing totals."""
    drawn = random.Random(seed)
    rows, at_s, started_s, process = [], 20.0, 5.0, 1
    totals = dict.fromkeys(WORK, 0.0)
    while at_s < 3 * HOUR_S - 600:
        values: dict[str, float | int] = {
            name: value if name in ("busy_s_total", "prefill_attention_total") else int(value)
            for name, value in totals.items()
        }
        if 3_450 < at_s < 3_700:
            del values["context_tokens_total"]
        fitted = {name: drawn.random() for name in COEFFICIENTS} if at_s > 200 else {}
        rows.append(
            sample_row(
                replica=replica,
                process=process,
                started_unix_ns=round((START_S + started_s) * S),
                at_unix_ns=round((START_S + at_s) * S),
                region="eu" if drawn.random() < 0.5 else None,
                **values,
                **fitted,
            )
        )
        step_s = every_s * drawn.uniform(0.5, 1.5)
        if drawn.random() < 0.05:
            step_s += drawn.choice([40.0, 55.0, 200.0])
        totals = {name: value + step_s * drawn.random() * 3 for name, value in totals.items()}
        totals["busy_s_total"] = rows[-1].busy_s_total + step_s * drawn.random()  # type: ignore[operator]
        at_s = awake(at_s + step_s)
        if drawn.random() < 0.02:
            process, started_s, totals = process + 1, at_s - 3, dict.fromkeys(WORK, 0.0)
    return rows


def powered(gpu_row: Gpus, replica: str, seed: int) -> list[GpuSample]:
    """Three hours of a GPU, whose counter restarts with a new driver."""
    drawn = random.Random(seed)
    rows, at_s, joules = [], 3.0, 1e6
    while at_s < 3 * HOUR_S - 700:
        rows.append(
            gpu_row(
                replica=replica,
                at_unix_ns=round((START_S + at_s) * S),
                energy_j_total=joules,
                model_name="NVIDIA H100 80GB HBM3" if at_s > 90 else None,
            )
        )
        step_s = drawn.uniform(3, 9) + (300 if drawn.random() < 0.02 else 0)
        at_s = awake(at_s + step_s)
        joules = joules + step_s * drawn.uniform(60, 700) if drawn.random() > 0.02 else 10.0
    return rows


def fleet(sample_row: Samples, gpu_row: Gpus) -> list[EngineSample | GpuSample]:
    return [
        *engine_samples(sample_row, "a", 1),
        *engine_samples(sample_row, "b", 2, 11.0),
        *powered(gpu_row, "a", 3),
    ]


def results(engine: Engine, window: Window = EVER) -> tuple[Any, ...]:
    """What a bill reads from samples: engine hours, GPU energy, names."""
    found = read_billing_data(engine, window)
    times = uptime_of(found.engines, found.from_unix_ns, found.to_unix_ns)
    drawn = energy(found, PRICES, times)
    return (
        {key: _of(hour) for key, hour in times.hours.items()},
        times.regions,
        times.gaps_s,
        {name: (each.joules, each.seen_s) for name, each in drawn.items()},
        dict(zip(found.gpus.gpus, found.gpus.models, strict=True)),
    )


def _of(hour: Hour) -> dict[str, float]:
    return {"wall_s": hour.wall_s, **hour.work, **hour.coefficients}


def same(now: tuple[Any, ...], before: tuple[Any, ...]) -> None:
    assert now[0].keys() == before[0].keys()
    for key, hour in before[0].items():
        assert now[0][key] == pytest.approx(hour, rel=1e-9), key
    assert now[1] == before[1]
    assert now[2] == pytest.approx(before[2], rel=1e-9)
    assert now[3].keys() == before[3].keys()
    for name, each in before[3].items():
        assert now[3][name] == pytest.approx(each, rel=1e-9)
    assert now[4] == before[4]


@pytest.fixture
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "hours":
        monkeypatch.setattr(sample_rollups, "BY_MINUTES_S", 0)
    elif request.param == "many engines":
        monkeypatch.setattr(sample_rollups, "MAX_BY_MINUTES", 0)


BY_EACH = pytest.mark.parametrize(
    ("new_url", "by"),
    [
        *itertools.product(["sqlite"], ["minutes", "hours", "many engines"]),
        *(
            pytest.param(server, by, marks=pytest.mark.real)
            for server in ("postgresql", "clickhouse")
            for by in ("minutes", "hours")
        ),
    ],
    indirect=True,
)
"""Many engines need no further queries."""


@BY_EACH
@pytest.mark.usefixtures("by")
def test_rollups_and_pending_rows_equal_all_rows(
    engine: Engine, write: Write, sample_row: Samples, gpu_row: Gpus
) -> None:
    write(*fleet(sample_row, gpu_row))
    of_rows = {window: results(engine, window) for window in (EVER, INSIDE)}
    assert len(of_rows[EVER][0]) == 6
    assert of_rows[EVER][2] > 200
    begin(engine)
    for window, expected in of_rows.items():
        same(results(engine, window), expected)
    assert build_marked(engine, START_S + 3_700).built > 5  # some minutes of the first hour
    assert pending(engine, MINUTE_S, 0, LATER_S, SAMPLE_ROLLUPS)
    for window, expected in of_rows.items():
        same(results(engine, window), expected)
    build_marked(engine, LATER_S)
    for width_s in (MINUTE_S, HOUR_S):
        assert pending(engine, width_s, 0, LATER_S, SAMPLE_ROLLUPS) == []
    for window, expected in of_rows.items():
        same(results(engine, window), expected)


@BY_EACH
@pytest.mark.usefixtures("by")
def test_late_samples_count_at_once(
    engine: Engine, write: Write, sample_row: Samples, gpu_row: Gpus
) -> None:
    rows = fleet(sample_row, gpu_row)
    late, early = rows[100:140], rows[:100] + rows[140:]
    write(*early)
    build_marked(engine, LATER_S)
    write(*late, *early[:20])
    before = results(engine)
    build_marked(engine, LATER_S)
    same(results(engine), before)
    with writing(engine) as connection:
        for kind in KINDS:
            dialects.of(engine).remove(connection, kind.rollups, kind.rollups.c.width_s > 0)
        for table in (SAMPLE_ROLLUPS.state, SAMPLE_ROLLUPS.marks):
            dialects.of(engine).remove(connection, table, table.c.width_s > 0)
    same(results(engine), before)


def test_older_rows_are_rolled_up(
    engine: Engine, write: Write, sample_row: Samples, gpu_row: Gpus
) -> None:
    write(*fleet(sample_row, gpu_row))
    of_rows = results(engine)
    with writing(engine) as connection:
        dialects.of(engine).remove(connection, SAMPLE_MARKS, true())
    first = build_marked(engine, LATER_S, most=5)
    assert first.built == 5
    assert first.remaining > 10
    same(results(engine), of_rows)
    build_marked(engine, LATER_S)
    same(results(engine), of_rows)


def kept(engine: Engine, width_s: int) -> int:
    table = ENGINES.rollups
    with engine.connect() as connection:
        found = connection.scalar(select(func.count()).where(table.c.width_s == width_s))
    return int(found or 0)


def test_a_bill_is_kept_after_samples_and_minutes_are_deleted(
    engine: Engine, write: Write, sample_row: Samples, gpu_row: Gpus
) -> None:
    write(*fleet(sample_row, gpu_row))
    of_rows = results(engine)
    delete_older(engine, 7 * DAY_S * S, LATER_S * S, pause=lambda: None)
    same(results(engine), of_rows)
    assert read_billing_data(engine, EVER).engines_from_unix_ns == 0
    write(sample_row(replica="a", at_unix_ns=(START_S + 60) * S))  # refused as too late
    build_marked(engine, LATER_S)
    assert marked(engine, MINUTE_S, SAMPLE_ROLLUPS) == {}
    same(results(engine), of_rows)
    delete_older_rollups(engine, 20 * DAY_S * S, 400 * DAY_S * S, LATER_S * S)
    assert kept(engine, MINUTE_S) == 0
    assert kept(engine, HOUR_S) == 3
    same(results(engine), of_rows)
    inside = read_billing_data(engine, INSIDE)
    assert inside.from_unix_ns == START_S * S
    same(results(engine, INSIDE), of_rows)
    delete_older_rollups(engine, 20 * DAY_S * S, 20 * DAY_S * S, LATER_S * S)
    assert kept(engine, HOUR_S) == 0
    assert read_billing_data(engine, EVER).engines_from_unix_ns > EVER.to_unix_ns


def test_simulated_rollups_are_deleted(engine: Engine, write: Write, sample_row: Samples) -> None:
    minute = [sample_row(at, replica="real", at_unix_ns=(START_S + at) * S) for at in range(50)]
    write(*minute, *(sample_row(n, replica="made", simulated=True) for n in range(50)))
    build_marked(engine, LATER_S)
    window = Window(0, LATER_S * S)
    assert read_billing_data(engine, window).simulated
    delete_simulation(engine)
    found = read_billing_data(engine, window)
    assert not found.simulated
    assert {each.replica for each in found.engines.counts} == {"real"}


def test_long_windows_and_many_engines_use_hours(
    engine: Engine, write: Write, sample_row: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have too many minutes to read one by one."""
    write(*engine_samples(sample_row, "a", 4))
    build_marked(engine, LATER_S)
    (day,) = read_counter_spans(engine, Window(START_S * S, (START_S + DAY_S) * S), [ENGINES])
    (week,) = read_counter_spans(engine, Window(START_S * S, (START_S + 7 * DAY_S) * S), [ENGINES])
    assert np.unique(day.bucket_unix_s).size > 20
    assert np.unique(week.bucket_unix_s).size == 3
    monkeypatch.setattr(sample_rollups, "MAX_BY_MINUTES", 30)
    many = read_billing_data(engine, EVER).engines.bucket_unix_s
    assert not (many[(many > many.min()) & (many < many.max())] % HOUR_S).any()


AMOUNT = st.one_of(st.none(), st.floats(0, 1e9))
PART = st.tuples(
    st.integers(0, 1), st.floats(0.001, 200), st.floats(0, 59), AMOUNT, st.floats(0, 1e6)
)


def parts_of(rows: list[tuple[int, float, float, float | None, float]]) -> CounterSpans:
    """Consecutive spans from (series, gap before, length, total, growth of the total)."""
    at_s, first_s, last_s = 0.0, [], []
    for _, silence_s, length_s, _, _ in rows:
        first_s.append(at_s + silence_s)
        last_s.append(at_s + silence_s + length_s)
        at_s = last_s[-1]
    totals = np.array([np.nan if total is None else total for *_, total, _ in rows])
    grown = totals + np.array([growth for *_, growth in rows])
    return CounterSpans(
        [("a",), ("b",)],
        [None, None],
        np.array([each[0] for each in rows], np.int64),
        np.zeros(len(rows), bool),
        np.zeros(len(rows), np.int64),
        np.array([round(each * S) for each in first_s], np.int64),
        np.array([round(each * S) for each in last_s], np.int64),
        {"t": totals},
        {"t": grown},
        {"m": totals},
    )


def growth(some: CounterSpans) -> dict[int, float]:
    """Each series' growth, within spans and between neighbouring spans."""
    found: dict[int, float] = {}
    some = some.only(np.lexsort((some.first_unix_ns, some.which)))
    for place, which in enumerate(some.which.tolist()):
        grew = [some.last["t"][place] - some.first["t"][place]]
        if place and some.which[place - 1] == which:
            silence = some.first_unix_ns[place] - some.last_unix_ns[place - 1]
            if silence <= 60 * S:
                grew.append(some.first["t"][place] - some.last["t"][place - 1])
        found[which] = found.get(which, 0.0) + sum(each for each in grew if not np.isnan(each))
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(PART, min_size=1, max_size=30))
def test_joining_loses_no_growth(rows: list[tuple[int, float, float, float | None, float]]) -> None:
    parts = parts_of(rows)
    whole = joined(parts, 0)
    assert whole.which.size <= parts.which.size
    assert growth(whole) == pytest.approx(growth(parts), rel=1e-9, abs=1e-3)
    again = joined(end_to_end([whole], ENGINES._replace(totals=("t",), means=("m",))), 0)
    assert again.first_unix_ns.tolist() == whole.first_unix_ns.tolist()
    lasting = (whole.last_unix_ns - whole.first_unix_ns).sum()
    near = 0
    ordered = parts.only(np.lexsort((parts.first_unix_ns, parts.which)))
    for place in range(1, ordered.which.size):
        if ordered.which[place] == ordered.which[place - 1] and ordered.first_unix_ns[place] in (
            set(ordered.first_unix_ns.tolist()) - set(whole.first_unix_ns.tolist())
        ):
            near += ordered.first_unix_ns[place] - ordered.last_unix_ns[place - 1]
    assert lasting == (parts.last_unix_ns - parts.first_unix_ns).sum() + near
