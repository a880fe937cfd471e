"""Generates the table in docs/access.md: the results of each question for each role.

Run `python -m tests.access.table`.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

from analysis.access.roles_file import load_roles
from cli.questions.answer import answered
from cli.questions.reader import Reader
from cli.questions.refusal import QuestionRefused
from telemetry.access import Access
from tests.access.fleet import Fleet, store
from tests.access.questions import documented
from tests.access.scanning import leaks

PAGE: Final = Path(__file__).parents[2] / "docs" / "access.md"
BEGIN: Final = "<!-- roles: written by python -m tests.access.table -->\n"
END: Final = "<!-- end of roles -->"
COLUMNS: Final = {"mine": "one tenant", "model": "one model", "operator": "no costs"}
ENVIRONMENT: Final = ("TAILSPAN_DATABASE_URL", "TAILSPAN_OBJECTIVES")


def rows(fleet: Fleet) -> Iterator[str]:
    """Yield the rows of the table. The caller sets the fleet's environment variables.

    Raises:
        AssertionError: an answer contains data that its role must not see.
    """
    roles = load_roles(fleet.roles)
    yield f"| tried over the API or MCP | {' | '.join(COLUMNS.values())} |"
    yield f"|---|{'---|' * len(COLUMNS)}"
    for label, (name, given) in documented(fleet).items():
        cells = []
        for role in COLUMNS:
            text, cell = answer_and_cell(name, given, Access.of([roles.by_name[role].grant]))
            assert not leaks(fleet, role, text, repr(given)), (role, label)
            cells.append(cell)
        yield f"| {label} | {' | '.join(cells)} |"


def answer_and_cell(name: str, given: Mapping[str, str], access: Access) -> tuple[str, str]:
    """The answer, and its cell in the table."""
    try:
        text = answered(name, list(given.items()), Reader(access)).text
    except QuestionRefused as refused:
        status = refused.problem["status"]
        cell = "refused" if status == HTTPStatus.FORBIDDEN else "not found"
        return str(refused.problem), cell
    if text.strip() in ("", "[]", "{}"):
        return text, "nothing"
    with_dollars = re.search(r'_usd": [0-9]', text) is not None
    return text, "answer with dollars" if with_dollars else "answer"


def written(text: str, table: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"


def main() -> None:
    import os

    with tempfile.TemporaryDirectory() as folder:
        fleet = store(Path(folder))
        os.environ.update(zip(ENVIRONMENT, (fleet.url, str(fleet.objectives)), strict=True))
        table = "".join(f"{row}\n" for row in rows(fleet))
    sys.stdout.write(table)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
