from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm import names
from tailspan_vllm.start_up.pod_times import parts_before

from tests.instrumentation.pods import BEGAN_NS, events_of, pod_of

NONE: dict[str, float] = {}


@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_the_pod_and_its_events_match_the_schemas_of_kubernetes(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    validate(pod_of(), version, strict=True)
    for each in events_of()["items"]:
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, **each}
        validate(event, version, strict=True)


def test_each_gap_before_the_process_is_one_part() -> None:
    assert parts_before(pod_of(), events_of(), None, BEGAN_NS) == {
        names.START_SCHEDULING: 30.0,
        names.START_IMAGE_PULL: 50.0,
        names.START_INIT_CONTAINERS: 20.0,
        names.START_CONTAINER: 7.5,
    }


def test_an_image_on_the_node_is_not_pulled() -> None:
    events = events_of()
    events["items"] = [each for each in events["items"] if each["reason"] != "Pulling"]
    parts = parts_before(pod_of(), events, None, BEGAN_NS)
    assert parts[names.START_IMAGE_PULL] == 0.0
    assert sum(parts.values()) == 107.5


@pytest.mark.parametrize(
    "events", [None, {"items": []}, {**events_of(), "metadata": {"continue": "x"}}]
)
def test_without_all_events_the_pull_is_part_of_the_container(events: Any) -> None:
    parts = parts_before(pod_of(), events, None, BEGAN_NS)
    assert names.START_IMAGE_PULL not in parts
    assert sum(parts.values()) == 107.5


def test_after_a_restart_the_start_begins_when_the_container_before_ended() -> None:
    assert parts_before(pod_of(restarts=3), events_of(), None, BEGAN_NS) == {
        names.START_CONTAINER: 17.5
    }


def test_the_name_of_the_container_selects_its_restarts() -> None:
    pod = pod_of()
    status: Any = pod["status"]
    beside = {**status["containerStatuses"][0], "name": "proxy", "restartCount": 1}
    status["containerStatuses"].append(beside)
    assert parts_before(pod, events_of(), None, BEGAN_NS) == NONE
    assert len(parts_before(pod, events_of(), "vllm", BEGAN_NS)) == 4
    assert parts_before(pod, events_of(), "other", BEGAN_NS) == NONE


@pytest.mark.parametrize("began_s", [-1e10, -200.0, -80.0])
def test_times_that_are_not_in_order_are_unknown(began_s: float) -> None:
    assert parts_before(pod_of(), events_of(), None, BEGAN_NS + round(began_s * 1e9)) == NONE


@given(
    st.dictionaries(st.integers(0, 11), st.integers(-500, 500)),
    st.integers(0, 200_000),
)
def test_parts_are_positive_and_sum_to_the_whole(moved: dict[int, int], later_ms: int) -> None:
    pod, events = pod_of(moved), events_of(moved)
    began_ns = BEGAN_NS + later_ms * 1_000_000
    parts = parts_before(pod, events, None, began_ns)
    if parts:
        assert min(parts.values()) >= 0.0
        created_s = began_ns / 1e9 - sum(parts.values())
        assert created_s == pytest.approx(BEGAN_NS / 1e9 - 107.5 + moved.get(0, 0), abs=1e-3)


_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.just("2026-11-27T10:00:00Z"),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                [
                    "status",
                    "metadata",
                    "items",
                    "containerStatuses",
                    "conditions",
                    "type",
                    "reason",
                    "restartCount",
                    "state",
                    "lastState",
                    "terminated",
                    "involvedObject",
                    "fieldPath",
                    "creationTimestamp",
                    "lastTransitionTime",
                    "finishedAt",
                    "firstTimestamp",
                ]
            ),
            inner,
        )
    ),
    max_leaves=15,
)


@given(_json, _json)
def test_any_answer_gives_positive_parts_or_none(pod: Any, events: Any) -> None:
    assert all(each >= 0.0 for each in parts_before(pod, events, None, BEGAN_NS).values())


def test_a_timestamp_without_a_zone_or_out_of_range_is_unknown() -> None:
    for text in ("2026-11-27T10:00:00", "10000-01-01T00:00:00Z", "yesterday", 5):
        pod = pod_of()
        pod["metadata"]["creationTimestamp"] = text
        assert parts_before(pod, events_of(), None, BEGAN_NS) == NONE
