"""Text from requests as it may be shown: nothing in it hides, turns or breaks what is around it.

Pure. Tenants, routes, models and ids are chosen by whoever sends requests or telemetry.
"""

import unicodedata
from typing import Final

_UNSEEN: Final = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
"""Unicode's categories of control, format, private, surrogate, unassigned and line-end characters:
among them ESC, line ends and those that reverse the direction of writing."""


def visible(text: str) -> str:
    """One line in which every character is seen; each that is not becomes �."""
    return "".join(
        "�" if unicodedata.category(character) in _UNSEEN else character for character in text
    )
