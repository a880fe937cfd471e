"""A fake of AMD SMI's Python library, as in ROCm 7."""

from collections import Counter
from typing import Any

CODES = {
    "AMDSMI_STATUS_INVAL": 1,
    "AMDSMI_STATUS_NOT_SUPPORTED": 2,
    "AMDSMI_STATUS_NOT_YET_IMPLEMENTED": 3,
    "AMDSMI_STATUS_FAIL_LOAD_MODULE": 4,
    "AMDSMI_STATUS_FAIL_LOAD_SYMBOL": 5,
    "AMDSMI_STATUS_API_FAILED": 7,
    "AMDSMI_STATUS_TIMEOUT": 8,
    "AMDSMI_STATUS_RETRY": 9,
    "AMDSMI_STATUS_NO_PERM": 10,
    "AMDSMI_STATUS_INIT_ERROR": 18,
    "AMDSMI_STATUS_BUSY": 30,
    "AMDSMI_STATUS_NOT_FOUND": 31,
    "AMDSMI_STATUS_NO_SLOT": 33,
    "AMDSMI_STATUS_DRIVER_NOT_LOADED": 34,
    "AMDSMI_STATUS_NO_DATA": 40,
    "AMDSMI_STATUS_NO_DRV": 51,
    "AMDSMI_STATUS_AMDGPU_RESTART_ERR": 54,
    "AMDSMI_STATUS_UNKNOWN_ERROR": 4294967295,
}


class AmdSmiException(Exception):  # noqa: N818 - the library's own name
    """The library's base class of errors."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.err_code = code


class AmdSmiClkType:
    """The library's types of clocks."""

    GFX, MEM = 1, 5


class AmdSmi:
    """A fake of the library.

    `answers` maps functions to results, and `failing` maps functions to error codes, for every GPU.
    All functions fail for the GPU `lost`.
    """

    AmdSmiException = AmdSmiException
    AmdSmiClkType = AmdSmiClkType

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.lost: int | None = None
        self.open = 0
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, int] = {}
        self.amdsmi_wrapper = type("wrapper", (), CODES)
        self.answers: dict[str, Any] = {
            "amdsmi_get_gpu_device_uuid": lambda gpu: f"uuid-{gpu}",
            "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
            "amdsmi_get_gpu_activity": {"gfx_activity": 97, "umc_activity": 40, "mm_activity": 0},
            "amdsmi_get_gpu_vram_info": {"vram_size": 196_608, "vram_max_bandwidth": 5300},
            "amdsmi_get_gpu_vram_usage": {"vram_total": 196_592, "vram_used": 150_000},
            "amdsmi_get_power_info": {"current_socket_power": 612, "average_socket_power": "N/A"},
            "amdsmi_get_energy_count": {
                "energy_accumulator": 2_000_000_000,
                "counter_resolution": 15.3,
                "timestamp": 5,
            },
            "amdsmi_get_clock_info": lambda _gpu, kind: (
                {"clk": 2087, "max_clk": 2100} if kind == AmdSmiClkType.GFX else {"clk": 1300}
            ),
            "amdsmi_get_violation_status": {
                "active_prochot_thrm": False,
                "active_ppt_pwr": True,
                "active_socket_thrm": False,
                "active_hbm_thrm": "N/A",
            },
            "amdsmi_get_gpu_process_list": [{"pid": 42, "name": "vllm"}, {"pid": 0, "name": "N/A"}],
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.answers:
            raise AttributeError(name)

        def call(gpu: int, *rest: Any) -> Any:
            self.calls[name] += 1
            if gpu == self.lost:
                raise AmdSmiException(CODES["AMDSMI_STATUS_NOT_FOUND"])
            if name in self.failing:
                raise AmdSmiException(self.failing[name])
            answer = self.answers[name]
            return answer(gpu, *rest) if callable(answer) else answer

        return call

    def amdsmi_init(self) -> None:
        self._may("amdsmi_init")
        self.open += 1

    def amdsmi_shut_down(self) -> None:
        self.open -= 1

    def amdsmi_get_processor_handles(self) -> list[int]:
        self._may("amdsmi_get_processor_handles")
        return list(range(self.gpus))

    def _may(self, name: str) -> None:
        self.calls[name] += 1
        if name in self.failing:
            raise AmdSmiException(self.failing[name])
