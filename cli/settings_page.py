"""Write the table of settings to docs/configuration.md: `python -m cli.settings_page FILE`."""

import sys
from pathlib import Path
from typing import Final

from cli.options.settings import GROUPS, Setting, all_settings

BEGIN: Final = "<!-- settings: written by make generate -->"
END: Final = "<!-- end of settings -->"


def page(text: str) -> str:
    """The page with the current table.

    Raises:
        ValueError: the page lacks the comments around the table.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must contain {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def table() -> str:
    """One row per setting, in the order of `tailspan up --help`."""
    settings = sorted(all_settings(), key=lambda each: GROUPS.index(each.group))
    rows = [
        f"| `{each.flag}` | `{each.variable}` | `{each.key}` | {_default(each)} |"
        f" {_escaped_help(each)} |"
        for each in settings
    ]
    return "\n".join(
        ["| flag | variable | key | default | meaning |", "|---|---|---|---|---|", *rows]
    )


def _default(each: Setting) -> str:
    if isinstance(each.show_default, str):
        return each.show_default if " " in each.show_default else f"`{each.show_default}`"
    if each.is_flag:
        return "`false`"
    return f"`{each.default}`" if each.show_default else ""


def _escaped_help(each: Setting) -> str:
    text = each.help or ""
    for mark in "*_|<":
        text = text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(page(file.read_text(encoding="utf-8")), encoding="utf-8")
