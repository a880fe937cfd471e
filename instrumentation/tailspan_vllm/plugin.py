"""The plugin that vLLM loads by itself, in every process of a server.

In those that speak to clients (API servers, and programs that hold an `LLM`) it captures
requests; wherever a scheduler takes its first step it keeps the step ledger; in workers it
does nothing at all.
"""

import logging
import multiprocessing
import os
import re
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
        # An engine core may be a fork of its front end, a thread of it, or an actor with a name
        # of its own: only the first step tells where it runs, and until then this costs nothing.
        parts = [_install_in_engine]
        if not process.startswith(_ENGINE_CORES):
            parts.append(_install_in_front_end)
    except Exception as error:
        logger.warning("tailspan: not capturing: %s: %s", type(error).__name__, error)
        return
    for install_part in parts:
        try:
            install_part()
        except Exception as error:
            logger.warning(
                "tailspan: %s: %s: %s", install_part.__name__, type(error).__name__, error
            )


def _install_in_front_end() -> None:
    from tailspan_vllm import hooks
    from tailspan_vllm.capture import process_capture

    capture = process_capture()
    _say_missing(hooks.install(capture))
    _time_http(capture)


def _install_in_engine() -> None:
    from tailspan_vllm import enginecore
    from tailspan_vllm.link import EngineEnd

    def observer() -> enginecore.EngineObserver:
        # EngineCore_DP3 is engine 3; one that is alone may bear no number.
        number = re.search(r"DP(\d+)$", multiprocessing.current_process().name)
        engine = int(number[1]) if number else 0
        link = EngineEnd(os.environ[TOKEN_VARIABLE], f"engine-{engine}")
        return enginecore.EngineObserver(link, engine)

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
