"""Find the numeric constants of `diagnosis/`, and the modules that use them. Reads only the source
files, so it imports no module of `diagnosis/`."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = "diagnosis"
Number = int | float


@dataclass(frozen=True, slots=True)
class NumericConstant:
    """A numeric constant of a module."""

    module: str
    name: str
    value: Number

    @property
    def label(self) -> str:
        """The name of the module and of the constant: `module.NAME`."""
        return f"{self.module.removeprefix(f'{PACKAGE}.')}.{self.name}"


def constants_in(module: str, source: str) -> Iterator[NumericConstant]:
    """Yield the numeric constants that a module defines."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            together = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if len(names) != len(values) or isinstance(target, ast.Tuple) is not together:
                continue
            for name, value in zip(names, values, strict=True):
                if not isinstance(name, ast.Name) or not isinstance(value, ast.Constant):
                    continue
                number = value.value
                if isinstance(number, int | float) and not isinstance(number, bool) and number:
                    yield NumericConstant(module, name.id, number)


@cache
def sources() -> Mapping[str, str]:
    """Map the name of each module of `diagnosis/` to its source text."""
    root = Path(__file__).parent.parent
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_text()
        for path in sorted((root / PACKAGE).rglob("*.py"))
        if path.name != "__init__.py"
    }


def constants(only: str = "") -> list[NumericConstant]:
    """Return the constants of all modules whose name contains `only`."""
    return [
        each
        for module, source in sources().items()
        if only in module
        for each in constants_in(module, source)
    ]


@cache
def uses() -> Mapping[str, Mapping[str, NumericConstant]]:
    """Map each module to the constants that it defines or imports. The inner keys are the names
    that the module uses for the constants."""
    own: dict[str, dict[str, NumericConstant]] = {each: {} for each in sources()}
    for constant in constants():
        own[constant.module][constant.name] = constant
    found = {module: dict(names) for module, names in own.items()}
    for module, source in sources().items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module in own:
                for each in node.names:
                    if each.name in own[node.module]:
                        found[module][each.asname or each.name] = own[node.module][each.name]
    return found


@cache
def limits() -> frozenset[NumericConstant]:
    """Return the constants with which a value is compared."""
    return frozenset(
        uses()[module][name.id]
        for module, source in sources().items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and name.id in uses()[module]
    )
