from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.totals.engines import MAX_PROCESSES, EngineTotals, EngineView
from telemetry.engines import EngineSample
from telemetry.requests import Source

S = 10**9
NOW = 1_790_000_000 * S
STARTED = NOW - 3600 * S
Factory = Callable[..., EngineSample]
KEY = ("r1", 0)


@pytest.fixture
def engines(clock: Any) -> EngineTotals:
    return EngineTotals(clock)


def _steps(view: EngineView) -> float | None:
    return view.totals.get("steps_total")


def test_a_sample_is_passed_through(engines: EngineTotals, sample_row: Factory) -> None:
    engines.add(sample_row())
    [view] = engines.view().values()
    assert view == EngineView(
        model="llama",
        gauges={"waiting": 3, "running": 8, "kv_usage_ratio": 0.5, "longest_step_s": 0.02},
        totals={"steps_total": 100, "busy_s_total": 2.5, "preemptions_total": 1},
        last_sample_unix_ns=NOW,
        info=("", "", ""),
    )


def test_processes_of_one_engine_add_up(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    engines.add(sample_row(process=1, steps_total=100, waiting=3, longest_step_s=0.5))
    clock.advance(0.5)
    engines.add(sample_row(process=2, steps_total=50, waiting=7, longest_step_s=0.1))
    view = engines.view()[KEY]
    assert _steps(view) == 150
    assert (view.gauges["waiting"], view.gauges["longest_step_s"]) == (7, 0.5)


def test_requests_in_flight_add_up_over_processes(
    engines: EngineTotals, sample_row: Factory
) -> None:
    engines.add(sample_row(process=1, in_flight=3, oldest_request_age_s=95.0, last_step_age_s=90.0))
    engines.add(sample_row(process=2, in_flight=2, oldest_request_age_s=5.0, last_step_age_s=0.4))
    engines.add(sample_row(process=3, in_flight=0, oldest_request_age_s=0.0))
    gauges = engines.view()[KEY].gauges
    assert gauges["in_flight"] == 5
    assert gauges["oldest_request_age_s"] == 95.0
    assert gauges["last_step_age_s"] == 0.4


def test_repeated_and_late_samples_have_no_effect(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    early = sample_row(steps_total=10, waiting=99)
    clock.advance(1)
    newest = sample_row(steps_total=20)
    for sample in (newest, early, newest):
        engines.add(sample)
    view = engines.view()[KEY]
    assert _steps(view) == 20
    assert view.gauges["waiting"] == 3


def test_a_restart_in_place_resets(engines: EngineTotals, clock: Any, sample_row: Factory) -> None:
    """In containers, every server is process 1, so only the start times differ."""
    engines.add(sample_row(steps_total=1000))
    clock.advance(40)
    engines.add(sample_row(started_unix_ns=clock() - 5 * S, steps_total=5))
    assert _steps(engines.view()[KEY]) == 5


def test_a_restart_with_another_process_resets(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    engines.add(sample_row(process=1, steps_total=1000))
    engines.add(sample_row(process=2, steps_total=500))
    clock.advance(40)
    engines.add(sample_row(process=3, started_unix_ns=clock() - 5 * S, steps_total=5))
    assert _steps(engines.view()[KEY]) == 5


def test_a_lost_process_does_not_decrease_the_sum(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    """Prometheus would interpret a partial decrease as a reset of the whole sum."""
    engines.add(sample_row(process=1, steps_total=1000))
    clock.advance(20)
    engines.add(sample_row(process=2, steps_total=500))
    engines.add(sample_row(process=1, started_unix_ns=clock() - S, steps_total=5))
    assert _steps(engines.view()[KEY]) == 1505


def test_missing_totals_are_not_a_restart(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    engines.add(sample_row(steps_total=10))
    clock.advance(1)
    nothing = dict.fromkeys(("steps_total", "busy_s_total", "preemptions_total"))
    engines.add(sample_row(started_unix_ns=clock(), waiting=1, **nothing))
    clock.advance(1)
    engines.add(sample_row(steps_total=20))
    view = engines.view()[KEY]
    assert _steps(view) == 20


def test_a_silent_engine_keeps_totals(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    engines.add(sample_row())
    clock.advance(60)
    assert engines.view()[KEY].gauges
    clock.advance(0.001)
    assert engines.view()[KEY].gauges == {}
    assert _steps(engines.view()[KEY]) == 100


def test_neither_old_samples_nor_fast_clocks_are_fresh(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    """A sample's age is counted from its time or its arrival, whichever is earlier."""
    engines.add(sample_row(replica="late", at_unix_ns=NOW - 61 * S))
    engines.add(sample_row(replica="fast", at_unix_ns=NOW + 3600 * S))
    assert engines.view()["late", 0].gauges == {}
    assert engines.view()["fast", 0].gauges
    clock.advance(61)
    assert engines.view()["fast", 0].gauges == {}


def test_processes_without_end_are_bounded(engines: EngineTotals, sample_row: Factory) -> None:
    for process in range(3 * MAX_PROCESSES):
        engines.add(sample_row(process=process, steps_total=1))
    assert len(engines._engines[KEY].processes) == MAX_PROCESSES
    assert _steps(engines.view()[KEY]) == 3 * MAX_PROCESSES


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),  # process
            st.integers(0, 600),  # seconds after the first instant
            st.one_of(st.none(), st.integers(0, 1000)),  # steps
        ),
        max_size=40,
    )
)
def test_without_a_restart_no_total_goes_back(values: list[tuple[int, int, int | None]]) -> None:
    engines = EngineTotals(lambda: STARTED)
    last = 0.0
    for process, after_s, steps in values:
        engines.add(
            EngineSample(
                replica="r1",
                engine=0,
                process=process,
                at_unix_ns=STARTED + after_s * S,
                started_unix_ns=STARTED,
                steps_total=steps,
            )
        )
        now = _steps(engines.view()[KEY]) or 0.0
        assert now >= last
        last = now


def test_machine_wide_values_are_not_summed_over_processes(
    engines: EngineTotals, sample_row: Factory
) -> None:
    """Each API server reports the CPU time of the whole machine."""
    values = {"host_cpu_busy_s_total": 50.0, "process_cpu_s_total": 2.0}
    engines.add(sample_row(process=1, **values))
    engines.add(sample_row(process=2, **values))
    totals = engines.view()[KEY].totals
    assert (totals["host_cpu_busy_s_total"], totals["process_cpu_s_total"]) == (50.0, 4.0)


def test_a_sample_from_the_future_blocks_no_other(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    engines.add(sample_row(at_unix_ns=clock() + 8 * 86_400 * S, steps_total=10, waiting=9))
    engines.add(sample_row(steps_total=20, waiting=1))
    ((_, view),) = engines.view().items()
    assert view.totals["steps_total"] == 20
    assert view.gauges["waiting"] == 1
    assert view.last_sample_unix_ns == clock()


def test_after_a_start_of_tailspan_no_sum_of_some_processes_is_exported(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    """Prometheus would count the total of each further process as an increase."""
    before = {"started_unix_ns": STARTED}
    engines.add(sample_row(process=1, decode_tokens_total=1_000, **before))
    view = engines.view()[KEY]
    assert view.totals == {}
    assert view.gauges["waiting"] == 3
    clock.advance(20)
    engines.add(sample_row(process=2, decode_tokens_total=2_000, **before))
    clock.advance(20)
    assert engines.view()[KEY].totals["decode_tokens_total"] == 3_000


def test_the_totals_of_a_scraped_server_are_complete_at_once(
    engines: EngineTotals, sample_row: Factory
) -> None:
    engines.add(sample_row(started_unix_ns=STARTED, source=Source.SCRAPE, steps_total=100))
    assert _steps(engines.view()[KEY]) == 100


@pytest.mark.parametrize("set_back_s", [300, 3_600])
def test_a_restart_after_the_clock_was_set_back_resets(
    engines: EngineTotals, clock: Any, sample_row: Factory, set_back_s: int
) -> None:
    """The new server starts at an earlier time than the old server."""
    engines.add(sample_row(steps_total=1_000_000))
    clock.advance(-set_back_s)
    started_unix_ns = clock()
    for second in range(set_back_s + 100):
        clock.advance(1)
        engines.add(sample_row(started_unix_ns=started_unix_ns, steps_total=second))
    assert _steps(engines.view()[KEY]) == set_back_s + 99


def test_an_older_server_with_the_same_name_has_no_effect_while_the_newer_runs(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    """In containers, both servers are process 1."""
    newer = clock()
    for second in range(100):
        clock.advance(0.5)
        engines.add(sample_row(started_unix_ns=newer, steps_total=second))
        clock.advance(0.5)
        engines.add(sample_row(started_unix_ns=newer - 1, steps_total=1_000_000 + second))
    assert _steps(engines.view()[KEY]) == 99


def test_gauges_of_an_ended_process_do_not_stay_after_the_clock_was_set_back(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    engines.add(sample_row(process=1, waiting=99))
    clock.advance(-3_600)
    engines.add(sample_row(process=2, waiting=1))
    assert engines.view()[KEY].gauges["waiting"] == 1


def test_a_restart_with_another_process_after_the_clock_was_set_back_resets(
    engines: EngineTotals, clock: Any, sample_row: Factory
) -> None:
    engines.add(sample_row(process=1, steps_total=1_000_000, config="old"))
    clock.advance(-3_600)
    restarted = {"process": 2, "started_unix_ns": clock() - S, "config": "new"}
    engines.add(sample_row(steps_total=5, **restarted))
    clock.advance(60)
    engines.add(sample_row(steps_total=65, **restarted))
    view = engines.view()[KEY]
    assert _steps(view) == 65
    assert view.last_sample_unix_ns == clock()
    assert view.info[1] == "new"
