import json
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

from analysis.budget.answer import BudgetAnswer, BudgetQuestion, BudgetVerdict, answer_budget
from analysis.budget.as_json import as_json
from analysis.budget.budget import PARTS, LatencyBudget
from analysis.budget.measured_parts import Extent, layers_of
from analysis.budget.spending import min_requests, spend
from store.writer import Writer
from telemetry.application_operations import ApplicationOperation, Operation
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.window import Window

START_NS = 1_763_634_000_000_000_000
MS = 1e-3
WINDOW = Window(START_NS, START_NS + 3_600 * 10**9)


def budget(
    latency: str = "ttft", percentile: str = "p95", total: int = 100, **ms: int
) -> LatencyBudget:
    layers = {name.replace("__", "."): each * 10**6 for name, each in ms.items()}
    return LatencyBudget("test", latency, percentile, total * 10**6, layers)


def served(number: int, **about: Any) -> RequestTimeline:
    """Return a request: front end 5 ms, queue `number % 100` ms, prefill 40 ms, delivery 1 ms."""
    queue_s = number % 100 * MS
    plain: dict[str, Any] = {
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "request_id": f"chatcmpl-{number}",
        "received_unix_ns": START_NS + number * 10**9,
        "outcome": Outcome.STOP,
        "source": Source.INSTRUMENTATION,
        "basis": Basis.HTTP,
        "streamed": True,
        "replica": "r0",
        "frontend_s": 5 * MS,
        "queue_s": queue_s,
        "prefill_s": 40 * MS,
        "decode_s": 0.2,
        "delivery_s": 3 * MS,
        "ttft_s": queue_s + 46 * MS,
        "e2e_s": queue_s + 0.248,
    }
    return RequestTimeline(**{**plain, **about})


def client(number: int, network_ms: float = 10) -> tuple[RequestTimeline, ApplicationOperation]:
    """Return the client's row of a request, and the client's call to the model. The client's clock
    is 1,000 s behind."""
    server = served(number)
    at_ns = server.received_unix_ns - 1_000 * 10**9
    assert server.ttft_s is not None
    row = RequestTimeline(
        trace_id=server.trace_id,
        span_id=f"{number:015x}c",
        request_id=server.request_id,
        received_unix_ns=at_ns,
        outcome=Outcome.STOP,
        source=Source.CLIENT,
        basis=Basis.CLIENT,
        ttft_s=server.ttft_s + network_ms * MS,
        e2e_s=server.e2e_s + 2 * network_ms * MS,
    )
    call = ApplicationOperation(
        trace_id=row.trace_id,
        span_id=row.span_id,
        at_unix_ns=at_ns,
        operation=Operation.CALL,
        length_s=row.e2e_s,
        process="app",
    )
    return row, call


def retrieved(call: ApplicationOperation, ms: float) -> list[ApplicationOperation]:
    """Return two operations: a retrieval that ends when the call begins, and a formatting of 5 ms
    that begins when the call ends."""
    number = call.span_id[:15]

    def beside(mark: str, at_unix_ns: int, length_s: float, operation: Operation) -> Any:
        return ApplicationOperation(
            trace_id=call.trace_id,
            span_id=f"{number}{mark}",
            at_unix_ns=at_unix_ns,
            operation=operation,
            length_s=length_s,
            process="app",
        )

    end_ns = call.at_unix_ns + round(call.length_s * 1e9)
    return [
        beside("a", call.at_unix_ns - round(ms * 1e6), ms * MS, Operation.RETRIEVAL),
        beside("b", end_ns, 5 * MS, Operation.FORMATTING),
    ]


@pytest.fixture
def ask(engine: Engine) -> Any:
    def put(
        budget: LatencyBudget,
        requests: list[RequestTimeline],
        operations: list[ApplicationOperation] | None = None,
    ) -> BudgetAnswer:
        with Writer(engine) as writer:
            writer.submit(requests, [], operations=operations or []).result(10)
        return answer_budget(engine, BudgetQuestion(budget, WINDOW))

    return put


def lines(answer: BudgetAnswer) -> dict[str, tuple[float | None, float | None]]:
    assert answer.spending is not None
    return {each.layer: (each.budget_s, each.spent_s) for each in answer.spending.lines}


def check_sums(answer: BudgetAnswer) -> None:
    """Check that the lines with a budget sum to the tail's mean, and their budgets to the total."""
    found = answer.spending
    assert found is not None
    known = [each for each in found.lines if each.budget_s is not None and each.spent_s is not None]
    assert sum(each.spent_s or 0.0 for each in known) == pytest.approx(found.mean_s, abs=1e-9)
    assert sum(each.budget_s or 0.0 for each in known) == pytest.approx(found.total_s, abs=1e-9)


def test_the_tails_parts_sum_to_its_mean_and_the_queue_overspends(ask: Any) -> None:
    found = ask(budget(frontend=10, queue=20, prefill=40), [served(n) for n in range(400)])
    check_sums(found)
    spending = found.spending
    assert (spending.requests, spending.tail_requests) == (400, 20)
    # The slowest 20 of 400 requests wait 95 to 99 ms in the queue.
    assert spending.mean_s == pytest.approx(0.143)
    assert lines(found)["queue"] == pytest.approx((0.02, 0.097))
    assert lines(found)["unassigned"] == pytest.approx((0.03, 0.001))
    assert lines(found)["delivery"] == pytest.approx((None, 0.001))
    assert spending.worst.layer == "queue"
    assert spending.worst.over_s == pytest.approx(0.077)
    assert spending.percentile_s == pytest.approx(0.14)
    # If the queue takes at most 20 ms, no request takes more than 66 ms.
    assert spending.worst.within_s == pytest.approx(0.066)
    assert spending.within_ratio == pytest.approx(0.55)
    assert found.verdict is BudgetVerdict.OVER


def test_a_kept_budget_is_within(ask: Any) -> None:
    found = ask(budget(total=200, queue=100), [served(n) for n in range(400)])
    assert found.verdict is BudgetVerdict.WITHIN
    assert found.spending.worst is None
    assert found.spending.within_ratio == 1.0


def test_too_few_requests_are_no_answer(ask: Any) -> None:
    assert min_requests("p95") == 281
    found = ask(budget(), [served(n) for n in range(280)])
    assert found.verdict is BudgetVerdict.INSUFFICIENT_DATA
    assert found.spending is None
    assert (found.requests, found.needed) == (280, 281)
    empty = as_json(ask(budget("e2e", "p99"), []))
    assert (empty["verdict"], empty["layers"]) == ("insufficient_data", [])


def test_without_clients_the_network_is_unknown_and_not_zero(ask: Any) -> None:
    found = ask(budget(network=10, before=40, queue=30), [served(n) for n in range(400)])
    check_sums(found)
    assert found.extent is Extent.SERVER
    assert lines(found)["network"] == (0.01, None)
    assert lines(found)["before"] == (0.04, None)
    assert found.spending.total_s == pytest.approx(0.05)
    about = as_json(found)
    assert (about["total_counted_s"], about["with_network"]) == (0.05, 0)
    assert {each["layer"]: each["spent_s"] for each in about["layers"]}["network"] is None


def test_the_network_counts_for_requests_with_a_client(ask: Any) -> None:
    """The clients' clocks are 1,000 s behind, which changes no result."""
    rows = [served(n) for n in range(700)]
    pairs = [client(n) for n in range(350)]
    found = ask(budget(network=8, queue=30), [*rows, *(row for row, _ in pairs)])
    check_sums(found)
    assert (found.extent, found.spending.requests) == (Extent.NETWORK, 350)
    assert found.left_out == {"without_client_span": 350}
    assert lines(found)["network"] == pytest.approx((0.008, 0.01))


@pytest.mark.parametrize("latency", ["ttft", "e2e"])
def test_the_application_is_part_of_the_latency(ask: Any, latency: str) -> None:
    rows, pairs = [served(n) for n in range(300)], [client(n) for n in range(300)]
    operations = [each for _, call in pairs for each in [call, *retrieved(call, 30)]]
    planned = budget(latency, total=400, before__retrieval=20, network=30)
    found = ask(planned, [*rows, *(row for row, _ in pairs)], operations)
    check_sums(found)
    assert found.extent is Extent.APPLICATION
    assert lines(found)["before.retrieval"] == pytest.approx((0.02, 0.03))
    # The mean of the slowest 15 requests: the server, the network, and the application.
    server_s = 0.046 if latency == "ttft" else 0.248
    around_s = 0.04 if latency == "ttft" else 0.055
    assert found.spending.mean_s == pytest.approx(0.097 + server_s + around_s)
    assert ("after" in lines(found)) == (latency == "e2e")


def test_rows_may_arrive_in_any_order_and_twice(ask: Any) -> None:
    pairs = [client(n) for n in range(300)]
    operations = [each for _, call in pairs for each in [call, *retrieved(call, 30)]]
    planned = budget(before=20)
    empty = ask(planned, [], operations[::-1])
    assert empty.spending is None
    ask(planned, [served(n) for n in range(300)])
    found = ask(planned, [row for row, _ in pairs], operations)
    check_sums(found)
    assert found.extent is Extent.APPLICATION
    assert lines(found)["before"] == pytest.approx((0.02, 0.03))


def test_a_trace_without_its_client_span_is_left_out(ask: Any) -> None:
    pairs = [client(n) for n in range(400)]
    operations = [each for _, call in pairs[:300] for each in [call, *retrieved(call, 30)]]
    orphans = [each for _, call in pairs[300:] for each in retrieved(call, 30)]
    rows = [served(n) for n in range(400)]
    found = ask(budget(before=20), [*rows, *(row for row, _ in pairs)], [*operations, *orphans])
    assert found.spending.requests == 300
    assert found.left_out == {"without_client_span": 100}


def test_requests_without_this_latency_are_left_out_by_reason(ask: Any) -> None:
    rows = [served(n) for n in range(400)]
    rows += [served(400 + n, streamed=False) for n in range(3)]
    rows += [served(410 + n, queue_s=None, prefill_s=None) for n in range(2)]
    found = ask(budget(), rows)
    assert found.left_out == {"not_streamed": 3, "without_phases": 2}
    rows += [served(420, outcome=Outcome.ABORT)]
    found = ask(budget("e2e", total=900), rows)
    assert found.left_out == {"unanswered": 1, "without_phases": 2}


def test_a_layer_that_overspends_names_the_command_that_predicts_a_change(ask: Any) -> None:
    found = ask(budget(queue=10, prefill=10), [served(n) for n in range(400)])
    commands = {each["layer"]: each["predict"] for each in as_json(found)["layers"]}
    assert commands["queue"].endswith("--replicas 2")
    assert commands["prefill"].endswith("--sweep max_num_batched_tokens=1024..16384")
    assert commands["frontend"] is None
    json.dumps(as_json(found), allow_nan=False)


def test_the_lines_of_any_latencies_sum() -> None:
    rng = np.random.default_rng(3)
    for percentile in ("p50", "p90", "p95", "p99"):
        for latency in ("ttft", "e2e"):
            seconds = rng.exponential(0.1, (2_000, len(PARTS)))
            found = spend(
                budget(latency, percentile, total=9_000, queue=50, before__tool=10, network=9),
                seconds,
                layers_of(Extent.APPLICATION, latency),
            )
            known = [each for each in found.lines if each.budget_s is not None]
            total_s = sum(each.spent_s or 0.0 for each in known)
            assert total_s == pytest.approx(found.mean_s, abs=1e-9)
