"""Names for the parts of a server's start, and the actions that shorten each part.

Pure. Sources: Kubernetes' documentation of pod priority and of container restarts; vLLM's
documentation of `--load-format`, `--kv-cache-memory-bytes`, `--cudagraph-capture-sizes` and
`VLLM_CACHE_ROOT`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from diagnosis.claim import Lever
from telemetry.cold_starts import ColdStart

WORDS: Final[Mapping[str, str]] = {
    "scheduling": "Kubernetes' scheduling",
    "image_pull": "the image pull",
    "init_containers": "the init containers",
    "container": "the start of the container",
    "imports": "Python's imports",
    "config": "the configuration",
    "engine_process": "the engine's process",
    "workers": "the worker processes",
    "device": "the device",
    "weights": "the weights",
    "unsplit": "loading and warm-up, not split",
    "compile": "compilation",
    "kv_cache": "the KV cache",
    "warm_up": "warm-up and CUDA graphs",
    "server": "the HTTP server",
}
"""The words that name each part of a start in a sentence."""

_DISK: Final = Lever("keep the image and Python's files on a local disk, and pull the image early")
_SPARE: Final = Lever("keep a warm spare server, because this part cannot be skipped")

LEVERS: Final[Mapping[str, Sequence[Lever]]] = {
    "scheduling": (
        Lever("keep a free GPU node, for example with placeholder pods of a low priority"),
    ),
    "image_pull": (Lever("pull the image to the nodes early, for example with a DaemonSet"),),
    "init_containers": (
        Lever("keep the model on a volume instead of downloading it in an init container"),
    ),
    "container": (
        Lever(
            "shorten the commands before the server and the mounting of volumes; after a restart,"
            " Kubernetes' back-off is part of this time"
        ),
    ),
    "imports": (_DISK,),
    "config": (
        Lever("read the model from a local folder, without asking a model hub", "HF_HUB_OFFLINE=1"),
    ),
    "engine_process": (_DISK,),
    "workers": (_DISK,),
    "device": (_SPARE,),
    "weights": (
        Lever("stream the weights, or keep them on a local disk", "--load-format runai_streamer"),
        Lever("read the weights directly to the GPU", "--load-format fastsafetensors"),
    ),
    "unsplit": (_SPARE,),
    "compile": (
        Lever("keep the compile cache on a volume that outlives the server", "VLLM_CACHE_ROOT"),
        Lever("start without compilation, which makes each step slower", "--enforce-eager"),
    ),
    "kv_cache": (
        Lever("set the size of the KV cache instead of measuring it", "--kv-cache-memory-bytes"),
    ),
    "warm_up": (
        Lever("capture CUDA graphs for fewer batch sizes", "--cudagraph-capture-sizes"),
        Lever("start without CUDA graphs, which makes each step slower", "--enforce-eager"),
    ),
    "server": (_SPARE,),
}


def largest_part(start: ColdStart) -> tuple[str, float] | None:
    """Return the name and the seconds of a start's longest part, or None if no part is reported."""
    return max(start.parts_s.items(), key=lambda part: part[1], default=None)
