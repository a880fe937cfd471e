"""Measure which values the diagnosis compares with each of its constants.

    python benchmarks/threshold_values.py                     300 cases, two at a time
    python benchmarks/threshold_values.py --cases 60 --seed 7
    python benchmarks/threshold_values.py --only slow_rank    only modules with this in their name

The benchmark explains simulated cases (`diagnosis.py`). In half of them, the servers have
properties that the fitted model does not have. The benchmark records each comparison of a value
with a numeric constant in `diagnosis/`. For each comparison, it computes the value of the constant
at which the result would change. The table shows quantiles of these values: first for cases without
a fault, then for cases with faults. If nearly all values without a fault are on one side of the
constant, the constant separates real changes from chance.

A comparison of arrays counts as one comparison, with the median of its values. The causes are not
tested by replay.
"""

import ast
import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._diagnosis_constants import NumericConstant, constants, uses

OPERATORS: Final = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
QUANTILES: Final = (0.01, 0.5, 0.99)
Values = dict[str, list[float]]

_values: Values = defaultdict(list)


class _Recording(ast.NodeTransformer):
    """Replaces a comparison such as `a > CONSTANT * b` by a call that also records the values."""

    def __init__(self, names: Mapping[str, NumericConstant]) -> None:
        self._names = names

    def _used(self, node: ast.AST) -> set[str]:
        """Return the constants in an expression. Constants in an index such as `a[CONSTANT]` are
        excluded, because an index must stay an integer."""
        if isinstance(node, ast.Subscript):
            return self._used(node.value)
        if isinstance(node, ast.Name):
            return {node.id} & set(self._names)
        return {name for each in ast.iter_child_nodes(node) for name in self._used(each)}

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        used = self._used(node)
        binds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node))
        if len(node.ops) != 1 or type(node.ops[0]) not in OPERATORS or not used or binds:
            return node
        names = sorted(used)
        sides = [
            ast.Lambda(
                ast.arguments([], [ast.arg(each) for each in names], None, [], [], None, []), side
            )
            for side in (node.left, node.comparators[0])
        ]
        return ast.Call(
            ast.Name("_recorded", ast.Load()),
            [
                ast.Tuple([ast.Constant(self._names[each].label) for each in names], ast.Load()),
                ast.Tuple([ast.Name(each, ast.Load()) for each in names], ast.Load()),
                ast.Constant(type(node.ops[0]).__name__),
                *sides,
            ],
            [],
        )


def _recorded(
    labels: Sequence[str],
    constants: Sequence[float],
    op: str,
    left: Callable[..., Any],
    right: Callable[..., Any],
) -> object:
    """Return the result of a comparison. For each constant in the comparison, record the value that
    would change the result. Near a constant, the difference of the two sides is assumed to be
    linear in the constant."""
    here = left(*constants), right(*constants)
    with np.errstate(all="ignore"):
        difference = np.asarray(here[0] - here[1], dtype=np.float64)
        for place, label in enumerate(labels):
            step = constants[place] / 100
            near = [*constants[:place], constants[place] + step, *constants[place + 1 :]]
            slope = (np.asarray(left(*near) - right(*near), dtype=np.float64) - difference) / step
            turns = constants[place] - difference / np.where(slope == 0, np.nan, slope)
            turns = turns[np.isfinite(turns)]
            if turns.size:
                _values[label].append(float(np.median(turns)))
    return OPERATORS[getattr(ast, op)](*here)


def recording_code(source: str, path: str, names: Mapping[str, NumericConstant]) -> CodeType:
    """Compile a module whose comparisons with the constants `names` call `_recorded`."""
    tree = _Recording(names).visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), path, "exec")


class _RecordingLoader(SourceFileLoader):
    """Compiles a module of `diagnosis/` so that its comparisons record the compared values."""

    names: Mapping[str, NumericConstant] = {}

    def get_code(self, fullname: str) -> CodeType:
        """Return the changed code of a module."""
        return recording_code(Path(self.path).read_text(), self.path, self.names)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the changed code."""
        module.__dict__["_recorded"] = _recorded
        super().exec_module(module)


class _RecordingFinder(MetaPathFinder):
    """Finds the modules of `diagnosis/` that compare values with constants."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module whose comparisons are recorded. Return None for a
        module that uses no constant."""
        names = uses().get(fullname)
        spec = PathFinder.find_spec(fullname, path) if names else None
        if spec is None or spec.origin is None or names is None:
            return None
        loader = _RecordingLoader(fullname, spec.origin)
        loader.names = names
        spec.loader = loader
        return spec


sys.meta_path.insert(0, _RecordingFinder())

from benchmarks._diagnosis_baselines import alerted  # noqa: E402
from benchmarks._diagnosis_draws import NONE  # noqa: E402
from benchmarks._threshold_cases import arguments_of, results, simulated  # noqa: E402
from diagnosis import explain as explanation  # noqa: E402
from diagnosis.question import Metric, Question  # noqa: E402


def compared(number: int, seed: int, kind: str, causes: tuple[str, ...]) -> Values:
    """Simulate a case, explain it, and return the values that were compared with each constant.

    A case without a fault is explained for each latency, as if the latency had really grown. If the
    latency fell, the two time ranges are exchanged.
    """
    case, requests, servers = simulated(number, seed, kind, causes)
    spans = case.window, case.baseline
    _values.clear()
    if kind == NONE:
        with (
            mock.patch.object(explanation, "_many_more", return_value=True),
            mock.patch.object(explanation, "_min_growth_s", return_value=0.0),
        ):
            for metric in Metric:
                for window, baseline in (spans, spans[::-1]):
                    explanation.explain(requests, servers, Question(metric, window, baseline))
    else:
        metric = alerted(requests, case.baseline, case.window)
        explanation.explain(requests, servers, Question(metric, *spans))
    return dict(_values)


def table(values: Mapping[str, Mapping[bool, Sequence[float]]], only: str) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'':44} {'':>8}  {'without a fault':^32}  {'with faults':^32}"
    quantiles = "".join(f"{f'{100 * each:g} %':>9}" for each in QUANTILES)
    yield f"{'constant':44} {'value':>8}" + 2 * f"  {'n':>5}{quantiles}"
    for constant in constants(only):
        label = constant.label
        if label not in values:
            continue
        groups = ""
        for fault in (False, True):
            found = np.round(values[label].get(fault, ()), 9)
            cells = np.quantile(found, QUANTILES) if found.size else ()
            groups += f"  {len(found):>5}" + "".join(f"{each:>9.3g}" for each in cells).ljust(27)
        yield f"{label:44} {constant.value:>8}{groups}".rstrip()


def main() -> int:
    """Explain all cases and print the table."""
    arguments = arguments_of(__doc__, cases=300, seed=94001)
    values: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kind, compared_values in results(arguments, compared):
        for label, found in compared_values.items():
            values[label][kind != NONE] += found
    print("\n".join(table(values, arguments.only)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
