"""The values of GPUs, and why values are missing, as text or JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from cli.render.text import UNKNOWN, count, label, printable, rate, table

if TYPE_CHECKING:
    from collector.gpus.reader import Absence, GpuReading
    from collector.gpus.sampler import ReaderState
    from telemetry.gpus import GpuSample

_WIDEST = 300
HEADER = (
    "gpu",
    "model",
    "replica",
    "throttled by",
    "DRAM %",
    "DRAM GB/s",
    "SM %",
    "tensor %",
    "memory GiB",
    "of GiB",
    "W",
    "SM MHz",
    "of MHz",
    "processes",
    "foreign",
)
_TEXTS = 4


def text_lines(samples: "Sequence[GpuSample]", states: "Sequence[ReaderState]") -> Iterator[str]:
    """Yield a table, then why values are missing."""
    states_of = {gpu.gpu: gpu for state in states for gpu in state.gpus}
    if not samples:
        yield nothing(states)
        return
    rows = [_row(sample, states_of.get(sample.gpu)) for sample in samples]
    yield from table(HEADER, rows, left=_TEXTS, keep=3)
    for sample in samples:
        gpu = states_of.get(sample.gpu)
        for why in missing_by_reason(gpu) if gpu else ():
            yield f"{label(sample.gpu)} does not report {why}"


def json_lines(samples: "Sequence[GpuSample]", states: "Sequence[ReaderState]") -> Iterator[str]:
    """Yield one JSON object per GPU. `absent` has the reasons for unknown values (null)."""
    states_of = {gpu.gpu: gpu for state in states for gpu in state.gpus}
    for sample in samples:
        fields = asdict(sample)
        at_unix_ns = fields.pop("at_unix_ns")
        gpu = states_of.get(sample.gpu)
        absent = dict(gpu.absent) if gpu else {}
        processes = None if gpu is None or gpu.processes is None else sorted(gpu.processes)
        yield json.dumps(
            {
                "at": at_unix_ns / 1e9,
                **fields,
                "processes": processes,
                "absent": {
                    name: {"why": str(each.why), "detail": each.detail}
                    for name, each in sorted(absent.items())
                },
            },
            allow_nan=False,
        )


def nothing(states: "Sequence[ReaderState]") -> str:
    """Why no GPU reports values."""
    why = reasons(states)
    return f"No GPU reports values. {why}." if why else "No GPU reports values."


def reasons(states: "Sequence[ReaderState]") -> str:
    """Why readers report no GPU, as in `nvml: no_library (…); amd_smi: no_package (…)`."""
    return "; ".join(
        f"{printable(state.name, _WIDEST)}: {_words(state.absence)}"
        for state in states
        if state.absence is not None
    )


def missing_values(
    samples: "Sequence[GpuSample]", states: "Sequence[ReaderState]"
) -> Iterator[str]:
    """Yield a line for each lost GPU.

    If some readers have values, also yield a line for each other reader. If no reader has values,
    `nothing` returns the reasons.
    """
    for state in states:
        name = printable(state.name, _WIDEST)
        if state.up is False and samples:
            yield f"{name}: {_words(state.absence)}"
        for what, absence in state.lost.items():
            yield f"{name}: {printable(what, _WIDEST)}: {_words(absence)}"


def state_sentence(states: "Sequence[ReaderState]") -> str:
    """One sentence about the sampled GPUs."""
    up = [f"{len(state.gpus)} by {state.name}" for state in states if state.up]
    down = [f"{state.name} is down: {state.absence}" for state in states if state.up is False]
    if not up and not down:
        return "There is no GPU here. Tailspan checks again every minute."
    return "; ".join([f"GPUs: {', '.join(up) or 'none'}", *down]) + "."


def missing_by_reason(gpu: "GpuReading") -> list[str]:
    """A line per reason, as in `pcie_rx, pcie_tx: not_supported (…)`."""
    by_reason: dict[str, list[str]] = {}
    for name, absence in gpu.absent.items():
        by_reason.setdefault(_words(absence), []).append(name)
    return [f"{', '.join(sorted(those))}: {why}" for why, those in sorted(by_reason.items())]


def _words(absence: "Absence | None") -> str:
    return printable(str(absence), _WIDEST)


def _row(sample: "GpuSample", gpu: "GpuReading | None") -> list[str]:
    processes = gpu.processes if gpu else None
    return [
        label(sample.gpu),
        label(sample.model_name),
        label(sample.replica),
        "nothing" if sample.throttle_reasons == "" else label(sample.throttle_reasons),
        _percent(sample.dram_bandwidth_ratio),
        _scaled(sample.dram_bandwidth_bytes_per_s, 1e9),
        _percent(sample.sm_active_ratio),
        _percent(sample.tensor_active_ratio),
        _scaled(sample.memory_used_bytes, 2**30),
        _scaled(sample.memory_total_bytes, 2**30),
        rate(sample.power_w),
        _scaled(sample.sm_clock_hz, 1e6),
        _scaled(sample.sm_clock_max_hz, 1e6),
        UNKNOWN if processes is None else count(len(processes)),
        count(sample.foreign_processes),
    ]


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f}"


def _scaled(value: float | None, unit: float) -> str:
    return UNKNOWN if value is None else rate(value / unit)
