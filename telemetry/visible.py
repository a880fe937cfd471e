"""Replaces invisible characters in text, which could hide, reverse or break the surrounding text.

Pure. Clients choose tenants, routes, models and ids, so these texts are not trusted.
"""

import unicodedata
from typing import Final

_UNSEEN: Final = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
"""Unicode's categories of control, format, private, surrogate, unassigned and line-end characters.
They include ESC, line ends and characters that reverse the direction of writing."""


def visible(text: str) -> str:
    """Return text on one line in which every invisible character is replaced by �."""
    return "".join(
        "�" if unicodedata.category(character) in _UNSEEN else character for character in text
    )
