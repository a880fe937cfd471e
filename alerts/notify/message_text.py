"""Compose the text of a message: a title, then facts, the most important first. Pure.

Receivers may forward the text to a chat. So the text contains no mention or link that a chat would
interpret.
"""

import re
from datetime import UTC, datetime
from typing import Final

from alerts.notify.message import IncidentMessage, ReplicaHang, Transition, WindowPairBurnRates
from telemetry import durations
from telemetry.engines import HUNG_REMEDY
from telemetry.percentages import percent
from telemetry.printable import first_upper

GUARDS: Final = {
    "low_traffic": "too few bad requests",
    "cold_start": "counting began too recently",
}


LONGEST: Final = 2_000
"""Slack accepts 3,000 characters in a section."""
_MENTION: Final = re.compile(r"@(?=(channel|here|everyone|all|group)\b)", re.IGNORECASE)
_BRACKET: Final = re.compile(r"<(?=[!@#|]|[a-z][a-z0-9+.-]*:)", re.IGNORECASE)
_LINK: Final = re.compile(r"\](?=[(\[:])")
_ADDRESS: Final = re.compile(r"(?<=[a-z0-9]):(?=//)", re.IGNORECASE)


def unlinked(text: str) -> str:
    """Replace one character in each mention, link and image that a chat would interpret.

    Mentions are `@channel` and `<!here>` (Slack, Mattermost, Discord, Teams). Links are
    `[text](address)` and bare addresses.
    """
    text = _BRACKET.sub("‹", _MENTION.sub("＠", text))
    return _ADDRESS.sub("꞉", _LINK.sub("] ", text))


def title(message: IncidentMessage) -> str:
    """The title in one line, short enough for a phone's lock screen."""
    return unlinked(_title(message))


def _title(message: IncidentMessage) -> str:
    over = message.transition is Transition.RESOLVED
    marks = "".join(
        f"[{mark}] "
        for mark, holds in [
            ("test", message.test),
            ("simulated", message.simulated),
            ("update", message.update),
            ("over" if over else message.severity, True),
        ]
        if holds
    )
    lasted = length((message.ended_unix_s or message.as_of_unix_s) - message.began_unix_s)
    if message.hang is not None:
        if over:
            return f"{marks}{_hung_engines(message.hang)} no longer hangs, after {lasted}"
        return (
            f"{marks}{_hung_engines(message.hang)} hangs with {_requests(message.hang)} in flight"
        )
    if over:
        return f"{marks}{message.slo}: the error budget no longer burns too fast, after {lasted}"
    if message.burn is None:
        return f"{marks}{message.slo}: the error budget burns too fast"
    burn = f"{message.burn:.1f}"
    return f"{marks}{message.slo}: the error budget burns {burn} times too fast"


def facts(message: IncidentMessage) -> list[tuple[str, str]]:
    """The facts as pairs of heading and text, without the link."""
    found: list[tuple[str, str | None]] = [
        ("What", _description(message)),
        ("How bad", _how_bad(message)),
        ("Budget", _budget(message)),
        ("Since", _period_text(message)),
        ("Likely cause", message.likely_cause),
        ("Fired by", _pairs(message.fired_by)),
        (
            "Held back",
            "; ".join(
                f"{_pair(each.windows)}, {GUARDS.get(each.guard, each.guard)}"
                for each in message.held_back
            )
            or None,
        ),
    ]
    if message.test:
        found.insert(0, ("Test", "This message tests the channel. There is no incident."))
    if message.simulated:
        found.insert(0, ("Simulated", "The data comes from the simulator, not from a real server."))
    return [(heading, unlinked(fact)[:LONGEST]) for heading, fact in found if fact]


def text(message: IncidentMessage) -> str:
    """The facts, one per line, and the link."""
    lines = [f"{heading}: {fact}" for heading, fact in facts(message)]
    if message.link:
        lines.append(f"Explorer: {message.link}")
    return "\n".join(lines)


def moment(unix_s: int) -> str:
    """An instant as UTC text with minute precision."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def length(seconds: float) -> str:
    """A duration with about two digits: 40 s, 12 min, 3.5 h, 2.1 d."""
    for unit, size_s, until_s in (("s", 1, 60), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < until_s:
            value = seconds / size_s
            return f"{value:.1f} {unit}" if unit == "h" and value < 10 else f"{value:.0f} {unit}"
    days = seconds / 86_400
    return f"{days:.1f} d" if days < 10 else f"{days:.0f} d"


def _description(message: IncidentMessage) -> str:
    hang = message.hang
    if hang is None:
        return f"{message.display_name}. {message.statement}"
    if message.transition is Transition.RESOLVED:
        return "The engine takes steps again, has no request in flight, or its server is gone."
    age = length(hang.last_step_age_s)
    return f"{_requests(hang)} in flight, and no engine step for {age}. Users wait. {HUNG_REMEDY}"


def _hung_engines(hang: ReplicaHang) -> str:
    numbers = f" {', '.join(map(str, hang.engines))}" if hang.engines else ""
    return f"{hang.replica}: the engine{numbers}"


def _requests(hang: ReplicaHang) -> str:
    return "1 request" if hang.in_flight == 1 else f"{hang.in_flight:,} requests"


def _how_bad(message: IncidentMessage) -> str | None:
    parts = []
    if message.events and message.bad is not None and message.window_s:
        window = durations.render(message.window_s)
        parts.append(
            f"{message.bad:,} of {message.events:,} {message.counted_in} in the last {window}"
            " missed the objective"
        )
    if message.peak_burn is not None and message.transition is Transition.RESOLVED:
        parts.append(f"the peak burn rate was {message.peak_burn:.1f}")
    return _sentence(parts)


def _budget(message: IncidentMessage) -> str | None:
    parts = []
    if message.budget_spent is not None:
        parts.append(f"this incident has spent {percent(message.budget_spent)}")
    if message.budget_left is not None:
        parts.append(
            f"{percent(message.budget_left)} is left"
            if message.budget_left > 0
            else f"overspent by {percent(-message.budget_left)}"
        )
    left = message.budget_left is not None and message.budget_left > 0
    if left and message.exhausted_in_s is not None and message.transition is Transition.FIRING:
        parts.append(f"at this pace it is spent in {length(message.exhausted_in_s)}")
    return _sentence(parts)


def _period_text(message: IncidentMessage) -> str:
    if message.ended_unix_s is not None:
        return f"{moment(message.began_unix_s)}, until {moment(message.ended_unix_s)}."
    return f"{moment(message.began_unix_s)}; alerted {moment(message.fired_unix_s)}."


def _pairs(pairs: tuple[WindowPairBurnRates, ...]) -> str | None:
    return "; ".join(map(_pair, pairs)) or None


def _pair(pair: WindowPairBurnRates) -> str:
    long, short = durations.render(pair.long_s), durations.render(pair.short_s)
    burns = ""
    if pair.long_burn is not None and pair.short_burn is not None:
        burns = f" burn at {pair.long_burn:.1f} and {pair.short_burn:.1f},"
    return f"the last {long} and {short}{burns} alerting above {pair.factor:.3g}"


def _sentence(parts: list[str]) -> str | None:
    if not parts:
        return None
    return f"{first_upper('; '.join(parts))}."
