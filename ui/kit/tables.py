"""Tables as HTML. Pure. The caller escapes the cells."""

from collections.abc import Collection, Iterable, Sequence


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    kind: str = "",
    *,
    text: Collection[int] = (),
) -> str:
    """A table of HTML cells. A table that is too wide scrolls inside a box, also with the keyboard.

    `kind` is the table's CSS class. Lines wrap only in the columns `text`.
    """
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(
        f"<tr>{''.join(_cell(cell, at in text) for at, cell in enumerate(cells))}</tr>"
        for cells in rows
    )
    return (
        f"<div class='scrolling' tabindex='0'><table class='data {kind}'>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: str, wraps: bool) -> str:
    return f"<td class='text'>{cell}</td>" if wraps else f"<td>{cell}</td>"
