"""The command that prints a page's result in a terminal. Times are in UTC. Pure."""

import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from analysis.over_time.time_bins import SECOND_NS
from analysis.slo_states import instant_s
from telemetry.window import Window
from ui.frame.view import DECIDERS, View
from ui.kit.request_key import RequestKey
from ui.kit.wording import plain

LONGEST_VALUE: Final = 256
"""Maximum characters of a filter's value, as for labels in the store."""
_EDITS: Final = ("replicas", "router", "rate", "prompt", "output")
"""Changes that are options of `tailspan what-if`. All other changes are values of `--set`."""


def command(view: View, window: Window, now_unix_ns: int) -> str | None:
    """The command that prints a view's result, or None."""
    if view.page == "request":
        request = view.request
        if isinstance(request, RequestKey):
            request = f"{request.trace_id}/{request.span_id}"
        return None if request is None else _line("explain", "--request", request)
    start, end = utc(window.from_unix_ns), utc(window.to_unix_ns)
    if view.page == "slos":
        return _line("slo", "status", "--at", utc(instant_s(window, now_unix_ns) * SECOND_NS))
    if view.page == "what-if" and not (view.change or view.sweep):
        return None
    if view.page == "compare" and view.split and not (view.before and view.after):
        return None
    where = list(_where(view.equals))
    if view.page == "outside":
        chosen = {"region": view.region, "endpoint": view.endpoint}
        where = [
            word
            for name, value in chosen.items()
            if value
            for word in ("--where", f"{name}={value}")
        ]
        return _line("outside", "--from", start, "--to", end, *where)
    if view.page == "compare":
        return _line("compare", *_sides(view, window))
    among = ["--from", start, "--to", end, *where]
    name, more = {
        "overview": ("stats", []),
        "root-cause": ("explain", list(_comparison(view, window))),
        "requests": ("requests", ["--sort", f"-{view.latency}"]),
        "what-if": ("what-if", list(_changes(view))),
        "fleet": ("stats", ["--by", "replica"]),
        "cost": ("cost", ["--by", view.per]),
    }[view.page]
    return _line(name, *among, *more)


def utc(unix_ns: int) -> str:
    """An instant in UTC, such as `2026-11-20T10:00:00Z`, to the microsecond."""
    whole, rest = divmod(unix_ns, SECOND_NS)
    fraction = f".{rest // 1_000:06d}".rstrip("0") if rest >= 1_000 else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _comparison(view: View, window: Window) -> Iterator[str]:
    yield from ("--metric", view.metric)
    if isinstance(view.baseline, str) and view.chosen_baseline(window) is not None:
        yield from ("--baseline", view.baseline)
    elif isinstance(view.baseline, Window):
        ends = (view.baseline.from_unix_ns, view.baseline.to_unix_ns)
        yield from ("--baseline", "/".join(map(utc, ends)))
    if view.decide != DECIDERS[0]:
        yield "--by-size"


def _sides(view: View, window: Window) -> Iterator[str]:
    equals = dict(view.equals)
    if view.split:
        equals.pop(view.split, None)
        yield from ("--from", utc(window.from_unix_ns), "--to", utc(window.to_unix_ns))
        yield from ("--before-where", f"{view.split}={view.before}")
        yield from ("--after-where", f"{view.split}={view.after}")
    else:
        for name, each in (("--before", view.baseline_of(window)), ("--after", window)):
            yield from (name, f"{utc(each.from_unix_ns)}/{utc(each.to_unix_ns)}")
    yield from ("--metric", view.metric, "--quantile", view.quantile)
    yield from _where(equals)


def _where(equals: Mapping[str, str]) -> Iterator[str]:
    for name, value in equals.items():
        yield from ("--where", f"{name}={value}")


def _changes(view: View) -> Iterator[str]:
    for text in filter(None, view.change.split(",")):
        name, _, value = text.partition("=")
        yield from (f"--{name}", value) if name in _EDITS else ("--set", text)
    if view.sweep:
        yield from ("--sweep", view.sweep)


def _line(*words: str) -> str:
    # A label is external text: remove control characters, and quote it for the shell.
    return " ".join(["tailspan", *(shlex.quote(plain(each, 2 * LONGEST_VALUE)) for each in words)])
