"""The cold start of an engine: the time until its server was ready, in parts."""

from dataclasses import dataclass
from typing import Annotated, Final

from tailspan_vllm import names

from telemetry.fields import CLOCK_AHEAD, CONFIG, INSTANTS, SYSTEM, attribute, column
from telemetry.starts import EngineStart

_PLUGIN: Final = "plugin in vLLM"
_KUBERNETES: Final = "Kubernetes API"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """One start of one engine. The parts sum to `length_s`.

    For a failed start, `reached` is the part in which it failed, and `failure` is the reason. Later
    parts are absent.
    """

    trace_id: Annotated[str, column("text", "The span's trace id, in hex.", "the span")]
    span_id: Annotated[str, column("text", "The span's id, in hex.", "the span")]
    at_unix_ns: Annotated[
        int,
        column(
            "ns",
            "Start of the earliest known part: of the server's first process, or with"
            " `TAILSPAN_KUBERNETES` the creation of the pod or the end of the previous container.",
            "the span's start",
        ),
    ]
    replica: Annotated[str, column("text", "The replica.", "resource `service.instance.id`")]
    engine: Annotated[
        int, attribute(names.ENGINE, "integer", "Index of the engine.", "engine core")
    ]
    length_s: Annotated[
        float,
        column(
            "s",
            "Time until the server was ready or the start failed: the sum of the parts.",
            INSTANTS,
        ),
    ]
    scheduling_s: Annotated[
        float | None,
        attribute(
            names.START_SCHEDULING,
            "s",
            "From the creation of the pod until Kubernetes assigned it to a node. Absent without"
            " `TAILSPAN_KUBERNETES`.",
            _KUBERNETES,
        ),
    ] = None
    image_pull_s: Annotated[
        float | None,
        attribute(
            names.START_IMAGE_PULL,
            "s",
            "Pulling the images of the pod's containers. 0 if they were on the node; absent if"
            " Kubernetes' events cannot be read or have expired.",
            _KUBERNETES,
        ),
    ] = None
    init_containers_s: Annotated[
        float | None,
        attribute(
            names.START_INIT_CONTAINERS,
            "s",
            "The last run of each init container. Absent without init containers.",
            _KUBERNETES,
        ),
    ] = None
    container_s: Annotated[
        float | None,
        attribute(
            names.START_CONTAINER,
            "s",
            "From the pod's assignment to a node, or after a restart from the previous container's"
            " end, until the server's first process began, without `image_pull_s` and"
            " `init_containers_s`.",
            _KUBERNETES,
        ),
    ] = None
    imports_s: Annotated[
        float | None,
        attribute(
            names.START_IMPORTS,
            "s",
            "From the start of the first process until the plugin was loaded: Python's imports.",
            SYSTEM,
        ),
    ] = None
    config_s: Annotated[
        float | None,
        attribute(
            names.START_CONFIG,
            "s",
            "From the loading of the plugin until the engine core's process began: arguments, model"
            " configuration, tokenizer.",
            _PLUGIN,
        ),
    ] = None
    engine_process_s: Annotated[
        float | None,
        attribute(
            names.START_ENGINE_PROCESS,
            "s",
            "From the start of the engine core's process until it started its workers.",
            _PLUGIN,
        ),
    ] = None
    workers_s: Annotated[
        float | None,
        attribute(
            names.START_WORKERS,
            "s",
            "Start of the workers, without `device_s` and `weights_s`.",
            _PLUGIN,
        ),
    ] = None
    device_s: Annotated[
        float | None,
        attribute(
            names.START_DEVICE,
            "s",
            "Initialisation of the device and of the communication between workers (slowest"
            " worker).",
            _PLUGIN,
        ),
    ] = None
    weights_s: Annotated[
        float | None,
        attribute(
            names.START_WEIGHTS,
            "s",
            "Creation of the model and reading of its weights (slowest worker).",
            _PLUGIN,
        ),
    ] = None
    compile_s: Annotated[
        float | None,
        attribute(names.START_COMPILE, "s", "torch.compile (slowest worker).", _PLUGIN),
    ] = None
    warm_up_s: Annotated[
        float | None,
        attribute(
            names.START_WARM_UP,
            "s",
            "Warm-up of kernels and capture of CUDA graphs, without compilation (slowest worker).",
            _PLUGIN,
        ),
    ] = None
    kv_cache_s: Annotated[
        float | None,
        attribute(
            names.START_KV_CACHE,
            "s",
            "Memory profiling and allocation of the KV cache, without compilation and warm-up.",
            _PLUGIN,
        ),
    ] = None
    unsplit_s: Annotated[
        float | None,
        attribute(
            names.START_UNSPLIT,
            "s",
            "From the start of the workers until the model was warm, if no worker reported the"
            " parts of this time.",
            _PLUGIN,
        ),
    ] = None
    server_s: Annotated[
        float | None,
        attribute(
            names.START_SERVER,
            "s",
            "From when the engine was ready until the HTTP server accepted requests. Absent without"
            " one.",
            _PLUGIN,
        ),
    ] = None
    model: Annotated[
        str | None,
        attribute(names.REQUEST_MODEL, "text", "The name under which the model is served.", CONFIG),
    ] = None
    config: Annotated[
        str | None,
        attribute(names.CONFIG, "text", "Fingerprint of the engine's arguments.", CONFIG),
    ] = None
    version: Annotated[
        str | None,
        attribute(names.ENGINE_VERSION, "text", "vLLM's version.", "`vllm.__version__`"),
    ] = None
    reached: Annotated[
        str | None,
        attribute(
            names.START_REACHED,
            "text",
            "The part in which the start failed. Absent if the server became ready.",
            _PLUGIN,
        ),
    ] = None
    failure: Annotated[
        str | None,
        attribute(
            names.START_FAILURE,
            "text",
            "Why the start failed: the exception's class, or `exit` without one. Absent if the"
            " server became ready.",
            _PLUGIN,
        ),
    ] = None
    region: Annotated[str | None, column("text", "The region.", "resource `cloud.region`")] = None
    simulated: Annotated[bool, column("boolean", "True if the data is simulated.", "simulator")] = (
        False
    )
    clock_ahead_s: Annotated[float | None, CLOCK_AHEAD] = None

    @property
    def ready_unix_ns(self) -> int:
        """When the server was ready, or when the start failed."""
        return self.at_unix_ns + round(self.length_s * 1e9)

    @property
    def parts_s(self) -> dict[str, float]:
        """The known parts by name, in order of time."""
        found = {name: getattr(self, f"{name}_s") for name in PARTS}
        return {name: value for name, value in found.items() if value is not None}


PARTS: Final = (
    *("scheduling", "image_pull", "init_containers", "container"),
    *("imports", "config", "engine_process", "workers", "device", "weights"),
    *("unsplit", "compile", "kv_cache", "warm_up", "server"),
)
"""The parts in order of time. Compilation, the allocation of the KV cache and warm-up can
alternate."""


MAX_LATER_NS: Final = 5 * 10**9
"""A start event may be this much later than the end of its cold start. Different clocks measure the
two instants."""


def is_cold_start_of(cold_start: ColdStart, start: EngineStart) -> bool:
    """Whether this start event of an engine belongs to this cold start."""
    return (
        (cold_start.replica, cold_start.engine) == (start.replica, start.engine)
        and cold_start.at_unix_ns <= start.at_unix_ns
        and start.at_unix_ns <= cold_start.ready_unix_ns + MAX_LATER_NS
    )
