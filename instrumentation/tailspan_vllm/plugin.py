"""The plugin that vLLM loads in every process of a server.

In API servers and in programs with an `LLM`, the plugin captures requests. In the scheduler's
process, it keeps the step ledger. In a worker, it times the worker's start.
"""

import logging
import multiprocessing
import os
import re
import sys
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE, make_token
from tailspan_vllm.settings import make_prefix_key, settings_from
from tailspan_vllm.start_up.hooks import WORKER_PROCESSES
from tailspan_vllm.start_up.process import note_first_process
from tailspan_vllm.start_up.progress import engine_number

logger = logging.getLogger("vllm.tailspan")

_ENGINE_CORES = ("EngineCore", "DPEngineCore")

_SUPERVISED = "APIServer_DPRank_"
"""The processes of `--data-parallel-multi-port-external-lb`. Each is a server with its own port.

Source: vllm/entrypoints/launchers/dp_supervisor.py, 0.22 to 0.33.
"""

TESTED = (0, 12), (0, 33)
"""The oldest and the newest minor version of vLLM whose source was checked."""

_installed = False


@guard.catch_exceptions("install")
def install() -> None:
    """Entry point `vllm.general_plugins`. Idempotent; never raises."""
    global _installed
    process = multiprocessing.current_process().name
    if _installed:
        return
    _installed = True
    if not settings_from(os.environ).enabled:
        return
    if process.startswith(WORKER_PROCESSES):
        _install_in_worker()
        return
    supervised = process.startswith(_SUPERVISED)
    if supervised:
        # With the supervisor's token, each server would report the engines of all servers.
        os.environ.pop(TOKEN_VARIABLE, None)
    make_token(os.environ)
    is_first = note_first_process(os.environ)
    make_prefix_key(os.environ)
    # An engine core can be a fork or a thread of its front end, or an actor with a different name.
    # So every process except workers has its hooks. These hooks do nothing until the scheduler's
    # first call.
    parts = [_install_in_engine, _time_start]
    if is_first or supervised:
        parts.append(_watch_start)
    if not process.startswith(_ENGINE_CORES):
        parts.append(_install_in_front_end)
    for install_part in parts:
        try:
            install_part()
        except Exception as error:
            logger.warning(
                "tailspan: %s: %s: %s", install_part.__name__, type(error).__name__, error
            )


def _install_in_front_end() -> None:
    from tailspan_vllm.front_end import request_hooks
    from tailspan_vllm.front_end.capture import process_capture

    _log_untested_version()
    capture = process_capture()
    _log_missing(request_hooks.install(capture))
    _time_http(capture)


def _install_in_engine() -> None:
    from tailspan_vllm.engine_core import scheduler_hooks
    from tailspan_vllm.engine_core.link import EngineEnd
    from tailspan_vllm.engine_core.observer import EngineObserver
    from tailspan_vllm.engine_only.detection import has_rust_front_end, served_port

    def make_observer(scheduler: Any) -> EngineObserver:
        engine = _engine_number(scheduler.vllm_config)
        token, settings = os.environ[TOKEN_VARIABLE], settings_from(os.environ)
        link = EngineEnd(token, f"engine-{engine}")
        ladders = settings.prefix_key is not None
        listener = None
        if has_rust_front_end(sys.argv):
            from tailspan_vllm.engine_only.capture import EngineCapture

            # The link's name contains the engine's name, so that the capture finds only this link.
            listener = EngineCapture(
                settings, engine, f"{token}-engine-{engine}", served_port(sys.argv)
            )
        return EngineObserver(link, engine, ladders=ladders, listener=listener)

    _log_missing(scheduler_hooks.install(make_observer, early=has_rust_front_end(sys.argv)))


def _engine_number(config: Any) -> int:
    # EngineCore_DP3 runs engine 3. The only engine of a server may have no number.
    number = re.search(r"DP(\d+)$", multiprocessing.current_process().name)
    if number:
        return int(number[1])
    # Ray's actors have no such name. Only the configuration contains their number.
    is_actor = getattr(config.parallel_config, "data_parallel_backend", None) == "ray"
    return engine_number(config) if is_actor else 0


def _time_start() -> None:
    from tailspan_vllm.start_up import hooks

    _log_missing(hooks.install(os.environ[TOKEN_VARIABLE]))


def _watch_start() -> None:
    if sys.platform == "linux" and settings_from(os.environ).spans:
        from tailspan_vllm.engine_only.detection import served_port
        from tailspan_vllm.export.start_watch import StartWatch

        StartWatch(os.environ, served_port(sys.argv)).begin()


def _install_in_worker() -> None:
    from tailspan_vllm.start_up import hooks

    if TOKEN_VARIABLE in os.environ:  # unset if the worker is on another machine
        _log_missing(hooks.install_in_worker(os.environ[TOKEN_VARIABLE]))


def _log_missing(missing: list[str]) -> None:
    if missing:
        logger.warning("tailspan: this vLLM lacks %s; these hooks stay off", ", ".join(missing))


@guard.catch_exceptions("version")
def _log_untested_version() -> None:
    from vllm import __version__ as version

    first, last = TESTED
    found = re.match(r"(\d+)\.(\d+)", str(version))
    if found and not first <= (int(found[1]), int(found[2])) <= last:
        logger.warning(
            "tailspan: vLLM %s was not tested with this release (tested: %d.%d to %d.%d); "
            "hooks that do not fit it stay off",
            version,
            *first,
            *last,
        )


def _time_http(capture: Any) -> None:
    """Wrap every FastAPI application of this process in the timing layer.

    The wrapped public method runs at an application's first event, long after plugins are loaded.
    """
    try:
        from fastapi import FastAPI
    except ImportError:
        return
    from tailspan_vllm.http import TimingMiddleware

    def timed(stack: Any, args: guard.Arguments, kwargs: guard.Keywords) -> Any:
        given = getattr(args[0].state, "args", None)
        capture.sender.serves_port(getattr(given, "port", None))
        return TimingMiddleware(stack, capture)

    FastAPI.build_middleware_stack = guard.Hooks("HTTP edge").wrap_result(
        FastAPI.build_middleware_stack, "build_middleware_stack", timed
    )
