"""A fake of NVIDIA's C library, which the real Python package calls."""

# ruff: noqa: N802 -- the methods are the C library's functions, under their own names

import ctypes
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

GIB = 2**30
RESERVED = 480 * 2**20
DRAM, SM, TENSOR = 10, 2, 5
H100 = "NVIDIA H100 80GB HBM3"


@dataclass
class Slice:
    """A MIG slice."""

    uuid: str
    instance: int
    gpm: dict[int, float] = field(default_factory=lambda: {DRAM: 40.0, SM: 30.0})
    processes: list[int] = field(default_factory=list)
    name: str = f"{H100} MIG 1g.10gb"


@dataclass
class Card:
    """A GPU; by default, a busy H100."""

    uuid: str = "GPU-1"
    name: str = H100
    processes: list[int] = field(default_factory=list)
    supports_gpm: bool = True
    gpm: dict[int, float] = field(
        default_factory=lambda: {
            DRAM: 62.5,
            SM: 90.0,
            TENSOR: 25.0,
            20: 3.0,
            21: 4.0,
            60: 100.0,
            61: 200.0,
        }
    )
    gpm_codes: dict[int, int] = field(default_factory=dict)
    """Error codes by GPM metric."""
    slices: list[Slice | None] | None = None
    """The MIG slices, None for an empty slot. The list is None if MIG is off or unsupported."""
    reasons: int = 0
    bus_bits: int = 5120
    failing: dict[str, int] = field(default_factory=dict)
    """Error codes by function, for this card."""


class Driver:
    """A fake of the library.

    `failing` maps functions to error codes, for every card. The functions in `old` are missing.
    """

    def __init__(self, *cards: Card) -> None:
        self.cards = list(cards)
        self.failing: dict[str, int] = {}
        self.old: set[str] = set()
        self.open = 0
        self.calls: Counter[str] = Counter()
        self.buffers: set[int] = set()
        self._next_buffer = 0x9000

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name in self.old or not hasattr(type(self), f"do_{name}"):
            raise AttributeError(name)
        do = getattr(self, f"do_{name}")

        def call(*arguments: Any) -> Any:  # a function, because the package sets its `restype`
            self.calls[name] += 1
            if name in self.failing:
                return self.failing[name]
            if arguments and isinstance(arguments[0], pynvml.c_nvmlDevice_t):
                found = self._of(arguments[0])
                card = next(c for c in self.cards if found is c or found in (c.slices or []))
                if name in card.failing:
                    return card.failing[name]
                return do(found, *arguments[1:]) or 0
            return do(*arguments) or 0

        return call

    def _of(self, handle: Any) -> Any:
        number = ctypes.cast(handle, ctypes.c_void_p).value or 0
        card = self.cards[number // 0x100 - 1]
        place = number % 0x100
        return card if not place else (card.slices or [])[place - 1]

    def do_nvmlInitWithFlags(self, _flags: int) -> None:
        self.open += 1

    def do_nvmlShutdown(self) -> None:
        self.open -= 1

    def do_nvmlDeviceGetCount_v2(self, count: Any) -> None:
        count._obj.value = len(self.cards)

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> Any:
        code = self.cards[index.value].failing.get("nvmlDeviceGetHandleByIndex_v2", 0)
        _point(handle, 0x100 * (index.value + 1))
        return code

    def do_nvmlDeviceGetUUID(self, of: Any, text: Any, _size: Any) -> None:
        text.value = of.uuid.encode()

    def do_nvmlDeviceGetName(self, of: Any, text: Any, _size: Any) -> None:
        text.value = of.name.encode()

    def do_nvmlDeviceGetPowerUsage(self, _of: Card, milliwatts: Any) -> None:
        milliwatts._obj.value = 512_500

    def do_nvmlDeviceGetTotalEnergyConsumption(self, _of: Card, millijoules: Any) -> None:
        millijoules._obj.value = 7_000_000_500

    def do_nvmlDeviceGetClockInfo(self, _of: Card, kind: Any, megahertz: Any) -> None:
        megahertz._obj.value = {1: 1755, 2: 2619}[kind.value]

    def do_nvmlDeviceGetMaxClockInfo(self, _of: Card, kind: Any, megahertz: Any) -> None:
        megahertz._obj.value = {1: 1980, 2: 2619}[kind.value]

    def do_nvmlDeviceGetCurrentClocksEventReasons(self, of: Card, mask: Any) -> None:
        mask._obj.value = of.reasons

    def do_nvmlDeviceGetCurrentClocksThrottleReasons(self, of: Card, mask: Any) -> None:
        mask._obj.value = of.reasons

    def do_nvmlDeviceGetMemoryInfo_v2(self, of: Any, memory: Any) -> None:
        whole = isinstance(of, Card)
        memory._obj.used, memory._obj.total = (70 * GIB, 80 * GIB) if whole else (4 * GIB, 10 * GIB)
        memory._obj.reserved = RESERVED

    def do_nvmlDeviceGetMemoryInfo(self, of: Any, memory: Any) -> None:
        """Count reserved memory as used, as version 1 of the function does on an H100."""
        memory._obj.used, memory._obj.total = 70 * GIB + RESERVED, 80 * GIB

    def do_nvmlDeviceGetMemoryBusWidth(self, of: Card, bits: Any) -> None:
        bits._obj.value = of.bus_bits

    def do_nvmlDeviceGetMigMode(self, of: Card, current: Any, pending: Any) -> None:
        current._obj.value = pending._obj.value = int(of.slices is not None)

    def do_nvmlDeviceGetMaxMigDeviceCount(self, of: Card, count: Any) -> None:
        count._obj.value = len(of.slices or [])

    def do_nvmlDeviceGetMigDeviceHandleByIndex(self, of: Card, place: Any, handle: Any) -> Any:
        if (of.slices or [])[place.value] is None:
            return pynvml.NVML_ERROR_NOT_FOUND
        _point(handle, 0x100 * (self.cards.index(of) + 1) + place.value + 1)
        return 0

    def do_nvmlDeviceGetGpuInstanceId(self, of: Slice, instance: Any) -> None:
        instance._obj.value = of.instance

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, of: Any, count: Any, found: Any) -> Any:
        count._obj.value = len(of.processes)
        if of.processes and found is None:
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for place, pid in enumerate(of.processes):
            found[place].pid = pid
        return 0

    def do_nvmlGpmQueryDeviceSupport(self, of: Card, support: Any) -> None:
        support._obj.isSupportedDevice = int(of.supports_gpm)

    def do_nvmlGpmSampleAlloc(self, buffer: Any) -> None:
        self._next_buffer += 1
        self.buffers.add(self._next_buffer)
        _point(buffer, self._next_buffer)

    def do_nvmlGpmSampleFree(self, buffer: Any) -> None:
        self.buffers.remove(ctypes.cast(buffer, ctypes.c_void_p).value or 0)

    def do_nvmlGpmSampleGet(self, of: Card, _buffer: Any) -> None:
        self._looked = of.gpm, of.gpm_codes

    def do_nvmlGpmMigSampleGet(self, of: Card, instance: int, _buffer: Any) -> None:
        found = next(each for each in of.slices or [] if each and each.instance == instance)
        self._looked = found.gpm, of.gpm_codes

    def do_nvmlGpmMetricsGet(self, asked: Any) -> None:
        values, codes = self._looked
        for sample in (asked._obj.sample1, asked._obj.sample2):
            assert ctypes.cast(sample, ctypes.c_void_p).value in self.buffers
        for place in range(asked._obj.numMetrics):
            metric = asked._obj.metrics[place]
            known = values.get(metric.metricId)
            missing = pynvml.NVML_ERROR_NOT_SUPPORTED if known is None else 0
            metric.nvmlReturn = codes.get(metric.metricId, missing)
            metric.value = 0.0 if known is None else known

    def do_nvmlErrorString(self, _code: int) -> bytes:
        return b"as the library says"


def _point(reference: Any, number: int) -> None:
    ctypes.memmove(
        ctypes.addressof(reference._obj),
        ctypes.byref(ctypes.c_void_p(number)),
        ctypes.sizeof(ctypes.c_void_p),
    )
