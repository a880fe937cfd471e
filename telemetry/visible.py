"""Replace invisible characters, which can hide, reverse or break the surrounding text.

Pure. Clients choose ids and the names of tenants, routes and models.
"""

import unicodedata
from typing import Final

_UNSEEN: Final = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
"""Control, format, private, surrogate, unassigned and line-end characters."""


def visible(text: str) -> str:
    """The text on one line, with each invisible character replaced by �."""
    return "".join(
        "�" if unicodedata.category(character) in _UNSEEN else character for character in text
    )
