from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from rig.contract.reader import SourceTree

MakeTree = Callable[[dict[str, str]], SourceTree]


@pytest.fixture
def make_tree(tmp_path: Path) -> MakeTree:
    """Return a function that writes modules, by path, and returns the source tree."""

    def make(modules: dict[str, str]) -> SourceTree:
        for path, text in modules.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text))
        return SourceTree(tmp_path)

    return make
