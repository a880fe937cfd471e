"""Checks that docstrings, comments and messages use the standard terms.

Data does not tell, hear, say or know, and literary words are not used. This is the only rule here.
Add a folder to `CLEAN` once it follows the rule. `python tests/docs/test_language.py` prints the
number of such words in every folder.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]

CLEAN: Final = (
    *("instrumentation", "collector", "exporters", "diagnosis", "cost", "roofline"),
    *("simulator", "dashboards", "analysis", "benchmarks", "telemetry", "alerts", "rig"),
    *("store", "docs", "replay", "probe"),
)
"""The folders that follow the rule."""

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


def found(source: str) -> Iterator[str]:
    """Yield the listed words in a module's docstrings, comments and strings, with line numbers."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        # Since Python 3.12, an f-string has its own token types.
        if (
            token.type in (tokenize.COMMENT, tokenize.STRING)
            or "FSTRING" in tokenize.tok_name[token.type]
        ):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                for match in _WORDS.finditer(line):
                    yield f"{number}: {match[0]}: {line.strip()}"


@pytest.mark.parametrize("folder", CLEAN)
def test_folders_that_follow_the_rule_contain_no_listed_word(folder: str) -> None:
    """Use standard verbs: report, send, receive, return, store."""
    words = [
        f"{file.relative_to(ROOT)}:{word}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for word in found(file.read_text(encoding="utf-8"))
    ]
    assert not words, "\n".join(words)


def test_words_are_found_in_every_kind_of_text() -> None:
    """Words are found in docstrings, comments, messages and f-strings, but not in names."""
    source = '"""Tells."""\n# nobody\ntold = f"{1} heard" + "said"\n'
    assert [each.split(": ")[1] for each in found(source)] == ["Tells", "nobody", "heard", "said"]


if __name__ == "__main__":
    for path in sorted({each.parent for each in ROOT.glob("*/*.py")} | {ROOT / "instrumentation"}):
        number = sum(
            1 for file in path.rglob("*.py") for _ in found(file.read_text(encoding="utf-8"))
        )
        sys.stdout.write(f"{number:5} {path.name}\n")
