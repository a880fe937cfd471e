"""Returns an engine's identity, and the gauges of its samples."""

import os
from typing import Any

from tailspan_vllm import names
from tailspan_vllm.engine_core.link_messages import Identity
from tailspan_vllm.engine_core.step_model import FittedStepModel
from tailspan_vllm.engine_state.config_fingerprint import arguments_of, fingerprint
from tailspan_vllm.engine_state.hardware import machine_of
from tailspan_vllm.engine_state.state import Number
from tailspan_vllm.start_up import hooks as start_hooks


def identity_of(config: Any, engine: int, started_unix_ns: int) -> Identity:
    """The name, configuration and hardware of the engine in this process."""
    from vllm import __version__ as vllm_version

    served, arguments = config.model_config.served_model_name, arguments_of(config)
    return Identity(
        engine=engine,
        started_unix_ns=started_unix_ns,
        model=served if isinstance(served, str) else served[0],
        config=fingerprint(arguments),
        version=str(vllm_version),
        arguments=arguments,
        process=os.getpid(),
        machine=machine_of(config, started_unix_ns),
        start=start_hooks.RECORD.instants(),
    )


def gauges_of(model: FittedStepModel, longest_s: float) -> dict[str, float]:
    """The longest step, and the coefficients of the step model if it is fitted."""
    gauges: dict[str, float | None] = {names.LONGEST_STEP: longest_s}
    if model.ready:
        gauges |= dict(zip(names.STEP_MODEL, model.coefficients, strict=True))
        gauges[names.STEP_MODEL_ERROR] = model.error_ratio
        gauges[names.STEP_MODEL_R_SQUARED] = model.r_squared
    return {name: value for name, value in gauges.items() if value is not None}


def scheduler_load(scheduler: Any) -> dict[str, Number]:
    """Maps metric names to the numbers of requests by state, and to the share of the KV cache in
    use. Unknown values are left out."""
    load: dict[str, Number] = {
        names.RUNNING: len(scheduler.running),
        names.WAITING: sum(map(len, _queues(scheduler))),
    }
    # `deferred_waiting` since 0.31, `skipped_waiting` from 0.18 to 0.30
    deferred = getattr(scheduler, "deferred_waiting", getattr(scheduler, "skipped_waiting", None))
    if deferred is not None:
        load[names.DEFERRED] = len(deferred)
    usage = getattr(getattr(scheduler, "kv_cache_manager", None), "usage", None)
    if usage is not None:
        load[names.KV_USAGE] = usage
    fetching = getattr(scheduler, "_kv_fetch_counts", None)  # since 0.32
    if fetching is not None and getattr(scheduler, "connector", None) is not None:
        load[names.FETCHING_KV] = sum(fetching.values())
    return load


def running_with_adapter(scheduler: Any) -> int:
    """Number of requests in the batch that use an adapter."""
    return sum(request.lora_request is not None for request in scheduler.running)


def waiting_with_adapter(scheduler: Any) -> int:
    """Number of waiting requests that need an adapter."""
    return sum(
        request.lora_request is not None for queue in _queues(scheduler) for request in queue
    )


def _queues(scheduler: Any) -> tuple[Any, ...]:
    # `skipped_waiting` (0.18 to 0.30) has requests that may not yet join the batch.
    # `kv_holding_waiting` (since 0.31) has requests that already have KV blocks.
    return (
        scheduler.waiting,
        getattr(scheduler, "skipped_waiting", ()),
        getattr(scheduler, "kv_holding_waiting", ()),
    )
