"""The plugin that vLLM loads by itself, in every process of a server.

It works in those that speak to clients: API servers, and programs that hold an `LLM`. In
engine cores and workers it does nothing at all.
"""

import logging
import multiprocessing
import os
from typing import Any

logger = logging.getLogger("vllm.tailspan")
"""A child of vLLM's logger, so that our one line stands among the server's."""

_SILENT_PROCESSES = ("EngineCore", "DPEngineCore", "VllmWorker", "Worker", "RayWorker")

_installed = False


def install() -> None:
    """Entry point `vllm.general_plugins`. Never raises; called any number of times."""
    global _installed
    if _installed or multiprocessing.current_process().name.startswith(_SILENT_PROCESSES):
        return
    _installed = True
    try:
        _install()
    except Exception as error:
        logger.warning("tailspan: not capturing requests: %s: %s", type(error).__name__, error)


def _install() -> None:
    from tailspan_vllm.settings import settings_from

    if not settings_from(os.environ).enabled:
        return
    from tailspan_vllm import hooks
    from tailspan_vllm.capture import process_capture

    capture = process_capture()
    missing = hooks.install(capture)
    if missing:
        logger.warning("tailspan: this vLLM lacks %s; requests are told without it", missing)
    _time_http(capture)


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
