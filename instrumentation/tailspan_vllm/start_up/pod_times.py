"""Divides the time before a server's first process into parts, with Kubernetes' timestamps. Pure.

The parts sum to the time since the creation of the pod. Kubernetes' timestamps have whole seconds.
So each part, and the sum of the parts, can be wrong by one second.

Source: Kubernetes API reference, core/v1, Pod and Event. In the kubelet's events `Pulling` and
`Pulled`, `involvedObject.fieldPath` names the container.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from tailspan_vllm import names

_NONE: Final[Mapping[str, Any]] = {}
_Interval = tuple[float, float]


def parts_before(
    pod: Any, events: Any, container: str | None, began_unix_ns: int
) -> dict[str, float]:
    """Maps attribute names to seconds. The result is empty if the times are unknown or not in
    order.

    After a restart of the container, the only part is the time since the previous container ended.

    Args:
        events: an EventList of this pod. Without it, the container's part includes the image pulls.
        container: None if the pod has only one container.
        began_unix_ns: when the first process began.
    """
    began = began_unix_ns / 1e9
    status = _of(pod, "status")
    mine = [
        each
        for each in _items(status, "containerStatuses")
        if container is None or each.get("name") == container
    ]
    if not mine:
        return {}
    if any(each.get("restartCount") != 0 for each in mine):
        return _after_restart(mine, began)
    created = _seconds(_of(pod, "metadata").get("creationTimestamp"))
    scheduled = _scheduled(status)
    if created is None or scheduled is None or not created <= scheduled <= began:
        return {}
    pulls, prepared = _pulls(events), list(_init_containers(status))
    pulling = _covered(pulls or (), scheduled, began)
    busy = _covered([*(pulls or ()), *prepared], scheduled, began)
    parts = {names.START_SCHEDULING: scheduled - created}
    if pulls is not None:
        parts[names.START_IMAGE_PULL] = pulling
    if prepared:
        parts[names.START_INIT_CONTAINERS] = busy - pulling
    parts[names.START_CONTAINER] = began - scheduled - busy
    return parts


def _after_restart(mine: list[Mapping[str, Any]], began: float) -> dict[str, float]:
    if len(mine) > 1:  # it is unknown which container runs this process
        return {}
    ended = _seconds(_of(mine[0], "lastState", "terminated").get("finishedAt"))
    if ended is None or ended > began:
        return {}
    return {names.START_CONTAINER: began - ended}


def _scheduled(status: Mapping[str, Any]) -> float | None:
    for each in _items(status, "conditions"):
        if (each.get("type"), each.get("status")) == ("PodScheduled", "True"):
            return _seconds(each.get("lastTransitionTime"))
    return None


def _pulls(events: Any) -> list[_Interval] | None:
    """Return the image pulls, or None if the events are absent or incomplete. An image on the node
    has no event `Pulling`."""
    listed = list(_items(events, "items"))
    if _of(events, "metadata").get("continue"):
        return None
    begun: dict[object, float] = {}
    ended: dict[object, float] = {}
    for each in listed:
        place = str(_of(each, "involvedObject").get("fieldPath"))
        first = _seconds(each.get("firstTimestamp") or each.get("eventTime"))
        last = _seconds(each.get("lastTimestamp")) or first
        if first is None or last is None:
            continue
        if each.get("reason") == "Pulling":
            begun[place] = min(first, begun.get(place, first))
        elif each.get("reason") == "Pulled":
            ended[place] = max(last, ended.get(place, last))
    if not ended:
        return None
    return [(begun[place], end) for place, end in ended.items() if place in begun]


def _init_containers(status: Mapping[str, Any]) -> Iterable[_Interval]:
    for each in _items(status, "initContainerStatuses"):
        ended = _of(each, "state", "terminated")
        start, end = _seconds(ended.get("startedAt")), _seconds(ended.get("finishedAt"))
        if start is not None and end is not None:
            yield start, end


def _covered(intervals: Iterable[_Interval], low: float, high: float) -> float:
    covered, until = 0.0, low
    for start, end in sorted(intervals):
        start, end = max(start, until), min(end, high)
        if end > start:
            covered += end - start
            until = end
    return covered


def _of(found: Any, *path: str) -> Mapping[str, Any]:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else _NONE


def _items(found: Any, name: str) -> Iterable[Mapping[str, Any]]:
    listed = found.get(name) if isinstance(found, dict) else None
    return (each for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()


def _seconds(text: Any) -> float | None:
    """The unix seconds of an RFC 3339 timestamp, or None."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
