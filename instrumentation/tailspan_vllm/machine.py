"""What an engine runs on and what its model is built of: the ground of bytes, FLOPs and cost.

Told once, with the engine's start. Each thing that this vLLM does not tell is absent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from tailspan_vllm import guard
from tailspan_vllm.fingerprint import Scalar
from tailspan_vllm.modelshape import shape_told

T = TypeVar("T")


class Machine(NamedTuple):
    """The device by name, how many of it one engine has, and the model's shape by key."""

    device: str | None
    gpus: int | None
    shape: dict[str, Scalar]


UNKNOWN = Machine(None, None, {})


def machine_of(vllm_config: Any) -> Machine:
    """What can be told of it; never raises. What fails takes nothing else with it."""
    device = _told("device", _device)
    gpus = _told("gpus", lambda: _gpus(vllm_config))
    return Machine(device, gpus, _told("shape", lambda: shape_told(vllm_config)) or {})


def _told(what: str, find: Callable[[], T]) -> T | None:
    try:
        return find()
    except Exception:
        guard.note_failure(what)
        return None


def _device() -> str | None:
    from vllm.platforms import current_platform

    if any("NonNvml" in each.__name__ for each in type(current_platform).__mro__):
        return None  # it would ask CUDA, and take GPU memory in a process that has no use for it
    ask = getattr(current_platform, "get_device_name", None)
    name = ask() if ask is not None else None
    return name[:256] if isinstance(name, str) and name else None


def _gpus(vllm_config: Any) -> int | None:
    if getattr(vllm_config.device_config, "device_type", "cpu") == "cpu":
        return None
    parallel = vllm_config.parallel_config
    return int(parallel.tensor_parallel_size) * int(parallel.pipeline_parallel_size)
