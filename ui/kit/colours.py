"""The colours of all charts.

Colour-blind readers can distinguish the phases, also in dark mode (tests/ui/kit/test_colours.py).
An outline keeps black and light grey fills visible.
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
from telemetry.phase_colours import UNACCOUNTED as UNACCOUNTED

OUTLINE: Final = "rgba(140,140,140,0.85)"

ENGINES: Final = ("#4f8fd6", "#c9822b", "#5d9e5f", "#b0679b", "#8a8f98", "#8c7350")


ENDINGS: Final = {
    "answered": "#9fb0c4",
    "cancelled": "#734a9c",
    "refused": "#e5aa1f",
    "failed": "#c8242b",
}
PAID_FOR: Final = {
    "answers": "#2a60b5",
    "lost answers": "#734a9c",
    "recomputed": "#c8242b",
    "idle": "#c3c7cd",
    "loading": "#8c7350",
    "unbilled": "#e5aa1f",
}

PAYERS: Final = ("#4f8fd6", "#c9822b", "#5d9e5f", "#b0679b", "#8c7350", "#29a3a3")
"""The colours of a label's values. The most expensive value gets the first colour."""
OTHERS_PAY: Final = "#a3a8af"
"""The colour of all values that have no colour of their own."""

SCALE: Final = ((0.0, "rgba(79,143,214,0.06)"), (0.5, "#4f8fd6"), (1.0, "#e5641f"))

THRESHOLD: Final = "#2f8f5b"

TOTAL: Final = "#85817a"
BROKEN: Final = "#c8242b"

INCIDENT: Final = "rgba(200,36,43,0.12)"


@dataclass(frozen=True, slots=True)
class Ink:
    """The colours of lines and text, which contrast with the page's background."""

    strong: str
    middle: str
    weak: str
    band: str
    few: str
    many: str


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
"""The ink until the browser reports its background."""


def on(fill: str) -> str | None:
    """The colour of text on a fill of the form #rrggbb, or None for a different form."""
    if not fill.startswith("#"):
        return None
    red, green, blue = (int(fill[place : place + 2], 16) for place in (1, 3, 5))
    # This is the luma of Rec. 601.
    return "#121212" if 0.299 * red + 0.587 * green + 0.114 * blue > 118 else "#ffffff"


def ink(theme: str | None) -> Ink:
    """The ink for a theme: "light", "dark", or None if unknown."""
    return {"light": LIGHT, "dark": DARK}.get(theme or "", EITHER)
