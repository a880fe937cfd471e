"""Converts the statistics of KV connectors to one format.

Pure. Each connector has its own format. The supported connectors are NIXL and offloading (with its
short and its full metric names), also inside a multi connector. Unknown statistics are ignored.

Source: vllm/distributed/kv_transfer/kv_connector/v1: nixl/stats.py, offloading/metrics.py,
multi_connector.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailspan_vllm import names

_METRICS: Final[Mapping[str, str]] = {
    "bytes_transferred": names.KV_TRANSFER_BYTES,
    "transfer_duration": names.KV_TRANSFER_TIME,
    "num_failed_transfers": names.KV_TRANSFER_FAILURES,
    "op_size": names.KV_TRANSFER_BYTES,
    "op_time": names.KV_TRANSFER_TIME,
    "vllm:kv_offload_load_bytes": names.KV_TRANSFER_BYTES,
    "vllm:kv_offload_store_bytes": names.KV_TRANSFER_BYTES,
    "vllm:kv_offload_load_time": names.KV_TRANSFER_TIME,
    "vllm:kv_offload_store_time": names.KV_TRANSFER_TIME,
}
_MAX_DEPTH: Final = 4
"""Maximum nesting depth: multi connector, its connectors, a metric, the metric's labels."""


def transferred(stats: Any) -> dict[str, int | float]:
    """Return the amounts transferred since the previous statistics, by metric name.

    Args:
        stats: vLLM's `SchedulerStats.kv_connector_stats`.
    """
    sums: dict[str, int | float] = {}
    for name, amount in _amounts(stats, _MAX_DEPTH):
        sums[name] = sums.get(name, 0) + amount
    return sums


def _amounts(stats: Any, depth: int) -> Iterator[tuple[str, int | float]]:
    if isinstance(stats, list):
        for each in stats:
            if isinstance(each, dict) and depth:
                yield from _amounts(each, depth - 1)
    elif isinstance(stats, dict):
        for key, value in stats.items():
            name = _METRICS.get(key) if isinstance(key, str) else None
            if name is not None:
                yield name, sum(_numbers(value))
            elif depth:
                yield from _amounts(value, depth - 1)


def _numbers(value: Any) -> Iterator[int | float]:
    """Yield the numbers of a metric: one number, a list of numbers, or a dictionary by labels."""
    several = value.values() if isinstance(value, dict) else value
    for each in several if isinstance(value, dict | list | tuple) else (value,):
        if isinstance(each, int | float) and each >= 0:
            yield each
