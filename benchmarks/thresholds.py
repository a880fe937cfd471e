"""Measures how many results of the diagnosis depend on the value of each constant in the detectors.

    python benchmarks/thresholds.py                       90 cases, two at a time
    python benchmarks/thresholds.py --cases 20 --seed 7
    python benchmarks/thresholds.py --only stalls         only the modules whose name contains this

The benchmark halves and doubles each numeric constant of `diagnosis/`, one after another, and
explains the same simulated cases (`diagnosis.py`) again. The table shows in how many cases the
outcome becomes wrong or right. If no outcome changes, the constant is not tuned to these cases.

In a case with one fault, the first named cause must be the injected cause. With two faults, the
causes of both must be among the first three named causes. Without a fault, there must be no
incident. The causes are not tested by replay.
"""

import argparse
import ast
import importlib
import pkgutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

import diagnosis
from benchmarks._diagnosis_baselines import alerted
from benchmarks._diagnosis_draws import NONE, PAIR, drawn, kinds_of
from diagnosis.explain import explain
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.inputs.hung_engines import with_unfinished
from diagnosis.question import Question
from simulator import dataset

FACTORS: Final = (0.5, 2.0)
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
        return f"{self.module.removeprefix('diagnosis.')}.{self.name}"


Variant = tuple[NumericConstant, float]


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


def moved(value: Number, factor: float) -> Number:
    """Return a value times a factor. An integer result is rounded, and is at least 1. A share stays
    below 1: if the product is 1 or more, the result is the middle between the share and 1."""
    if isinstance(value, int):
        return max(1, round(value * factor))
    if value < 1 <= value * factor:
        return (1 + value) / 2
    return value * factor


@cache
def _sources() -> Mapping[str, str]:
    names = [each.name for each in pkgutil.walk_packages(diagnosis.__path__, "diagnosis.")]
    files = {name: importlib.import_module(name).__file__ for name in names}
    return {name: Path(file).read_text() for name, file in files.items() if file}


def constants(only: str = "") -> list[NumericConstant]:
    """Return the constants of all modules whose name contains `only`."""
    return [
        each
        for module, source in _sources().items()
        if only in module
        for each in constants_in(module, source)
    ]


@cache
def _imports() -> Mapping[tuple[str, str], Sequence[tuple[ModuleType, str]]]:
    """Map each (module, name) to the modules that import this name, each with the name that it uses
    for the import."""
    found: dict[tuple[str, str], list[tuple[ModuleType, str]]] = defaultdict(list)
    for module, source in _sources().items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for each in node.names:
                    holder = (sys.modules[module], each.asname or each.name)
                    found[node.module, each.name].append(holder)
    return found


def _holders(constant: NumericConstant) -> Sequence[tuple[ModuleType, str]]:
    """Return the modules that define or import a constant, with its name in each module."""
    importing = _imports().get((constant.module, constant.name), ())
    return [(sys.modules[constant.module], constant.name), *importing]


@contextmanager
def changed(constant: NumericConstant, factor: float) -> Iterator[None]:
    """Multiply a constant by a factor within the `with` block."""
    for module, name in _holders(constant):
        setattr(module, name, moved(constant.value, factor))
    try:
        yield
    finally:
        for module, name in _holders(constant):
            setattr(module, name, constant.value)


def is_right(kind: str, causes: Sequence[str], answer: Explanation) -> bool:
    """Return whether an outcome is right."""
    if kind == NONE:
        return answer.verdict is not ExplanationVerdict.INCIDENT
    found = [each.id for each in answer.causes]
    return set(causes) <= set(found[:3]) if kind == PAIR else found[:1] == list(causes)


def asked(
    number: int, seed: int, kind: str, causes: tuple[str, ...], variants: Sequence[Variant]
) -> tuple[bool, list[Variant]]:
    """Simulate a case. Return whether its outcome is right, and the variants of constants that
    change this."""
    case = drawn(number, seed, kind, causes)
    data = dataset.run(case.config)
    servers = servers_of(data.sample_table(), data.gpu_table(), data.starts)
    requests = with_unfinished(requests_of(data.request_table()), servers.engines)
    metric = alerted(requests, case.baseline, case.window)
    question = Question(metric, case.window, case.baseline)

    def right() -> bool:
        try:
            return is_right(kind, causes, explain(requests, servers, question))
        except (ArithmeticError, ValueError):  # a halved constant may give a division by zero
            return False

    usual = right()
    different = []
    for constant, factor in variants:
        with changed(constant, factor):
            if right() is not usual:
                different.append((constant, factor))
    return usual, different


def main() -> int:
    """Ask about all cases and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=90)
    parser.add_argument("--seed", type=int, default=93001)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time; default 2")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only modules whose name contains this text"
    )
    arguments = parser.parse_args()
    every = constants(arguments.only)
    variants = [(each, factor) for each in every for factor in FACTORS]
    wrong: Counter[Variant] = Counter()
    right: Counter[Variant] = Counter()
    outcomes = []
    kinds = kinds_of(arguments.cases, arguments.seed, None)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = [
            pool.submit(asked, number, arguments.seed, kind, causes, variants)
            for number, (kind, causes) in enumerate(kinds)
        ]
        try:
            for future in as_completed(futures):
                usual, different = future.result()
                outcomes.append(usual)
                (wrong if usual else right).update(different)
                print(f"{len(outcomes)} of {len(futures)}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            print("stopped", flush=True)
    print("\n".join(table(every, wrong, right)))
    still = [each for each in every if not any(wrong[each, f] + right[each, f] for f in FACTORS)]
    print(
        f"{sum(outcomes)} of {len(outcomes)} outcomes are right. {len(still)} of {len(every)}"
        " constants change no outcome if they are halved or doubled."
    )
    return 0


def table(
    every: Sequence[NumericConstant], wrong: Mapping[Variant, int], right: Mapping[Variant, int]
) -> list[str]:
    """Return the lines of the table. The constants that change the most outcomes come first."""

    def effect(each: NumericConstant) -> int:
        return sum(wrong.get((each, f), 0) + right.get((each, f), 0) for f in FACTORS)

    lines = [f"{'constant':48} {'value':>9}  halved: wrong right  doubled: wrong right"]
    for each in sorted(every, key=lambda one: (-effect(one), one.label)):
        half, double = ((wrong.get((each, f), 0), right.get((each, f), 0)) for f in FACTORS)
        lines.append(
            f"{each.label:48} {each.value:>9}  {half[0]:13} {half[1]:5}  {double[0]:14}"
            f" {double[1]:5}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
