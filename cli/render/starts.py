"""The parts of engine starts as text."""

from collections.abc import Iterator

from analysis.starts import Start, StartsAnswer
from cli.render import text
from telemetry import time_text
from telemetry.cold_starts import PARTS
from telemetry.printable import printable
from telemetry.window import Window

_WIDEST = 300


def lines(found: StartsAnswer) -> Iterator[str]:
    """Yield the lines for at least one start."""
    if any(each.cold_start.simulated for each in found.starts):
        yield "simulated data"
        yield ""
    yield f"Starts of engines, {text.span(found.window)}"
    if len(found.starts) < found.number:
        yield f"the newest {len(found.starts):,} of {found.number:,} starts"
    yield ""
    shown = [
        part for part in PARTS if any(part in each.cold_start.parts_s for each in found.starts)
    ]
    some_failed = any(each.failed for each in found.starts)
    ended = "ended (UTC)" if some_failed else "ready (UTC)"
    header = ["replica", "engine", ended, *(part.replace("_", " ") for part in shown)]
    rows = [
        [
            text.label(each.cold_start.replica),
            text.count(each.cold_start.engine),
            time_text.moment(each.cold_start.ready_unix_ns),
            *(text.seconds(each.cold_start.parts_s.get(part)) for part in shown),
            text.seconds(each.cold_start.length_s),
        ]
        for each in found.starts
    ]
    yield from text.table([*header, "sum"], rows, left=1)
    yield ""
    ready = [each for each in found.starts if each.failed is None]
    longest = max(ready, key=lambda each: each.cold_start.length_s, default=None)
    if longest is not None and longest.advice is not None:
        yield f"Longest start ({_name(longest)}): {longest.advice}"
    for each in found.starts:
        if each.failed is not None:
            began = time_text.moment(each.cold_start.at_unix_ns)
            yield printable(f"{_name(each)}, begun {began}: {each.failed}", _WIDEST)
    for each in found.starts:
        yield from _slow_first_requests(each)


def nothing(window: Window) -> str:
    """Why the range has no starts."""
    return (
        f"No engine reported the parts of a start {text.span(window)}. The plugin in vLLM sends"
        " them after the engine core's first step, or, if the start fails, when the server ends."
    )


def _name(start: Start) -> str:
    return f"{text.label(start.cold_start.replica)}, engine {start.cold_start.engine}"


def _slow_first_requests(start: Start) -> Iterator[str]:
    ready = time_text.moment(start.cold_start.ready_unix_ns)
    for each in start.first_requests:
        yield (
            f"{_name(start)}, ready {ready}: the first request that computed"
            f" {each.from_tokens:,} to {each.to_tokens - 1:,} prompt tokens took"
            f" {text.seconds(each.excess_s)} longer than the median of the {each.later:,} requests"
            " after it"
            f" ({text.seconds(each.usual_s)})."
        )
