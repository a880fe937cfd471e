from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from diagnosis.inputs.arrow import requests_of
from diagnosis.one_request.account import account
from telemetry.requests import Outcome
from ui.views.request import timeline

Rows = Callable[..., pa.Table]
Request = Callable[..., Any]
LEDGER = {
    "prefill_own_s": 0.05,
    "prefill_others_prefill_s": 0.02,
    "prefill_others_decode_s": 0.01,
    "prefill_preempted_s": 0.0,
    "prefill_stall_s": 0.0,
    "queue_seats_s": 0.0,
    "queue_kv_s": 0.015,
    "queue_budget_s": 0.0,
    "queue_held_s": 0.0,
    "queue_step_s": 0.005,
}


def row_and_stages(
    request_rows: Rows, request: Any
) -> tuple[dict[str, Any], list[timeline.TimelineStage]]:
    table = request_rows([request])
    (row,) = table.to_pylist()
    return row, timeline.stages(row, account(requests_of(table), 0).parts_s)


def test_segments_cover_the_whole_request(request_rows: Rows, one_request: Request) -> None:
    row, stages = row_and_stages(request_rows, one_request(**LEDGER))
    assert [stage.name for stage in stages] == [
        *("frontend", "queue", "prefill", "decode", "delivery")
    ]
    reached = 0.0
    for stage in stages:
        assert stage.from_s == pytest.approx(reached)
        for segment in stage.segments:
            assert segment.from_s == pytest.approx(reached)
            reached += segment.length_s
        assert stage.to_s == pytest.approx(reached)
    assert reached == pytest.approx(row["e2e_s"])


def test_a_phase_consists_of_its_parts(request_rows: Rows, one_request: Request) -> None:
    _, stages = row_and_stages(request_rows, one_request(**LEDGER))
    by_name = {stage.name: stage.segments for stage in stages}
    assert [each.name for each in by_name["prefill"]] == [
        "prefill: own work",
        "prefill: others’ prompts",
        "prefill: others’ tokens",
    ]
    assert [each.name for each in by_name["queue"]] == [
        "queued: KV cache full",
        "queued: next step",
    ]
    for segments in by_name.values():
        looks = [(each.colour, each.pattern) for each in segments]
        assert len(set(looks)) == len(looks)


def test_a_held_request_has_its_reasons(request_rows: Rows, one_request: Request) -> None:
    held = {
        **LEDGER,
        "queue_seats_s": 0.0,
        "queue_kv_s": 0.0,
        "queue_budget_s": 0.0,
        "queue_step_s": 0.0,
        "queue_held_s": 0.5,
        "queue_s": 0.5,
        "adapter_wait_s": 0.3,
        "grammar_s": 0.15,
        "e2e_s": 60.0,
    }
    _, stages = row_and_stages(request_rows, one_request(**held))
    (queue,) = [stage for stage in stages if stage.name == "queue"]
    names = ["queued: grammar", "queued: adapter", "queued: held back"]
    assert [each.name for each in queue.segments] == names
    assert [each.length_s for each in queue.segments] == pytest.approx([0.15, 0.3, 0.05])
    assert len({each.pattern for each in queue.segments}) == 3


def test_without_a_ledger_a_phase_is_whole(request_rows: Rows, one_request: Request) -> None:
    _, stages = row_and_stages(request_rows, one_request(e2e_s=2.606))
    assert [len(stage.segments) for stage in stages] == [1] * 6
    assert stages[-1].name == "not split"
    assert stages[-1].length_s == pytest.approx(1.0)


def test_a_rejection_has_no_engine_phases(request_rows: Rows, one_request: Request) -> None:
    none = dict.fromkeys(
        ("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s", "ttft_s"), None
    )
    row, stages = row_and_stages(
        request_rows, one_request(e2e_s=0.01, outcome=Outcome.REJECTED, **none)
    )
    assert [stage.name for stage in stages] == ["not split"]
    assert [(each.name, each.at_s) for each in timeline.instants(row)] == [
        ("received", 0.0),
        ("refused", 0.01),
    ]


def test_instants_are_in_order(request_rows: Rows, one_request: Request) -> None:
    row, _ = row_and_stages(request_rows, one_request())
    names = [each.name for each in timeline.instants(row)]
    assert names == [*("received", "queued", "scheduled", "first token", "last token", "delivered")]
    late, _ = row_and_stages(request_rows, one_request(ttft_s=0.3))
    late_instants = timeline.instants(late)
    assert "first byte" in [each.name for each in late_instants]
    assert [each.at_s for each in late_instants] == sorted(each.at_s for each in late_instants)
    left, _ = row_and_stages(
        request_rows,
        one_request(prefill_s=None, decode_s=None, delivery_s=None, ttft_s=None, outcome="abort"),
    )
    assert [each.name for each in timeline.instants(left)] == ["received", "queued", "client left"]
    unseen, _ = row_and_stages(request_rows, one_request(basis="engine"))
    assert timeline.instants(unseen)[0].name == "arrived"


def test_the_timeline_of_the_engine_core_begins_in_the_queue(
    request_rows: Rows, one_request: Request
) -> None:
    phases = {"queue_s": 0.1, "prefill_s": 0.2, "decode_s": 0.7}
    alone = one_request(
        **{"basis": "engine", "e2e_s": 1.0, "ttft_s": 0.3, **phases},
        frontend_s=None,
        delivery_s=None,
        handoff_s=None,
    )
    row, stages = row_and_stages(request_rows, alone)
    assert [stage.name for stage in stages if stage.length_s > 1e-9] == [
        *("queue", "prefill", "decode")
    ]
    assert [(each.name, each.at_s) for each in timeline.instants(row)] == [
        ("queued", 0.0),
        ("scheduled", pytest.approx(0.1)),
        ("first token", pytest.approx(0.3)),
        ("last token", pytest.approx(1.0)),
        ("delivered", pytest.approx(1.0)),
    ]
