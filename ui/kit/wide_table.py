"""A table that scrolls in its own box if it is wider than the page. Pure."""


def wide_table(table: str) -> str:
    """A table's HTML in a box that scrolls, also with the keyboard."""
    return f"<div class='scrolling' tabindex='0'>{table}</div>"
