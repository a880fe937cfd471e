from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm.engine_state.kv_transfer import transferred
from tailspan_vllm.names import (
    KV_OFFLOAD_LOAD_BYTES,
    KV_OFFLOAD_LOAD_TIME,
    KV_OFFLOAD_LOOKUP_TIME,
    KV_OFFLOAD_STORE_BYTES,
    KV_OFFLOAD_STORE_FAILURES,
    KV_TIER_READ_BYTES,
    KV_TIER_WRITE_TIME,
    KV_TRANSFER_BYTES,
    KV_TRANSFER_FAILURES,
    KV_TRANSFER_TIME,
)

NIXL = {
    "transfer_duration": [0.25, 0.5],
    "post_duration": [0.01, 0.01],
    "bytes_transferred": [1000, 24],
    "num_descriptors": [3, 4],
    "num_failed_transfers": [1],
}
OFFLOADING = {
    "types": {"vllm:kv_offload_load_bytes": "counter", "vllm:kv_offload_load_size": "histogram"},
    "data": {
        "vllm:kv_offload_load_bytes": {(): 4096},
        "vllm:kv_offload_load_time": {(): 0.5},
        "vllm:kv_offload_store_bytes": {(): 1024},
        "vllm:kv_offload_load_size": {(): [4096]},
        "vllm:kv_offload_total_bytes": {("CPU_to_GPU",): 4096, ("GPU_to_CPU",): 1024},
        "vllm:kv_offload_lookup_sync_delay_seconds": {(): [0.25, 0.125]},
        "vllm:kv_offload_allocation_failure": {(): 2},
        "vllm:kv_offload_tiering_read_bytes": {("1:fs",): 512, ("2:obj",): 64},
        "vllm:kv_offload_tiering_write_time": {("1:fs",): 0.5},
    },
}
OF_OFFLOADING = {
    KV_TRANSFER_BYTES: 5120,
    KV_TRANSFER_TIME: 0.5,
    KV_OFFLOAD_LOAD_BYTES: 4096,
    KV_OFFLOAD_LOAD_TIME: 0.5,
    KV_OFFLOAD_STORE_BYTES: 1024,
    KV_OFFLOAD_LOOKUP_TIME: 0.375,
    KV_OFFLOAD_STORE_FAILURES: 2,
    KV_TIER_READ_BYTES: 576,
    KV_TIER_WRITE_TIME: 0.5,
}
OFFLOADING_BEFORE = {
    "CPU_to_GPU": [{"op_size": 10, "op_time": 0.5}, {"op_size": 20, "op_time": 0.25}],
    "GPU_to_CPU": [],
}


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (NIXL, {KV_TRANSFER_BYTES: 1024, KV_TRANSFER_TIME: 0.75, KV_TRANSFER_FAILURES: 1}),
        (OFFLOADING, OF_OFFLOADING),
        (
            OFFLOADING_BEFORE,
            {
                KV_TRANSFER_BYTES: 30,
                KV_TRANSFER_TIME: 0.75,
                KV_OFFLOAD_LOAD_BYTES: 30,
                KV_OFFLOAD_LOAD_TIME: 0.75,
            },
        ),
        (
            {"0": NIXL, "1": OFFLOADING},
            {
                **OF_OFFLOADING,
                KV_TRANSFER_BYTES: 6144,
                KV_TRANSFER_TIME: 1.25,
                KV_TRANSFER_FAILURES: 1,
            },
        ),
    ],
)
def test_each_known_shape_is_converted_to_one_form(stats: Any, expected: dict[str, float]) -> None:
    assert transferred(stats) == expected


@pytest.mark.parametrize("stats", [None, {}, {"hits": 3}, {"bytes_transferred": "many"}, 7])
def test_unknown_transfer_statistics_are_omitted(stats: Any) -> None:
    assert not any(transferred(stats).values())


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=10,
    )
)
def test_no_transfer_statistics_raise(stats: Any) -> None:
    """`record` runs on the server's event loop, so it must not raise an exception."""
    assert transferred(stats) == {}
