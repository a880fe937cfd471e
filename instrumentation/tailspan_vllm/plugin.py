"""The plugin that vLLM loads by itself, in every process of a server.

In those that speak to clients (API servers, and programs that hold an `LLM`) it captures
requests; in engine cores it keeps the step ledger; in workers it does nothing at all.
"""

import logging
import multiprocessing
import os
from typing import Any

from tailspan_vllm.link import TOKEN_VARIABLE, make_token
from tailspan_vllm.settings import settings_from

logger = logging.getLogger("vllm.tailspan")
"""A child of vLLM's logger, so that our one line stands among the server's."""

_WORKERS = ("VllmWorker", "Worker", "RayWorker")
_ENGINE_CORES = ("EngineCore", "DPEngineCore")

_installed = False


def install() -> None:
    """Entry point `vllm.general_plugins`. Never raises; called any number of times."""
    global _installed
    process = multiprocessing.current_process().name
    if _installed or process.startswith(_WORKERS):
        return
    _installed = True
    try:
        if not settings_from(os.environ).enabled:
            return
        make_token(os.environ)
        if process.startswith(_ENGINE_CORES):
            _install_in_engine(process)
        else:
            _install_in_front_end()
            if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0":
                _install_in_engine(process)
    except Exception as error:
        logger.warning("tailspan: not capturing: %s: %s", type(error).__name__, error)


def _install_in_front_end() -> None:
    from tailspan_vllm import hooks
    from tailspan_vllm.capture import process_capture

    capture = process_capture()
    _say_missing(hooks.install(capture))
    _time_http(capture)


def _install_in_engine(process: str) -> None:
    from tailspan_vllm import enginecore
    from tailspan_vllm.link import EngineEnd

    digits = "".join(filter(str.isdigit, process.rpartition("DP")[2]))
    engine = int(digits) if process.startswith(_ENGINE_CORES) and digits else 0

    def observer() -> enginecore.EngineObserver:
        return enginecore.EngineObserver(
            EngineEnd(os.environ[TOKEN_VARIABLE], f"engine-{engine}"), engine
        )

    _say_missing(enginecore.install(observer))


def _say_missing(missing: list[str]) -> None:
    if missing:
        logger.warning("tailspan: this vLLM lacks %s; told without it", ", ".join(missing))


def _time_http(capture: Any) -> None:
    """Put the timing layer around every FastAPI application of this process.

    The stack is built on an application's first event, long after plugins are loaded, and
    FastAPI's own method for it is public and older than any vLLM that has plugins.
    """
    try:
        from fastapi import FastAPI
    except ImportError:
        return
    from tailspan_vllm.http import TimingMiddleware

    original = FastAPI.build_middleware_stack

    def build_middleware_stack(self: Any) -> Any:
        args = getattr(self.state, "args", None)
        capture.sender.serves_port(getattr(args, "port", None))
        return TimingMiddleware(original(self), capture)

    FastAPI.build_middleware_stack = build_middleware_stack
