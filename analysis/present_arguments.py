"""Find the latest change of the engines' arguments in a range. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from analysis.staleness import STALE_S
from telemetry.printable import printable
from telemetry.starts import MEASURED, Difference, EngineStart, differences
from telemetry.time_text import moment

MAX_NAMED: Final = 3
"""Maximum number of arguments that a text names."""
_NS: Final = 10**9

EngineKey = tuple[str, int]
"""The replica and the number of an engine."""


class ArgumentChange(NamedTuple):
    """A change of the arguments with which a fleet runs."""

    at_unix_ns: int
    """The time since which the fleet runs with its present arguments."""
    what: str
    """What changed, as a clause with a time."""


def latest_change(
    starts: Sequence[EngineStart], last_sampled: Mapping[EngineKey, int]
) -> ArgumentChange | None:
    """The latest change of an engine's arguments, version of vLLM or GPUs, or None.

    A restart without such a change is ignored. The end of an engine counts as a change if no
    running engine has its arguments, because a rollout can give each server a new name.

    Args:
        starts: the starts of the engines until the end of the range.
        last_sampled: the time of the latest sample of each engine in the range (unix ns).
    """
    of_kind = runs_by_engine(starts)
    newest_ns = max(last_sampled.values(), default=0)
    running = {
        key for key, at_ns in last_sampled.items() if newest_ns - at_ns <= int(STALE_S * _NS)
    }
    present = {_kind(mine[-1][-1]) for key, mine in of_kind.items() if key in running}
    found = []
    for key, mine in of_kind.items():
        newest = mine[-1][-1]
        if key in running:
            if len(mine) > 1:
                found.append(_restarted(mine[-2][-1], mine[-1][0]))
        elif key in last_sampled and _kind(newest) not in present:
            at_ns = last_sampled[key]
            what = f"{_name(newest)} with other arguments ended{_at(at_ns)}"
            found.append(ArgumentChange(at_ns, what))
    return max(found, default=None)


def runs_by_engine(starts: Sequence[EngineStart]) -> dict[EngineKey, list[list[EngineStart]]]:
    """The starts of each engine in order of time, split into runs with the same arguments, version
    of vLLM and GPUs."""
    of_engine: dict[EngineKey, list[EngineStart]] = defaultdict(list)
    for start in sorted(starts, key=lambda each: each.at_unix_ns):
        of_engine[start.replica, start.engine].append(start)
    return {
        key: [list(same) for _, same in groupby(mine, key=_kind)] for key, mine in of_engine.items()
    }


def _restarted(before: EngineStart, after: EngineStart) -> ArgumentChange:
    text = f"{_name(after)} restarted with other arguments{_at(after.at_unix_ns)}"
    if changed := list(_changed(before, after)):
        named = [
            f"{each.argument}: {_text(each.before)} to {_text(each.after)}"
            for each in changed[:MAX_NAMED]
        ]
        more = len(changed) - len(named)
        text += f" ({', '.join(named)}{f', and {more} more' if more else ''})"
    return ArgumentChange(after.at_unix_ns, text)


def _kind(start: EngineStart) -> tuple[str, str | None, str | None, int | None]:
    return start.config, start.version, start.device, start.gpus


def _changed(before: EngineStart, after: EngineStart) -> Iterator[Difference]:
    for each in differences(before.arguments, after.arguments):
        if each.argument != MEASURED:
            yield each
    for name in ("version", "device", "gpus"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            yield Difference(name, was, now)


def _name(start: EngineStart) -> str:
    return f"replica {printable(start.replica, 63)}" + (
        f", engine {start.engine}," if start.engine else ""
    )


def _at(unix_ns: int) -> str:
    return f" at {moment(unix_ns)} UTC"


def _text(value: object) -> str:
    return "unset" if value is None else printable(str(value), 63)
