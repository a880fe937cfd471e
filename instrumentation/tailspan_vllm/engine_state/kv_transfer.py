"""Converts the statistics of KV connectors to one format. Pure.

The supported connectors are NIXL and offloading, alone or inside a multi connector. Offloading may
use short or full metric names.

Source: vllm/distributed/kv_transfer/kv_connector/v1: nixl/stats.py, offloading/metrics.py,
multi_connector.py.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tailspan_vllm import names

_METRICS: Final[Mapping[str, str | tuple[str, ...]]] = {
    "bytes_transferred": names.KV_TRANSFER_BYTES,
    "transfer_duration": names.KV_TRANSFER_TIME,
    "num_failed_transfers": names.KV_TRANSFER_FAILURES,
    "op_size": names.KV_TRANSFER_BYTES,
    "op_time": names.KV_TRANSFER_TIME,
    "vllm:kv_offload_load_bytes": (names.KV_TRANSFER_BYTES, names.KV_OFFLOAD_LOAD_BYTES),
    "vllm:kv_offload_store_bytes": (names.KV_TRANSFER_BYTES, names.KV_OFFLOAD_STORE_BYTES),
    "vllm:kv_offload_load_time": (names.KV_TRANSFER_TIME, names.KV_OFFLOAD_LOAD_TIME),
    "vllm:kv_offload_store_time": (names.KV_TRANSFER_TIME, names.KV_OFFLOAD_STORE_TIME),
    "vllm:kv_offload_allocation_failure": names.KV_OFFLOAD_STORE_FAILURES,
    "vllm:kv_offload_lookup_sync_delay_seconds": names.KV_OFFLOAD_LOOKUP_TIME,
    "vllm:kv_offload_tiering_read_bytes": names.KV_TIER_READ_BYTES,
    "vllm:kv_offload_tiering_read_time": names.KV_TIER_READ_TIME,
    "vllm:kv_offload_tiering_write_bytes": names.KV_TIER_WRITE_BYTES,
    "vllm:kv_offload_tiering_write_time": names.KV_TIER_WRITE_TIME,
}
"""Transfers to and from an offloading tier are counted in total, and for each direction."""
_BY_DIRECTION: Final[Mapping[str, Mapping[str, str]]] = {
    "CPU_to_GPU": {
        "op_size": names.KV_OFFLOAD_LOAD_BYTES,
        "op_time": names.KV_OFFLOAD_LOAD_TIME,
    },
    "GPU_to_CPU": {
        "op_size": names.KV_OFFLOAD_STORE_BYTES,
        "op_time": names.KV_OFFLOAD_STORE_TIME,
    },
}
"""A direction is a key in the offloading connector's statistics."""

_MAX_DEPTH: Final = 4
"""Maximum nesting depth: multi connector, its connectors, a metric, the metric's labels."""


def transferred(stats: Any) -> dict[str, int | float]:
    """Maps metric names to the amounts transferred since the previous statistics."""
    sums: dict[str, int | float] = {}
    for name, amount in _amounts(stats, _MAX_DEPTH):
        sums[name] = sums.get(name, 0) + amount
    return sums


def _amounts(
    stats: Any, depth: int, directed: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, int | float]]:
    if isinstance(stats, list):
        for each in stats:
            if isinstance(each, dict) and depth:
                yield from _amounts(each, depth - 1, directed)
    elif isinstance(stats, dict):
        for key, value in stats.items():
            found = _METRICS.get(key) if isinstance(key, str) else None
            if found is not None:
                amount = sum(_numbers(value))
                for name in (found,) if isinstance(found, str) else found:
                    yield name, amount
                if key in directed:
                    yield directed[key], amount
            elif depth:
                yield from _amounts(value, depth - 1, _BY_DIRECTION.get(key, directed))


def _numbers(value: Any, depth: int = 2) -> Iterator[int | float]:
    if isinstance(value, int | float):
        if value >= 0:
            yield value
    elif isinstance(value, dict | list | tuple) and depth:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each, depth - 1)
