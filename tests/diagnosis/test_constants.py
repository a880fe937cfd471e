"""A number that decides a verdict has its source or its measurement beside it."""

import ast
from collections.abc import Iterator

from benchmarks._diagnosis_constants import limits, sources


def described(source: str) -> Iterator[str]:
    """Yield the names of the constants that have a docstring. Neighbouring constants may share one
    docstring."""
    body = ast.parse(source).body
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [each.id for each in targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from names
            names = []
        else:
            names = []


def test_each_limit_of_the_diagnosis_has_a_docstring() -> None:
    found = {module: set(described(source)) for module, source in sources().items()}
    lacking = [each.label for each in limits() if each.name not in found[each.module]]
    assert not lacking, lacking
