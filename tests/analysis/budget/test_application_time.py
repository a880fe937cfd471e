from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analysis.budget.application_time import TimeAroundCall, time_around_call
from telemetry.application_operations import MAX_PER_TRACE, ApplicationOperation, Operation

MS_NS = 10**6
BASE_NS = 1_763_634_000_000_000_000


def span(
    name: str, operation: Operation, start_ms: int, end_ms: int, process: str = "app"
) -> ApplicationOperation:
    return ApplicationOperation(
        trace_id="t",
        span_id=name,
        at_unix_ns=BASE_NS + start_ms * MS_NS,
        operation=operation,
        length_s=(end_ms - start_ms) / 1e3,
        process=process,
    )


def milliseconds(found: TimeAroundCall | None) -> tuple[dict[str, float], dict[str, float]]:
    assert found is not None
    before, after = (
        {str(operation): ns / MS_NS for operation, ns in part.items()}
        for part in (found.before_ns, found.after_ns)
    )
    return before, after


WORKFLOW = [
    span("root", Operation.ENCLOSING, 0, 200),
    span("check", Operation.VALIDATION, 2, 5),
    span("find", Operation.RETRIEVAL, 10, 40),
    span("embed", Operation.EMBEDDINGS, 12, 20),
    span("call", Operation.CALL, 50, 150),
    span("write", Operation.FORMATTING, 155, 190),
]


def test_each_operation_has_its_own_time() -> None:
    """Embeddings inside a retrieval count once, and the rest is `other`."""
    before, after = milliseconds(time_around_call("call", WORKFLOW))
    assert before == {"other": 17, "validation": 3, "retrieval": 22, "embeddings": 8}
    assert after == {"other": 15, "formatting": 35}
    assert sum(before.values()) == 50
    assert sum(after.values()) == 50


@given(st.permutations(WORKFLOW), st.data())
def test_order_and_repetition_do_not_matter(
    trace: Sequence[ApplicationOperation], data: st.DataObject
) -> None:
    repeated = [*trace, *data.draw(st.lists(st.sampled_from(trace)))]
    assert time_around_call("call", repeated) == time_around_call("call", WORKFLOW)


def test_without_an_enclosing_span_the_time_between_operations_counts() -> None:
    before, after = milliseconds(time_around_call("call", WORKFLOW[1:]))
    assert before == {"validation": 3, "other": 15, "retrieval": 22, "embeddings": 8}
    assert after == {"other": 5, "formatting": 35}


def test_time_between_two_calls_is_before_the_second_one() -> None:
    trace = [
        span("root", Operation.ENCLOSING, 0, 100),
        span("one", Operation.CALL, 10, 30),
        span("tool", Operation.TOOL, 32, 50),
        span("two", Operation.CALL, 60, 90),
    ]
    assert milliseconds(time_around_call("one", trace)) == ({"other": 10}, {})
    assert milliseconds(time_around_call("two", trace)) == (
        {"other": 12, "tool": 18},
        {"other": 10},
    )


def test_the_later_of_two_parallel_operations_has_the_time() -> None:
    trace = [
        span("a", Operation.RETRIEVAL, 0, 30),
        span("b", Operation.TOOL, 10, 40),
        span("call", Operation.CALL, 40, 50),
    ]
    assert milliseconds(time_around_call("call", trace)) == ({"retrieval": 10, "tool": 30}, {})


def test_a_parallel_call_is_a_call() -> None:
    trace = [
        span("root", Operation.ENCLOSING, 0, 100),
        span("long", Operation.CALL, 0, 60),
        span("call", Operation.CALL, 10, 20),
    ]
    before, after = milliseconds(time_around_call("call", trace))
    assert before == {"call": 10}
    assert after == {"call": 40, "other": 40}


def test_other_processes_corrected_clocks_and_routers_change_nothing() -> None:
    """Other clocks may be hours away, and the times of each span may be corrected differently."""
    other = [span("far", Operation.RETRIEVAL, -9_000_000, -8_000_000, process="elsewhere")]
    router = span("router", Operation.ROUTER, -1_000, 1_000)
    corrected = [
        replace(each, at_unix_ns=each.at_unix_ns - number * 7_000_000, clock_ahead_s=number * 0.007)
        for number, each in enumerate(WORKFLOW)
    ]
    for trace in ([*WORKFLOW, *other], [*WORKFLOW, router], corrected):
        assert time_around_call("call", trace) == time_around_call("call", WORKFLOW)
    assert time_around_call("call", [WORKFLOW[4], *other]) is None


def test_what_is_not_known_is_none() -> None:
    assert time_around_call("call", []) is None
    assert time_around_call("call", [WORKFLOW[4]]) is None
    assert time_around_call("missing", WORKFLOW) is None
    huge = [span(f"{number}", Operation.TOOL, number, number + 1) for number in range(900)]
    assert (
        time_around_call("call", [*WORKFLOW, *huge[: MAX_PER_TRACE - len(WORKFLOW) - 1]])
        is not None
    )
    assert time_around_call("call", [*WORKFLOW, *huge]) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(set(Operation) - {Operation.CALL, Operation.ROUTER})),
            st.integers(0, 100),
            st.integers(0, 50),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_the_parts_sum_to_the_time_around_the_call(
    drawn: list[tuple[Operation, int, int]],
) -> None:
    call = span("call", Operation.CALL, 60, 80)
    others = [
        span(f"{number}", operation, start, start + length)
        for number, (operation, start, length) in enumerate(drawn)
    ]
    before, after = milliseconds(time_around_call("call", [call, *others]))
    first = min(start for _, start, _ in drawn)
    last = max(start + length for _, start, length in drawn)
    assert round(sum(before.values()), 6) == max(0, 60 - first)
    assert round(sum(after.values()), 6) == max(0, last - 80)
    assert Operation.ENCLOSING not in before
