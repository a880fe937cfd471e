"""Checks that docstrings, comments, messages and names use the standard terms.

Data does not tell, hear, say or know, and literary words are not used. This is the only rule here.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]

FOLDERS: Final = sorted(
    {each.parent.name for name in ("*.py", "pyproject.toml") for each in ROOT.glob(f"*/{name}")}
    - {"tests"}
)
"""The folders with the product's code."""

VERBS: Final = (
    *("tell", "tells", "told", "telling"),
    *("hear", "hears", "heard", "hearing"),
    *("say", "says", "said", "saying"),
    *("speak", "speaks", "spoke", "spoken", "speaking"),
    *("know", "knows", "knew", "knowing"),
)
"""Verbs that need a person as the subject."""

LITERARY: Final = (
    *("whim", "nobody", "anybody", "sooner", "amid", "likewise", "hardly", "lest", "unheard"),
    "make it so",
)

_WORDS: Final = re.compile(rf"\b({'|'.join((*VERBS, *LITERARY))})\b", re.IGNORECASE)
_CANDIDATES: Final = re.compile(
    rf"(?<![^\W_])({'|'.join((*VERBS, *LITERARY))})(?![^\W_])", re.IGNORECASE
)
"""Matches each word that `found` or `names` reports, and also words in other places. Most modules
have no match, and need not be parsed."""


def found(source: str) -> Iterator[str]:
    """Yield the listed words in docstrings, comments and strings, with line numbers."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        # Since Python 3.12, f-strings have token types of their own.
        if (
            token.type in (tokenize.COMMENT, tokenize.STRING)
            or "FSTRING" in tokenize.tok_name[token.type]
        ):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                for match in _WORDS.finditer(line):
                    yield f"{number}: {match[0]}: {line.strip()}"


def names(source: str) -> Iterator[str]:
    """Yield the names with a listed word that the module binds, with line numbers."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ) if not {*name.lower().split("_")}.isdisjoint((*VERBS, *LITERARY)):
                yield f"{node.lineno}: {name}: a name"


def reported(source: str) -> Iterator[str]:
    """Yield the listed words in a module's texts and names, with line numbers."""
    if _CANDIDATES.search(source):
        yield from found(source)
        yield from names(source)


def listed(folder: str) -> list[str]:
    """Return the listed words in a folder's texts and names, with files and line numbers."""
    return [
        f"{file.relative_to(ROOT)}:{word}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for word in reported(file.read_text("utf-8"))
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_contains_a_listed_word(folder: str) -> None:
    """Use standard verbs: report, send, receive, return, store. Name each variable after its
    content."""
    words = listed(folder)
    assert not words, "\n".join(words)


def test_every_folder_of_the_product_is_checked() -> None:
    """The instrumentation has its own pyproject.toml and no module in its top folder."""
    assert {"ui", "cli", "server", "instrumentation", "docs"} <= set(FOLDERS)


def test_words_are_found_in_every_kind_of_text() -> None:
    source = '"""Tells."""\n# nobody\ntold = f"{1} heard" + "said"\n'
    assert [each.split(": ")[1] for each in found(source)] == ["Tells", "nobody", "heard", "said"]


def test_names_are_found_in_every_kind_of_binding() -> None:
    """Names of other modules are not reported."""
    source = (
        "def says(told, *, heard=file.tell()):\n    self._said = KNOWS = known = 1\n"
        "class Told: ...\n[saying for saying in said]\nasync def tell_all(): ...\n"
    )
    assert sorted(each.split(": ")[1] for each in names(source)) == [
        *("KNOWS", "Told", "_said", "heard", "saying", "says", "tell_all", "told")
    ]


@pytest.mark.parametrize(
    "source",
    [
        *('"""Tells."""', "# NOBODY", 'x = "Said"', 'x = f"{1}heard"', "# make it so"),
        *("told = 1", "self._said = 1", "class Told: ...", "def tell_all(): ...", "KNOWS = 1"),
    ],
)
def test_a_module_with_one_listed_word_is_parsed(source: str) -> None:
    assert len(list(reported(source))) == 1
