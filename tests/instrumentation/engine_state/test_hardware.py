import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm.engine_state import hardware
from tailspan_vllm.engine_state.hardware import machine_of


def a_config(device_type: str = "cuda") -> Any:
    text = SimpleNamespace(model_type="llama", hidden_size=4096, num_hidden_layers=32)
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_config=text, dtype="bfloat16"),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        device_config=SimpleNamespace(device_type=device_type),
        parallel_config=SimpleNamespace(tensor_parallel_size=4, pipeline_parallel_size=2),
    )


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    platform = SimpleNamespace(get_device_name=lambda: "NVIDIA H100 80GB HBM3")
    module = ModuleType("vllm.platforms")
    module.current_platform = platform  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", module)
    return platform


def test_an_engine_has_the_gpus_of_all_its_ranks(platform: SimpleNamespace) -> None:
    found = machine_of(a_config())
    assert (found.device, found.gpus) == ("NVIDIA H100 80GB HBM3", 8)


def test_the_ranks_that_divide_a_prefill_have_their_own_gpus(platform: SimpleNamespace) -> None:
    """With `--prefill-context-parallel-size 2`, vLLM starts twice as many workers."""
    config = a_config()
    config.parallel_config.prefill_context_parallel_size = 2
    assert machine_of(config).gpus == 16


def test_a_cpu_has_no_gpus(platform: SimpleNamespace) -> None:
    platform.get_device_name = lambda: "cpu"
    assert machine_of(a_config("cpu"))[:2] == ("cpu", None)


def test_the_hardware_report_contains_the_models_shape(platform: SimpleNamespace) -> None:
    assert machine_of(a_config()).shape["hidden_size"] == 4096


def test_a_failing_device_name_is_absent(platform: SimpleNamespace) -> None:
    def refuse() -> str:
        raise RuntimeError("no device")

    platform.get_device_name = refuse
    found = machine_of(a_config())
    assert (found.device, found.gpus) == (None, 8)
    assert found.shape


def test_an_unexpected_configuration_is_harmless(platform: SimpleNamespace) -> None:
    assert machine_of(SimpleNamespace())[:3] == ("NVIDIA H100 80GB HBM3", None, {})


def test_no_platform_starts_cuda(
    platform: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without NVML, reading the device name would use 500 MB of GPU memory in each process."""

    class NonNvmlCudaPlatform:
        def get_device_name(self) -> str:
            raise AssertionError("asked")

    module = sys.modules["vllm.platforms"]
    monkeypatch.setattr(module, "current_platform", NonNvmlCudaPlatform())
    assert machine_of(a_config())[:2] == (None, 8)


def test_loading_ends_at_readiness(
    platform: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    age_s = [300.0]
    monkeypatch.setattr(hardware, "own_age_s", lambda: age_s[0])
    monkeypatch.setattr(time, "time_ns", lambda: 1_000 * 10**9)
    assert machine_of(a_config(), 940 * 10**9).loading_s == pytest.approx(240.0)
    age_s[0] = hardware.MAX_LOADING_S + 61.0
    assert machine_of(a_config(), 940 * 10**9).loading_s is None
