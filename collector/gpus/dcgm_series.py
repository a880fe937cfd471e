"""Convert the response of a dcgm-exporter to GPU samples. Pure.

With MIG, each slice has its own series with the label GPU_I_ID. The slices also have copies of the
card's power and energy. Tailspan drops these copies. Sources: dcgm-exporter 2.x to 4.x,
`etc/default-counters.csv` and `etc/dcp-metrics-included.csv`, with and without
`--use-old-namespace`; DCGM, "Field Identifiers".
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.samples import Sample

from collector.gpus.reader import Absence, AbsenceReason, GpuReading, Measurements
from collector.gpus.throttle_reasons import reasons_of
from collector.normalise.values import MAX_TEXT_CHARS, MAX_TOTAL, RefusalError, count, finite, ratio
from telemetry.gpus import GpuSource

MAX_GPUS: Final = 1_024
_MHZ: Final = 1_000_000
_MIB: Final = 2**20
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    # If the target already has a label of this name, Prometheus renames the exporter's label to
    # `exported_…`.
    "pod": ("exported_pod", "pod", "pod_name"),
    "namespace": ("exported_namespace", "namespace", "pod_namespace"),
    "container": ("exported_container", "container", "container_name"),
    "Hostname": ("Hostname", "hostname"),
    "UUID": ("UUID", "uuid"),
    "gpu": ("gpu",),
    "modelName": ("modelName",),
    "GPU_I_ID": ("GPU_I_ID",),
    "GPU_I_PROFILE": ("GPU_I_PROFILE",),
}
"""The names of each label in dcgm-exporters, in order of preference."""
LABELS: Final = frozenset(_LABELS)


class _Field(NamedTuple):
    name: str
    checked: Callable[[float], Any]


def _hertz(value: float) -> int:
    return count(round(finite(finite(value) * _MHZ)), MAX_TOTAL)


_FIELDS: Final[Mapping[str, _Field]] = {
    "DCGM_FI_PROF_DRAM_ACTIVE": _Field("dram_bandwidth_ratio", ratio),
    "DCGM_FI_PROF_SM_ACTIVE": _Field("sm_active_ratio", ratio),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _Field("tensor_active_ratio", ratio),
    "DCGM_FI_DEV_POWER_USAGE": _Field("power_w", finite),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _Field(
        "energy_j_total", lambda millijoules: finite(millijoules) / 1e3
    ),
    "DCGM_FI_DEV_SM_CLOCK": _Field("sm_clock_hz", _hertz),
    "DCGM_FI_DEV_MAX_SM_CLOCK": _Field("sm_clock_max_hz", _hertz),
    "DCGM_FI_DEV_MEM_CLOCK": _Field("memory_clock_hz", _hertz),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _Field(
        "throttle_reasons", lambda mask: reasons_of(count(int(finite(mask)), MAX_TOTAL))
    ),
    # The name before DCGM 3.3.
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": _Field(
        "throttle_reasons", lambda mask: reasons_of(count(int(finite(mask)), MAX_TOTAL))
    ),
    # These values are rates, even if the exporter's configuration declares a different type.
    "DCGM_FI_PROF_PCIE_RX_BYTES": _Field("pcie_rx_bytes_per_s", finite),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _Field("pcie_tx_bytes_per_s", finite),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _Field("nvlink_rx_bytes_per_s", finite),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _Field("nvlink_tx_bytes_per_s", finite),
}
_USED, _FREE, _RESERVED, _TOTAL = (
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_FB_TOTAL",
)
_INDEX: Final = re.compile("[0-9]{1,6}")
_OF_CARD: Final = ("power_w", "energy_j_total")
NAMES: Final = frozenset({*_FIELDS, _USED, _FREE, _RESERVED, _TOTAL})


def gpus_of(samples: Iterable[Sample], at_unix_ns: int) -> tuple[GpuReading, ...]:
    """The GPUs and slices in a response that have a UUID or a number. `NAMES` lists the names of
    `samples`."""
    series: dict[tuple[str, str], dict[str, float]] = {}
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for sample in samples:
        about = _labels(sample.labels)
        name = about.get("UUID") or _host_and_number(about)
        if not name or sample.value != sample.value:  # NaN means unknown
            continue
        key = name, about.get("GPU_I_ID", "")
        if key not in series and len(series) >= MAX_GPUS:
            continue
        series.setdefault(key, {})[sample.name] = sample.value
        labels.setdefault(key, {}).update(about)
    return tuple(_gpu(key, series[key], labels[key], at_unix_ns) for key in series)


def _host_and_number(labels: Mapping[str, str]) -> str:
    """The name of a GPU without a UUID. Each host has a GPU with the number 0."""
    host, number = labels.get("Hostname"), labels.get("gpu", "")
    return f"{host}/{number}" if host and number else number


def _labels(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for ours, theirs in _LABELS.items():
        value = next((given[each] for each in theirs if given.get(each)), "")
        if value:
            found[ours] = value[:MAX_TEXT_CHARS].replace("\x00", "\ufffd")
    return found


def _gpu(
    key: tuple[str, str], values: Mapping[str, float], labels: Mapping[str, str], at_unix_ns: int
) -> GpuReading:
    gpu, part = key
    into = Measurements()
    for series, value in values.items():
        if series in _FIELDS:
            name, checked = _FIELDS[series]
            try:
                into.set(name, checked(value))
            except RefusalError:
                into.set_absent(name, Absence(AbsenceReason.IMPOSSIBLE, f"{series} {value:g}"))
    _set_memory(values, into)
    if part:
        for name in _OF_CARD:
            into.values.pop(name, None)
            into.absent[name] = Absence(AbsenceReason.SLICED, "reported for the whole card only")
    no_peak = "DCGM does not report the peak memory bandwidth, which is needed for bytes/s"
    into.set_absent("dram_bandwidth_bytes_per_s", Absence(AbsenceReason.NOT_REPORTED, no_peak))
    for series, (name, _) in _FIELDS.items():
        missing = Absence(
            AbsenceReason.NOT_REPORTED, f"{series} is not among the exporter's counters"
        )
        into.set_absent(name, missing)
    into.set_rest_absent(Absence(AbsenceReason.NOT_REPORTED))
    number = labels.get("gpu", "")
    return GpuReading(
        gpu=f"{gpu}/{part}" if part else gpu,
        at_unix_ns=at_unix_ns,
        source=GpuSource.DCGM,
        index=int(number) if not part and _INDEX.fullmatch(number) else None,
        model_name=labels.get("modelName"),
        values=into.values,
        absent=into.absent,
        labels=labels,
    )


def _set_memory(values: Mapping[str, float], into: Measurements) -> None:
    """Set the memory fields. If the total memory is not reported, it is the sum of used, free and
    reserved memory."""
    used, free, total = (values.get(name) for name in (_USED, _FREE, _TOTAL))
    if total is None and used is not None and free is not None:
        total = used + free + values.get(_RESERVED, 0.0)
    for name, series, mebibytes in (
        ("memory_used_bytes", _USED, used),
        ("memory_total_bytes", _TOTAL, total),
    ):
        if mebibytes is None:
            missing = Absence(
                AbsenceReason.NOT_REPORTED, f"{series} is not among the exporter's counters"
            )
            into.set_absent(name, missing)
            continue
        try:
            into.set(name, count(round(finite(finite(mebibytes) * _MIB)), MAX_TOTAL))
        except RefusalError:
            into.set_absent(name, Absence(AbsenceReason.IMPOSSIBLE, f"{series} {mebibytes:g}"))
