"""Measure whether the tests detect wrong code: the share of mutants for which a test fails.

    python benchmarks/mutation.py [--mutants 12] [--only cost] [--survivors]

A mutant has one changed operator, constant or condition of a core module. A fixed seed determines
the changes.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import setitem
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
SAMPLE = {
    "burnrate": ("alerts/burnrate.py", ("alerts/test_burnrate.py",)),
    "judging": (
        "alerts/evaluation/request_verdicts.py",
        ("alerts/evaluation/test_request_verdicts.py",),
    ),
    "clock_correction": (
        "collector/rows/clock_correction.py",
        ("collector/rows/test_sender_clocks.py",),
    ),
    "fair_queue": ("collector/limits/fair_queue.py", ("collector/limits/test_fair_queue.py",)),
    "bill": ("cost/bill.py", ("cost/test_bill.py", "cost/test_uptime.py")),
    "weights": ("cost/weights.py", ("cost/test_weights.py", "cost/test_bill.py")),
    "attainment": ("diagnosis/latency/attainment.py", ("diagnosis/latency/test_attainment.py",)),
    "hidden": ("diagnosis/causes/masked.py", ("diagnosis/causes/test_masked.py",)),
    "labels": ("exporters/totals/label_limits.py", ("exporters/totals/test_label_limits.py",)),
    "ledger": (
        "instrumentation/tailspan_vllm/engine_core/step_ledger.py",
        ("instrumentation/engine_core/test_step_ledger.py",),
    ),
    "phases": (
        "instrumentation/tailspan_vllm/request/phases.py",
        ("instrumentation/request/test_phases.py",),
    ),
    "work": ("roofline/work.py", ("roofline/test_work.py",)),
    "sketches": (
        "telemetry/sketches.py",
        ("telemetry/test_sketches.py", "telemetry/test_quantiles.py"),
    ),
}
"""Maps a name to a module and the tests (in `tests/`) that should fail. The name is also the seed
of the random changes."""

SEED = 18
LIMIT_S = 300
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}

Change = Callable[[], None]


def changes(tree: ast.AST) -> Iterator[tuple[int, Change]]:
    """Yield every possible change of a syntax tree, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                for place, operator in enumerate(node.ops):
                    if swapped := SWAPS.get(type(operator)):
                        yield node.lineno, partial(setitem, node.ops, place, swapped())
            case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
                if swapped := SWAPS.get(type(node.op)):
                    yield node.lineno, partial(setattr, node, "op", swapped())
            case ast.Constant(value=bool()):
                yield node.lineno, partial(setattr, node, "value", not node.value)
            case ast.Constant(value=int() | float() as value):
                yield node.lineno, partial(setattr, node, "value", value + 1)
            case ast.If() | ast.IfExp() | ast.While():
                negated = ast.UnaryOp(ast.Not(), node.test)
                yield node.lineno, partial(setattr, node, "test", negated)


def mutants(source: str, number: int, seed: str) -> Iterator[tuple[int, str]]:
    """Draw `number` mutants of a module, and yield the changed line and the mutant's text."""
    tree = ast.parse(source)
    count = sum(1 for _ in changes(tree))
    for chosen in sorted(random.Random(seed).sample(range(count), min(number, count))):
        mutated = copy.deepcopy(tree)
        line, change = list(changes(mutated))[chosen]
        change()
        yield line, ast.unparse(ast.fix_missing_locations(mutated))


def passes(copied: Path, tests: tuple[str, ...]) -> bool:
    """Return whether the tests pass in a copy of the project. Tests that hang count as failed."""
    command = [
        *(sys.executable, "-m", "pytest", "-x", "-q", "-m", "not real"),
        *("-p", "no:cacheprovider", "--hypothesis-seed=0"),
        *(f"tests/{test}" for test in tests),
    ]
    path = os.pathsep.join([str(copied), str(copied / "instrumentation")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copied, env=environment, capture_output=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1, 2):  # 2: the mutant cannot be imported
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def main() -> int:
    """Create mutants, run their tests, and print the scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=12, help="mutants per module (default 12)")
    parser.add_argument("--only", default="", help="change only the module with this name")
    parser.add_argument(
        "--survivors", action="store_true", help="list the lines of mutants that no test notices"
    )
    arguments = parser.parse_args()
    killed_of_all, of_all = 0, 0
    with TemporaryDirectory() as folder:
        copied = Path(folder) / "project"
        unwanted = shutil.ignore_patterns(".*", "__pycache__", "var", "build")
        shutil.copytree(ROOT, copied, ignore=unwanted)
        for name, (module, tests) in SAMPLE.items():
            if arguments.only not in name:
                continue
            path = copied / module
            source = path.read_text()
            if not passes(copied, tests):
                print(f"{module}: its tests fail on the code as it is", file=sys.stderr)
                return 1
            survivors, made = [], 0
            for line, text in mutants(source, arguments.mutants, f"{SEED} {name}.py"):
                path.write_text(text)
                made += 1
                if passes(copied, tests):
                    survivors.append(line)
            path.write_text(source)
            killed_of_all, of_all = killed_of_all + made - len(survivors), of_all + made
            named = f"  not noticed: lines {survivors}" if arguments.survivors and survivors else ""
            print(f"{module:58} {made - len(survivors):3} of {made:3}{named}", flush=True)
    print(f"{'all':58} {killed_of_all:3} of {of_all:3}  {killed_of_all / of_all:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
