"""Facts in a grid, with a small name above each value. Pure."""

from collections.abc import Iterable
from typing import Final

from ui.kit import wording

WIDE: Final = 22
"""A fact with more characters than this takes two columns."""


def fact_grid(facts: Iterable[tuple[str, str, str]]) -> str:
    """Facts as HTML. Each fact is (name, value, explanation). All texts are escaped."""
    return f"<div class='facts'>{''.join(_fact(*each) for each in facts)}</div>"


def _fact(name: str, value: str, meaning: str) -> str:
    wide = "wide" if len(value) > WIDE else ""
    return (
        f"<div class='{wide}' title='{wording.for_html(meaning, 400)}'>"
        f"<small>{wording.for_html(name)}</small>{wording.for_html(value, 300)}</div>"
    )
