"""A pod and its events in the shape of the Kubernetes API, for tests.

The pod was created at 0 s, assigned to a node at 30 s, and its server's process began at 107.5 s.
One image was pulled from 31 to 61 s for an init container that ran from 62 to 82 s. Another image
was pulled from 84 to 104 s.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

CREATED: Final = datetime(2026, 11, 27, 10, tzinfo=UTC)
BEGAN_NS: Final = round(CREATED.timestamp() * 1e9) + 107_500_000_000
UID: Final = "0b1c2d3e-0000-4000-8000-000000000001"
_AS_IT_WAS: Final[Mapping[int, int]] = MappingProxyType({})


def _at(seconds: int, instant: int, moved: Mapping[int, int]) -> str:
    moment = CREATED + timedelta(seconds=seconds + moved.get(instant, 0))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_of(moved: Mapping[int, int] = _AS_IT_WAS, restarts: int = 0) -> dict[str, Any]:
    """Return a pod.

    Args:
        moved: delay of some instants, in seconds, by the number of the instant.
        restarts: number of the container's restarts; the last one was 10 s before the process.
    """
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.33.0",
        "imageID": "sha256:1",
        "ready": True,
        "restartCount": restarts,
        "state": {"running": {"startedAt": _at(105, 4, moved)}},
    }
    if restarts:
        ended = {"exitCode": 1, "startedAt": _at(40, 5, moved), "finishedAt": _at(90, 6, moved)}
        container["lastState"] = {"terminated": ended}
    prepared = {"exitCode": 0, "startedAt": _at(62, 2, moved), "finishedAt": _at(82, 3, moved)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "chat-0",
            "namespace": "inference",
            "uid": UID,
            "creationTimestamp": _at(0, 0, moved),
        },
        "spec": {"containers": [{"name": "vllm"}]},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "False"},
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastTransitionTime": _at(30, 1, moved),
                },
            ],
            "initContainerStatuses": [
                {
                    "name": "download",
                    "image": "download:1",
                    "imageID": "sha256:2",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"terminated": prepared},
                }
            ],
            "containerStatuses": [container],
        },
    }


def events_of(moved: Mapping[int, int] = _AS_IT_WAS) -> dict[str, Any]:
    """Return the pod's events; `moved` as in `pod_of`."""

    def event(reason: str, place: str, seconds: int, instant: int) -> dict[str, Any]:
        at = _at(seconds, instant, moved)
        return {
            "reason": reason,
            "message": reason,
            "type": "Normal",
            "involvedObject": {"kind": "Pod", "uid": UID, "fieldPath": place},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "eventTime": None,
            "count": 1,
        }

    first, second = "spec.initContainers{download}", "spec.containers{vllm}"
    return {
        "apiVersion": "v1",
        "kind": "EventList",
        "metadata": {"resourceVersion": "7"},
        "items": [
            event("Scheduled", "", 30, 1),
            event("Pulled", second, 104, 11),
            event("Pulling", first, 31, 8),
            event("Pulled", first, 61, 9),
            event("Pulling", second, 84, 10),
        ],
    }
