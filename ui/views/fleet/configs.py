"""The replicas' configurations, and how they differ within a model. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.starts import Difference, EngineStart, differences

APART_NS: Final = 120 * 10**9
"""If several processes of a replica start within this time, they count as one start."""


@dataclass(frozen=True, slots=True)
class ConfigGroup:
    """The replicas of one model that have the same arguments and the same version."""

    model: str | None
    config: str
    version: str | None
    replicas: Sequence[str]
    differs: Sequence[Difference]
    """The differences from the model's most common configuration (`before`)."""


def groups(starts: Iterable[EngineStart], replicas: Iterable[str]) -> list[ConfigGroup]:
    """The current configurations of each model, by version. The most common configuration of a
    model is first.

    `starts` has the latest start of each engine. Starts of replicas that are not in `replicas` are
    ignored.
    """
    there = set(replicas)
    by_model: dict[str | None, dict[str, list[EngineStart]]] = {}
    for start in _of_running_engines(each for each in starts if each.replica in there):
        by_model.setdefault(start.model, {}).setdefault(start.config, []).append(start)
    found = []
    for model in sorted(by_model, key=lambda name: (name is None, name or "")):
        configs = sorted(
            by_model[model].items(), key=lambda each: (-len({s.replica for s in each[1]}), each[0])
        )
        usual = configs[0][1][0]
        for config, mine in configs:
            for version in sorted({start.version or "" for start in mine}):
                same = [start for start in mine if (start.version or "") == version]
                found.append(
                    ConfigGroup(
                        model,
                        config,
                        version or None,
                        sorted({start.replica for start in same}),
                        differences(usual.arguments, same[0].arguments),
                    )
                )
    return found


def _of_running_engines(starts: Iterable[EngineStart]) -> list[EngineStart]:
    """Leave out engines that did not start with their replica's newest engine. A replica with fewer
    engines than before still has the old start of each engine that it no longer has."""
    found = list(starts)
    newest: dict[str, int] = {}
    for start in found:
        newest[start.replica] = max(start.at_unix_ns, newest.get(start.replica, 0))
    return [each for each in found if each.at_unix_ns >= newest[each.replica] - APART_NS]


def differing_arguments(found: Iterable[ConfigGroup]) -> dict[str, list[str]]:
    """For each replica, texts about arguments that differ from the most common configuration."""
    by_replica: dict[str, list[str]] = {}
    for group in found:
        for replica in group.replicas if group.differs else ():
            by_replica.setdefault(replica, []).extend(
                f"{each.argument} {shown(each.after)}, not {shown(each.before)}"
                for each in group.differs
            )
    return by_replica


def shown(value: object) -> str:
    """An argument's value as on the command line. A dash stands for no value."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def restarts(
    began: Mapping[str, Iterable[int]], ran_before: Iterable[str], from_unix_ns: int
) -> dict[str, list[int]]:
    """When each replica restarted since an instant.

    `began` has the start times of all processes in unix ns. The first start of a replica that is
    not in `ran_before` is no restart.
    """
    earlier = set(ran_before)
    found = {}
    for replica, instants in began.items():
        single: list[int] = []
        for at in sorted(instants):
            if not single or at - single[-1] > APART_NS:
                single.append(at)
        if any(at < from_unix_ns for at in single):
            earlier.add(replica)
        inside = [at for at in single if at >= from_unix_ns]
        anew = inside if replica in earlier else inside[1:]
        if anew:
            found[replica] = anew
    return found
