"""The hardware of an engine, and its loading time."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from tailspan_vllm import guard
from tailspan_vllm.engine_state.config_fingerprint import Scalar
from tailspan_vllm.engine_state.cpu_time import own_age_s
from tailspan_vllm.engine_state.model_shape import shape_of

T = TypeVar("T")

MAX_LOADING_S = 3_600.0
"""Six times VLLM_ENGINE_READY_TIMEOUT_S (600 s). If a process is older, it created the engine long
after its own start."""


class Machine(NamedTuple):
    """The device's name, the number of devices per engine, and the model's shape."""

    device: str | None
    gpus: int | None
    shape: dict[str, Scalar]
    loading_s: float | None = None
    """Seconds from the start of the process until the engine was ready."""


UNKNOWN = Machine(None, None, {})


def machine_of(vllm_config: Any, started_unix_ns: int | None = None) -> Machine:
    """What this vLLM reports about the hardware. Never raises. If `started_unix_ns` is None, the
    engine is ready now."""
    loading_s = _attempt("loading", lambda: _loading_s(started_unix_ns))
    device = _attempt("device", _device)
    gpus = _attempt("gpus", lambda: _gpus(vllm_config))
    return Machine(device, gpus, _attempt("shape", lambda: shape_of(vllm_config)) or {}, loading_s)


def _attempt(what: str, find: Callable[[], T]) -> T | None:
    try:
        return find()
    except Exception:
        guard.note_failure(what)
        return None


def _loading_s(started_unix_ns: int | None) -> float | None:
    age_s = own_age_s()
    if age_s is None:
        return None
    since_s = 0.0 if started_unix_ns is None else (time.time_ns() - started_unix_ns) / 1e9
    loading_s = max(0.0, age_s - since_s)
    return loading_s if loading_s <= MAX_LOADING_S else None


def _device() -> str | None:
    from vllm.platforms import current_platform

    if any("NonNvml" in each.__name__ for each in type(current_platform).__mro__):
        return None  # the query would initialise CUDA in this process, which takes GPU memory
    ask = getattr(current_platform, "get_device_name", None)
    name = ask() if ask is not None else None
    return name[:256] if isinstance(name, str) and name else None


def _gpus(vllm_config: Any) -> int | None:
    if getattr(vllm_config.device_config, "device_type", "cpu") == "cpu":
        return None
    parallel = vllm_config.parallel_config
    ranks = int(parallel.tensor_parallel_size) * int(parallel.pipeline_parallel_size)
    return ranks * int(getattr(parallel, "prefill_context_parallel_size", 1))
