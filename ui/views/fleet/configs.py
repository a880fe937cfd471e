"""What replicas run with: the configuration in force, and who differs in which argument. Pure.

Models are served with different arguments for good reason: only replicas of one model are held
against each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.starts import Difference, EngineStart, differences

APART_NS: Final = 120 * 10**9
"""Several processes tell of one start; what lies nearer together than this is one."""


@dataclass(frozen=True, slots=True)
class Group:
    """Replicas of one model with the same arguments."""

    model: str | None
    config: str
    version: str | None
    replicas: Sequence[str]
    differs: Sequence[Difference]
    """From the group that has most replicas; none for that one itself. `before` is its value."""


def groups(starts: Iterable[EngineStart], replicas: Iterable[str]) -> list[Group]:
    """The configurations in force, those that most replicas have first.

    Args:
        starts: the last of each engine.
        replicas: those that are there; a start does not say how long it held.
    """
    there = set(replicas)
    by_model: dict[str | None, dict[str, list[EngineStart]]] = {}
    for start in starts:
        if start.replica in there:
            by_model.setdefault(start.model, {}).setdefault(start.config, []).append(start)
    found = []
    for model in sorted(by_model, key=lambda name: (name is None, name or "")):
        configs = sorted(
            by_model[model].items(), key=lambda each: (-len({s.replica for s in each[1]}), each[0])
        )
        usual = configs[0][1][0]
        for config, mine in configs:
            found.append(
                Group(
                    model,
                    config,
                    mine[0].version,
                    sorted({start.replica for start in mine}),
                    differences(usual.arguments, mine[0].arguments),
                )
            )
    return found


def odd(found: Iterable[Group]) -> dict[str, list[str]]:
    """Replica → the arguments in which it differs from most others, in words."""
    told: dict[str, list[str]] = {}
    for group in found:
        for replica in group.replicas if group.differs else ():
            told.setdefault(replica, []).extend(
                f"{each.argument} {shown(each.after)}, not {shown(each.before)}"
                for each in group.differs
            )
    return told


def shown(value: object) -> str:
    """An argument's value as it is typed; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def restarts(
    began: Mapping[str, Iterable[int]], ran_before: Iterable[str], from_unix_ns: int
) -> dict[str, list[int]]:
    """Replica → when it began anew from an instant on; the first beginning of one that was not
    there before is no restart.

    Args:
        began: replica → the instants, unix ns, at which any of its processes says it began.
        ran_before: those that were started earlier.
        from_unix_ns: the instant.
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
