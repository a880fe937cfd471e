"""One colour per phase, and the few others that a page needs.

Every chart takes its colours from here. The phases are told apart by the colour-blind and
on light and dark alike (tests/ui/kit/test_colours.py measures both); a thin outline keeps the
black of a stall visible on dark and the light grey of delivery visible on white.
"""

from dataclasses import dataclass
from typing import Final

from telemetry.phase_colours import DECODE as DECODE
from telemetry.phase_colours import DELIVERY as DELIVERY
from telemetry.phase_colours import FRONTEND as FRONTEND
from telemetry.phase_colours import OTHERS as OTHERS
from telemetry.phase_colours import PREEMPTED as PREEMPTED
from telemetry.phase_colours import PREFILL as PREFILL
from telemetry.phase_colours import QUEUE as QUEUE
from telemetry.phase_colours import STALL as STALL

UNACCOUNTED: Final = "rgba(128,128,128,0.18)"
"""What the phases of a row don't explain of its end-to-end time: nearly no colour at all."""

OUTLINE: Final = "rgba(140,140,140,0.85)"
"""Around fills that come close to one of the two backgrounds."""

ENGINES: Final = ("#4f8fd6", "#c9822b", "#5d9e5f", "#b0679b", "#8a8f98", "#8c7350")
"""Lines of single engines. They never share a chart with the phases."""


ENDINGS: Final = {
    "answered": "#9fb0c4",
    "cancelled": "#734a9c",
    "refused": "#e5aa1f",
    "failed": "#c8242b",
}
"""How requests ended. They never share a chart with the phases."""

PAID_FOR: Final = {
    "answers": "#2a60b5",
    "lost answers": "#734a9c",
    "recomputed": "#c8242b",
    "idle": "#c3c7cd",
    "loading": "#8c7350",
    "unbilled": "#e5aa1f",
}
"""What a bill went for. They never share a chart with the phases."""

PAYERS: Final = ("#4f8fd6", "#c9822b", "#5d9e5f", "#b0679b", "#8c7350", "#29a3a3")
"""The dearest values of a label, in order."""
OTHERS_PAY: Final = "#a3a8af"
"""All the rest of them."""

SCALE: Final = ((0.0, "rgba(79,143,214,0.06)"), (0.5, "#4f8fd6"), (1.0, "#e5641f"))
"""Of heatmaps: from nearly nothing, which lets either background through, by way of blue to
orange."""

PROMISED: Final = "#2f8f5b"
"""The line of what is promised."""

BROKEN: Final = "#c8242b"
"""A promise that was not kept."""

INCIDENT: Final = "rgba(200,36,43,0.12)"
"""Behind the time in which a budget burned."""


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours of lines and text that must stand out from the page's background."""

    strong: str
    middle: str
    weak: str
    band: str
    few: str
    many: str
    """Where a heatmap counts few, and where it counts most."""


LIGHT: Final = Ink(
    strong="#22211f",
    middle="#6b6862",
    weak="#a19d95",
    band="rgba(34,33,31,0.10)",
    few="#dbe9f8",
    many="#123f7a",
)
DARK: Final = Ink(
    strong="#f1efeb",
    middle="#aaa69e",
    weak="#75716a",
    band="rgba(241,239,235,0.14)",
    few="#1d3552",
    many="#d6e8ff",
)
EITHER: Final = Ink(
    strong="#85817a",
    middle="#85817a",
    weak="#85817a",
    band="rgba(133,129,122,0.16)",
    few="rgba(79,143,214,0.25)",
    many="#e5641f",
)
"""For when the browser hasn't said which background it shows."""


def on(fill: str) -> str | None:
    """The colour of text on a fill written as #rrggbb; None, the page's own, on any other."""
    if not fill.startswith("#"):
        return None
    red, green, blue = (int(fill[place : place + 2], 16) for place in (1, 3, 5))
    # Rec. 601 luma; halfway parts the fills that take dark text from those that take light.
    return "#121212" if 0.299 * red + 0.587 * green + 0.114 * blue > 118 else "#ffffff"


def ink(theme: str | None) -> Ink:
    """Choose the ink for a theme: "light", "dark", or None when it is not known."""
    return {"light": LIGHT, "dark": DARK}.get(theme or "", EITHER)
