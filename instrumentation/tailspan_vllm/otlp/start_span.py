"""Converts the start of an engine to an OpenTelemetry span.

Several API servers may send the same span. The ids are derived from the link's token, so the
receiver keeps only one span.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from tailspan_vllm import names
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE
from tailspan_vllm.engine_state.hardware import MAX_LOADING_S
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.otlp.request_span import SCOPE
from tailspan_vllm.start_up.failed_start import FailedStart
from tailspan_vllm.start_up.instants import EngineInstants
from tailspan_vllm.start_up.parts import parts_of
from tailspan_vllm.start_up.process import FirstProcess, first_process

_NO_RESOURCE: Final = Resource({})


def start_span(
    state: EngineState,
    engine: EngineInstants,
    served: float | None,
    environ: Mapping[str, str],
    before: Mapping[str, float] = MappingProxyType({}),
) -> ReadableSpan | None:
    """The span of an engine's start, or None if its parts are unknown or implausibly long.

    Args:
        served: when the HTTP server was ready, in monotonic seconds, or None without an HTTP
            server.
        before: the parts before the first process, which are left out if implausibly long.
    """
    first = first_process(environ)
    parts = None if first is None else parts_of(first, engine, served)
    if first is None or parts is None or sum(parts.values()) > MAX_LOADING_S:
        return None
    seed = f"{environ.get(TOKEN_VARIABLE, '')} {first.began_unix_ns} {state.engine}"
    before_s = sum(before.values())
    if before_s + sum(parts.values()) > MAX_LOADING_S:
        before, before_s = {}, 0.0
    began_unix_ns = first.began_unix_ns - round(before_s * 1e9)
    return span_of_parts(state, {**before, **parts}, began_unix_ns, seed)


def failed_start_span(
    failed: FailedStart, first: FirstProcess, environ: Mapping[str, str]
) -> ReadableSpan | None:
    """The span of a failed start, or None if the start took implausibly long."""
    if sum(failed.parts.values()) > MAX_LOADING_S:
        return None
    seed = f"{environ.get(TOKEN_VARIABLE, '')} {first.began_unix_ns} {failed.engine} failed"
    state = EngineState(failed.engine, first.began_unix_ns)
    return span_of_parts(
        state,
        failed.parts,
        first.began_unix_ns,
        seed,
        {
            names.START_REACHED: failed.reached.removeprefix(f"{names.START}."),
            names.START_FAILURE: failed.reason,
        },
    )


def span_of_parts(
    state: EngineState,
    parts: Mapping[str, float],
    began_unix_ns: int,
    seed: str,
    failure: Mapping[str, str] = MappingProxyType({}),
) -> ReadableSpan:
    """The span of a start.

    Args:
        parts: maps attribute names to the parts in seconds.
        began_unix_ns: when the first part began.
        seed: determines the ids.
        failure: maps attribute names to the values that describe the failure.
    """
    given: dict[str, Any] = {
        names.PROVIDER_NAME: names.PROVIDER_VLLM,
        names.ENGINE: state.engine,
        names.REQUEST_MODEL: state.model,
        names.CONFIG: state.config,
        names.ENGINE_VERSION: state.version,
        **parts,
        **failure,
    }
    digest = hashlib.sha256(seed.encode()).digest()
    return ReadableSpan(
        names.START,
        context=SpanContext(
            int.from_bytes(digest[:16], "big"),
            int.from_bytes(digest[16:24], "big"),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        ),
        resource=_NO_RESOURCE,
        attributes={name: value for name, value in given.items() if value is not None},
        start_time=began_unix_ns,
        end_time=began_unix_ns + round(sum(parts.values()) * 1e9),
        instrumentation_scope=SCOPE,
    )
