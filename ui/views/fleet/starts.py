"""Show the starts of engines: a chart with one bar per start, and a table. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Final

from analysis.starts import Start
from diagnosis.evidence.start_parts import WORDS
from telemetry.cold_starts import PARTS, ColdStart
from ui.kit import colours, wording
from ui.kit.tables import table

MAX_BARS: Final = 12
"""Maximum number of starts in the chart and the table."""

COLOURS: Final[Mapping[str, str]] = {
    "scheduling": colours.QUEUE,
    "image_pull": colours.OTHERS,
    "init_containers": colours.PREFILL,
    "container": colours.DELIVERY,
    "imports": colours.FRONTEND,
    "config": colours.DELIVERY,
    "engine_process": colours.FRONTEND,
    "workers": colours.FRONTEND,
    "device": colours.OTHERS,
    "weights": colours.PREFILL,
    "unsplit": colours.UNACCOUNTED,
    "compile": colours.QUEUE,
    "kv_cache": colours.DECODE,
    "warm_up": colours.PREEMPTED,
    "server": colours.STALL,
}
"""The colours of the parts of a start. They are the colours of a request's phases."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The starts to draw, in order of time.

    `slow_first` has the starts whose first request was slow. Such a request took longer than all
    later requests of the same length.
    """

    shown: Sequence[ColdStart] = ()
    slow_first: Sequence[Start] = field(default=())


def shown_starts(known: Sequence[ColdStart], from_unix_ns: int) -> list[ColdStart]:
    """The last start of each engine, and all starts that became ready since an instant.

    At most `MAX_BARS` are returned: the newest of the last starts, and then the newest of the other
    starts. So an engine in a crash loop does not hide the starts of other engines.
    """
    last = {(each.replica, each.engine): each.span_id for each in known}

    def is_last(start: ColdStart) -> bool:
        return last[start.replica, start.engine] == start.span_id

    found = [each for each in known if each.ready_unix_ns >= from_unix_ns or is_last(each)]
    # The sort is stable, so starts of the same kind stay in order of time.
    chosen = sorted(found, key=is_last)[-MAX_BARS:]
    return [each for each in found if each in chosen]


def as_html(found: Starts, zone: tzinfo) -> str:
    """The bars, the table and the sentences about the starts as HTML."""
    if not found.shown:
        return (
            "<p class='note'>No engine reported the parts of its start. The plugin in vLLM sends "
            "them after the first engine step.</p>"
        )
    longest_s = max(each.length_s for each in found.shown)
    newest_first = found.shown[::-1]
    bars = "".join(_bar(each, longest_s, zone) for each in newest_first)
    advice = "".join(f"<p class='note'>{each}</p>" for each in _sentences(found, zone))
    return f"<div class='starts'>{bars}</div>{_table(newest_first, zone)}{advice}"


def _name(start: ColdStart, zone: tzinfo) -> str:
    ended = "ready" if start.reached is None else "failed"
    at = wording.clock(start.ready_unix_ns, zone, date=True)
    return (
        f"{wording.for_html(start.replica, 24)} <small>engine {start.engine}, {ended} {at}</small>"
    )


def _bar(start: ColdStart, longest_s: float, zone: tzinfo) -> str:
    segments = "".join(
        f"<i style='width:{100 * part_s / longest_s:.2f}%;background:{COLOURS[part]}' "
        f"title='{_label(part)}: {wording.seconds(part_s)}'></i>"
        for part, part_s in start.parts_s.items()
        if part_s > 0
    )
    parts = ", ".join(
        f"{_label(part)} {wording.seconds(part_s)}" for part, part_s in start.parts_s.items()
    )
    return (
        f"<div><span>{_name(start, zone)} <b>{wording.seconds(start.length_s)}</b></span>"
        f"<div class='bar' role='img' aria-label='Parts of the start: {parts}'>{segments}</div>"
        "</div>"
    )


def _label(part: str) -> str:
    return part.replace("_", " ").replace("kv", "KV")


def _table(shown: Sequence[ColdStart], zone: tzinfo) -> str:
    parts = [part for part in PARTS if any(part in each.parts_s for each in shown)]
    heads = [
        f"<i class='swatch' style='background:{COLOURS[part]}'></i>{_label(part)}" for part in parts
    ]
    rows = [
        (
            _name(each, zone),
            *(wording.seconds(each.parts_s.get(part)) for part in parts),
            wording.seconds(each.length_s),
        )
        for each in shown
    ]
    return table(("replica", *heads, "sum"), rows, "payers")


def _sentences(found: Starts, zone: tzinfo) -> Sequence[str]:
    ready = [each for each in found.shown if each.reached is None]
    longest = max(ready, key=lambda each: each.length_s, default=None)
    advice = None if longest is None else Start(longest, (), 0).advice
    sentences = []
    for shown in found.shown:
        if (failed := Start(shown, (), 0).failed) is not None:
            sentences.append(f"{_name(shown, zone)}: {wording.for_html(failed, 300)}")
    if longest is not None and advice is not None:
        name = wording.for_html(longest.replica, 24)
        sentences.append(f"Longest start ({name}): {wording.for_html(advice, 300)}")
    for start in found.slow_first:
        for each in start.first_requests:
            sentences.append(
                f"{_name(start.cold_start, zone)}: the first request that computed "
                f"{each.from_tokens:,} to {each.to_tokens - 1:,} prompt tokens took "
                f"{wording.seconds(each.excess_s)} longer than the median of the {each.later:,} "
                f"requests after it."
            )
    return sentences


HELP: Final = (
    f"The last start of each engine and the starts in the range, at most {MAX_BARS}. A start "
    "lasts from the start of the server's first process until the server was ready, or until it "
    "failed. With `TAILSPAN_KUBERNETES=true` it begins when Kubernetes created the pod. "
    "Its parts sum to the whole: "
    + ", ".join(f"{_label(part)} ({WORDS[part]})" for part in PARTS)
    + "."
)
