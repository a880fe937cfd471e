"""Replace invisible characters, which could hide, reverse or break the text around them.

Pure. Clients choose the text of tenants, routes, models and ids, so this text is not trusted.
"""

import unicodedata
from typing import Final

_UNSEEN: Final = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
"""The Unicode categories of control, format, private, surrogate, unassigned and line-end
characters. These categories include ESC, line ends and characters that reverse the writing
direction."""


def visible(text: str) -> str:
    """Return text on one line in which every invisible character is replaced by �."""
    return "".join(
        "�" if unicodedata.category(character) in _UNSEEN else character for character in text
    )
