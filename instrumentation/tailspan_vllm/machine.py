"""What an engine runs on and what its model is built of: the ground of bytes, FLOPs and cost.

Told once, with the engine's start. Each thing that this vLLM does not tell is absent.
"""

from typing import Any, NamedTuple

from tailspan_vllm import guard
from tailspan_vllm.fingerprint import Scalar


class Machine(NamedTuple):
    """The device by name, how many of it one engine has, and the model's shape by key."""

    device: str | None
    gpus: int | None
    shape: dict[str, Scalar]


UNKNOWN = Machine(None, None, {})


def machine_of(vllm_config: Any) -> Machine:
    """What can be told of it; never raises."""
    try:
        return Machine(_device(), _gpus(vllm_config), {})
    except Exception:
        guard.note_failure("machine")
        return UNKNOWN


def _device() -> str | None:
    from vllm.platforms import current_platform

    name = current_platform.get_device_name()
    return name[:256] if isinstance(name, str) and name else None


def _gpus(vllm_config: Any) -> int | None:
    if getattr(vllm_config.device_config, "device_type", "cpu") == "cpu":
        return None
    parallel = vllm_config.parallel_config
    return int(parallel.tensor_parallel_size) * int(parallel.pipeline_parallel_size)
