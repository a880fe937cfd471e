"""A message in words, for a person who was asleep a minute ago. Pure.

The title says what and how bad in one line; the facts follow, the weightiest first. Neither holds a
mention or a link of a chat's own syntax: receivers pass texts on to chats, which read them.
"""

import re
from datetime import UTC, datetime
from typing import Final

from alerts.notify.message import Hang, Message, Transition, Windows
from telemetry import durations
from telemetry.engines import MEND_HUNG

GUARDS: Final = {
    "low_traffic": "too few bad requests to say much",
    "cold_start": "not watched for long enough",
}


LONGEST: Final = 2_000
"""Characters of a fact; Slack takes 3,000 in a section."""
_MENTION: Final = re.compile(r"@(?=(channel|here|everyone|all|group)\b)", re.IGNORECASE)
_BRACKET: Final = re.compile(r"<(?=[!@#|]|[a-z][a-z0-9+.-]*:)", re.IGNORECASE)
_LINK: Final = re.compile(r"\](?=[(\[:])")
_ADDRESS: Final = re.compile(r"(?<=[a-z0-9]):(?=//)", re.IGNORECASE)


def unlinked(text: str) -> str:
    """A text in which no chat finds a mention, a link or an image.

    `@channel` and `<!here>` (Slack, Mattermost, Discord, Teams), `[text](address)` and bare
    addresses, which chats turn into links: one character of each becomes one that looks alike.
    """
    text = _BRACKET.sub("‹", _MENTION.sub("＠", text))
    return _ADDRESS.sub("꞉", _LINK.sub("] ", text))


def title(message: Message) -> str:
    """One line; fits a locked phone."""
    return unlinked(_title(message))


def _title(message: Message) -> str:
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
            return f"{marks}{message.hang.replica}: the engine no longer hangs, after {lasted}"
        waiting = _requests(message.hang)
        return f"{marks}{message.hang.replica}: the engine hangs with {waiting} in flight"
    if over:
        return f"{marks}{message.slo}: the error budget no longer burns too fast, after {lasted}"
    if message.burn is None:
        return f"{marks}{message.slo}: the error budget burns too fast"
    burn = f"{message.burn:.1f}"
    return f"{marks}{message.slo}: the error budget burns {burn} times too fast"


def facts(message: Message) -> list[tuple[str, str]]:
    """What else there is to say, each with what it is about; the link is not among it."""
    told: list[tuple[str, str | None]] = [
        ("What", _what(message)),
        ("How bad", _how_bad(message)),
        ("Budget", _budget(message)),
        ("Since", _since(message)),
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
        told.insert(0, ("Test", "Nothing happened. Someone tries whether messages arrive."))
    if message.simulated:
        told.insert(0, ("Simulated", "No real server stands behind this."))
    return [(about, unlinked(said)[:LONGEST]) for about, said in told if said]


def text(message: Message) -> str:
    """The facts as lines, with the link."""
    lines = [f"{about}: {said}" for about, said in facts(message)]
    if message.link:
        lines.append(f"Look: {message.link}")
    return "\n".join(lines)


def moment(unix_s: int) -> str:
    """An instant, to the minute where that is exact enough to a person."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def length(seconds: float) -> str:
    """A duration to two digits or so: 40 s, 12 min, 3.5 h, 2.1 d."""
    for unit, size_s, until_s in (("s", 1, 60), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < until_s:
            value = seconds / size_s
            return f"{value:.1f} {unit}" if unit == "h" and value < 10 else f"{value:.0f} {unit}"
    days = seconds / 86_400
    return f"{days:.1f} d" if days < 10 else f"{days:.0f} d"


def _what(message: Message) -> str:
    hang = message.hang
    if hang is None:
        return f"{message.display_name}. {message.promise}"
    if message.transition is Transition.RESOLVED:
        return "The engine takes steps again, no request is in flight, or the server is gone."
    age = length(hang.last_step_age_s)
    return f"{_requests(hang)} in flight, and no engine step for {age}. Users wait. {MEND_HUNG}"


def _requests(hang: Hang) -> str:
    return "1 request" if hang.in_flight == 1 else f"{hang.in_flight:,} requests"


def _how_bad(message: Message) -> str | None:
    parts = []
    if message.events and message.bad is not None and message.window_s:
        window = durations.render(message.window_s)
        parts.append(
            f"{message.bad:,} of {message.events:,} {message.counted_in} in the last {window} broke"
            " the promise"
        )
    if message.peak_burn is not None and message.transition is Transition.RESOLVED:
        parts.append(f"at its peak it burned {message.peak_burn:.1f} times too fast")
    return _sentence(parts)


def _budget(message: Message) -> str | None:
    parts = []
    if message.budget_spent is not None:
        parts.append(f"this has spent {message.budget_spent:.1%} of it")
    if message.budget_left is not None:
        parts.append(
            f"{message.budget_left:.1%} is left"
            if message.budget_left > 0
            else f"none is left, {-message.budget_left:.1%} too much is spent"
        )
    left = message.budget_left is not None and message.budget_left > 0
    if left and message.exhausted_in_s is not None and message.transition is Transition.FIRING:
        parts.append(f"at this pace it is gone in {length(message.exhausted_in_s)}")
    return _sentence(parts)


def _since(message: Message) -> str:
    if message.ended_unix_s is not None:
        return f"{moment(message.began_unix_s)}, until {moment(message.ended_unix_s)}."
    return f"{moment(message.began_unix_s)}; noticed {moment(message.fired_unix_s)}."


def _pairs(pairs: tuple[Windows, ...]) -> str | None:
    return "; ".join(map(_pair, pairs)) or None


def _pair(pair: Windows) -> str:
    long, short = durations.render(pair.long_s), durations.render(pair.short_s)
    burns = ""
    if pair.long_burn is not None and pair.short_burn is not None:
        burns = f" burn {pair.long_burn:.1f} and {pair.short_burn:.1f},"
    return f"the last {long} and {short}{burns} alerting above {pair.factor:.3g}"


def _sentence(parts: list[str]) -> str | None:
    if not parts:
        return None
    joined = "; ".join(parts)
    return f"{joined[0].upper()}{joined[1:]}."
