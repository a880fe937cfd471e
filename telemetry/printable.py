"""Convert text to a form that is safe to print. Pure."""


def printable(text: str, widest: int) -> str:
    """The text on one line, with control characters escaped, at most `widest` characters."""
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text[: widest + 1]
    )
    return shown if len(shown) <= widest else f"{shown[: widest - 1]}…"


def first_upper(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
