"""The parts of a simulated server's start."""

from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.otlp.start_span import span_of_parts

FIRST_S: Final = 48.0
"""Duration in seconds of a server's first start, which is before the simulation. Real starts take
seconds to minutes."""
SHARES: Final = {
    names.START_IMPORTS: 0.12,
    names.START_CONFIG: 0.06,
    names.START_ENGINE_PROCESS: 0.14,
    names.START_WORKERS: 0.02,
    names.START_DEVICE: 0.04,
    names.START_WEIGHTS: 0.26,
    names.START_COMPILE: 0.19,
    names.START_KV_CACHE: 0.04,
    names.START_WARM_UP: 0.11,
    names.START_SERVER: 0.02,
}
"""Maps each part of a start to its share of the duration. The shares are chosen, not measured."""


def start_span_of(state: EngineState, replica: str) -> ReadableSpan:
    """The span of a start. Each call returns the same span. `started_unix_ns` is the end of the
    span."""
    length_s = state.machine.loading_s or FIRST_S
    parts = {name: share * length_s for name, share in SHARES.items()}
    seed = f"{replica} {state.engine} {state.started_unix_ns}"
    return span_of_parts(state, parts, state.started_unix_ns - round(length_s * 1e9), seed)
