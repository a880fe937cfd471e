"""The colours of a request's phases, for pages, dashboards and pictures.

Readers with a colour vision deficiency can distinguish them on a light and on a dark background
(tests/ui/kit/test_colours.py).
"""

from typing import Final

FRONTEND: Final = "#686663"
QUEUE: Final = "#e5aa1f"
PREFILL: Final = "#2a60b5"
DECODE: Final = "#1da9a3"
PREEMPTED: Final = "#c8242b"
OTHERS: Final = "#c693e7"
STALL: Final = "#121212"
DELIVERY: Final = "#e0ddd5"
UNACCOUNTED: Final = "rgba(128,128,128,0.18)"
"""The colour of time that no phase explains."""
