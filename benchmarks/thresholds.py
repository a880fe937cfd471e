"""Measure how many results of the diagnosis depend on the value of each constant in the detectors.

    python benchmarks/thresholds.py                       60 cases, two at a time
    python benchmarks/thresholds.py --cases 20 --seed 7
    python benchmarks/thresholds.py --only stalls         only the modules whose name contains this

The benchmark changes each numeric constant of `diagnosis/`, one after another, and explains the
same simulated cases (`diagnosis.py`) again. In half of the cases, the servers have properties that
the fitted model does not have. Each constant is halved and doubled. If values are compared with the
constant, it also gets a lowest and a highest value. One of these two values disables the condition.
The table shows in how many cases the outcome becomes wrong or right. If no value changes an
outcome, the constant may be needless.

In a case with one fault, the first named cause must be the injected cause. With two faults, the
causes of both must be among the first three named causes. Without a fault, there must be no
incident. The causes are not tested by replay.
"""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._diagnosis_baselines import alerted
from benchmarks._diagnosis_constants import (
    Number,
    NumericConstant,
    constants,
    limits,
    uses,
)
from benchmarks._diagnosis_draws import NONE, PAIR
from benchmarks._threshold_cases import arguments_of, results, simulated
from diagnosis.explain import explain
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.question import Question

HALVED, DOUBLED, LOWEST, HIGHEST = CHANGES = "halved", "doubled", "lowest", "highest"
_HIGHEST: Final = 10**6
Variant = tuple[NumericConstant, str]


def changed_value(value: Number, change: str) -> Number:
    """Return the changed value of a constant.

    A halved or doubled integer is rounded, and is at least 1. A doubled share stays below 1: if the
    product is 1 or more, the result is the middle between the share and 1. The lowest value is 0,
    and the highest value is a million.
    """
    if change in (LOWEST, HIGHEST):
        return type(value)(0 if change == LOWEST else _HIGHEST)
    factor = 0.5 if change == HALVED else 2.0
    if isinstance(value, int):
        return max(1, round(value * factor))
    if value < 1 <= value * factor:
        return (1 + value) / 2
    return value * factor


def variants_of(constants: Sequence[NumericConstant]) -> list[Variant]:
    """Return the changes of each constant. Only a limit (a constant with which values are compared)
    also gets its lowest and its highest value. Other constants are not tested at their lowest
    and highest values. For example, an array of the highest size could use all memory."""
    return [
        (each, change)
        for each in constants
        for change in (CHANGES if each in limits() else (HALVED, DOUBLED))
    ]


def _holders(constant: NumericConstant) -> Iterator[tuple[ModuleType, str]]:
    """Yield the modules that define or import a constant, with its name in each module."""
    for module, names in uses().items():
        for name, used in names.items():
            if used == constant:
                yield importlib.import_module(module), name


@contextmanager
def changed(constant: NumericConstant, change: str) -> Iterator[None]:
    """Change the value of a constant within the `with` block."""
    holders = list(_holders(constant))
    for module, name in holders:
        setattr(module, name, changed_value(constant.value, change))
    try:
        yield
    finally:
        for module, name in holders:
            setattr(module, name, constant.value)


def is_right(kind: str, causes: Sequence[str], answer: Explanation) -> bool:
    """Return whether an explanation is right for the faults of its case."""
    if kind == NONE:
        return answer.verdict is not ExplanationVerdict.INCIDENT
    found = [each.id for each in answer.causes]
    return set(causes) <= set(found[:3]) if kind == PAIR else found[:1] == list(causes)


def asked(
    number: int, seed: int, kind: str, causes: tuple[str, ...], variants: Sequence[Variant]
) -> tuple[bool, list[Variant]]:
    """Simulate a case. Return whether the case's outcome is right, and the changed constants that
    reverse the outcome."""
    case, requests, servers = simulated(number, seed, kind, causes)
    metric = alerted(requests, case.baseline, case.window)
    question = Question(metric, case.window, case.baseline)

    def right() -> bool:
        try:
            return is_right(kind, causes, explain(requests, servers, question))
        except (ArithmeticError, ValueError, IndexError):  # for example a division by zero
            return False

    usual = right()
    different = []
    for constant, change in variants:
        with changed(constant, change):
            if right() is not usual:
                different.append((constant, change))
    return usual, different


def main() -> int:
    """Explain all cases and print the table."""
    arguments = arguments_of(__doc__, cases=60, seed=93001)
    every = constants(arguments.only)
    wrong: Counter[Variant] = Counter()
    right: Counter[Variant] = Counter()
    outcomes = []
    for _, (usual, different) in results(arguments, asked, variants_of(every)):
        outcomes.append(usual)
        (wrong if usual else right).update(different)
    print("\n".join(table(every, wrong, right)))
    still = [each for each in every if not any(wrong[each, c] + right[each, c] for c in CHANGES)]
    print(
        f"{sum(outcomes)} of {len(outcomes)} outcomes are right. No change of {len(still)} of the"
        f" {len(every)} constants changes an outcome."
    )
    return 0


def table(
    every: Sequence[NumericConstant], wrong: Mapping[Variant, int], right: Mapping[Variant, int]
) -> list[str]:
    """Return the lines of the table. The constants that change the most outcomes come first. A cell
    has two numbers: how many outcomes become wrong (-), and how many become right (+)."""
    asked_for = set(variants_of(every))

    def effect(each: NumericConstant) -> int:
        return sum(wrong.get((each, c), 0) + right.get((each, c), 0) for c in CHANGES)

    lines = [f"{'constant':40} {'value':>9}" + "".join(f"{each:>12}" for each in CHANGES)]
    for each in sorted(every, key=lambda one: (-effect(one), one.label)):
        cells = (
            f"-{wrong.get((each, c), 0)} +{right.get((each, c), 0)}"
            if (each, c) in asked_for
            else ""
            for c in CHANGES
        )
        lines.append(f"{each.label:40} {each.value:>9}" + "".join(f"{c:>12}" for c in cells))
    return lines


if __name__ == "__main__":
    sys.exit(main())
