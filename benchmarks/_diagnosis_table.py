"""Format the results of a benchmark: one line for each case, and the totals."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import mean, median

from analysis.cause_sentences import MAJORITY_SHARE
from benchmarks._diagnosis_draws import NONE, PAIR, SINGLE
from benchmarks._diagnosis_results import (
    DiagnosisResult,
    both_matter,
    both_named,
    first_named,
    larger,
    one_named,
    outcome,
    share,
    true_share,
)
from simulator.fault import CAUSES

BARS = "goals: single AC@1 ≥ 95 %, both of two in the first three ≥ 90 %, false alarms ≤ 2 %"
"""The goals, as printed. AC@k is the share of cases with one fault in which the injected cause is
among the first k named causes."""


def line(of: DiagnosisResult, done: int, whole: int) -> str:
    """Return the line of one case."""
    shares = [f" {true:.0%}" for true in of.true_shares] or [""] * len(of.causes)
    truth = " + ".join(
        f"{cause} ×{severity:g}{brought}"
        for cause, severity, brought in zip(of.causes, of.severities, shares, strict=True)
    )
    named = ", ".join(f"{c} {s:.0%}" for c, s in zip(of.found, of.shares, strict=True))
    return (
        f"{done:4}/{whole} #{of.number:<4} {outcome(of):11} {of.metric:7} {truth or 'nothing':50} "
        f"→ {named or of.verdict}  ({of.requests} requests, {of.took_s:.0f} s)"
    )


def table(results: Sequence[DiagnosisResult]) -> Iterator[str]:
    """Yield the lines with the totals of the results."""
    singles = [each for each in results if each.kind == SINGLE]
    all_pairs = [each for each in results if each.kind == PAIR]
    pairs = [each for each in all_pairs if both_matter(each)]
    hidden = [each for each in all_pairs if not both_matter(each)]
    quiet = [each for each in results if each.kind == NONE]
    yield ""
    heading = f"{'one fault':22} {'cases':>5} {'AC@1':>6} {'AC@3':>6}  {'not seen':>8}"
    yield f"{heading}  named first instead"
    for cause in CAUSES:
        mine = [each for each in singles if each.causes == (cause,)]
        if not mine:
            continue
        wrong = Counter(
            each.found[0] if each.found else each.verdict
            for each in mine
            if each.found[:1] != each.causes and each.verdict == "incident"
        )
        instead = ", ".join(f"{name} {count}" for name, count in wrong.most_common())
        unseen = sum(each.verdict != "incident" for each in mine)
        places = f"{_percent(first_named(mine, 1))} {_percent(first_named(mine, 3))}"
        yield f"{cause:22} {len(mine):5} {places}  {unseen:8}  {instead}".rstrip()
    yield ""
    yield f"{'':22} {'AC@1':>6} {'AC@3':>6}  {'both of two in 3':>16}  {'false alarms':>12}"
    yield _row(
        "tailspan explain",
        first_named(singles, 1),
        first_named(singles, 3),
        share(map(both_named, pairs)),
        share(each.verdict == "incident" for each in quiet),
    )
    for name, of in (("largest phase", "by_phase"), ("BARO", "by_score")):
        yield _row(
            name,
            share(getattr(each, of)[:1] == each.causes for each in singles),
            share(each.causes[0] in getattr(each, of)[:3] for each in singles),
            share(set(each.causes) <= set(getattr(each, of)[:3]) for each in pairs),
            1.0 if quiet else None,
        )
    count = len(CAUSES)
    yield _row("chance", 1 / count, 3 / count, 6 / (count * (count - 1)), 1.0 if quiet else None)
    yield BARS
    seen = [each for each in singles if each.verdict == "incident"]
    abstained = sum(each.verdict == "insufficient_data" for each in results)
    yield (
        f"{len(singles)} single faults, of which {len(singles) - len(seen)} did not raise the "
        f"tail visibly; of the others, {_percent(first_named(seen, 1)).strip()} are named first. "
        f"{abstained} abstentions. {_unexplained(seen)}"
    )
    yield (
        f"{len(all_pairs)} pairs, of which {len(pairs)} have two causes with at least a tenth of "
        "the excess each: both are among the first three in "
        f"{_percent(share(map(both_named, pairs))).strip()}, at least one in "
        f"{_percent(share(map(one_named, pairs))).strip()}.{_off(pairs)} In {len(hidden)} pairs "
        "one cause masks the other; the larger is named first in "
        f"{_percent(share(each.found[:1] == (larger(each),) for each in hidden)).strip()}."
    )
    for severity in sorted({each.severities[0] for each in singles}):
        mine = [each for each in singles if each.severities[0] == severity]
        first = _percent(first_named(mine, 1)).strip()
        yield f"severity {severity:4.2f}: {len(mine):3} cases, AC@1 {first}"
    yield from _intervals(results)
    times = sorted(each.explain_s for each in results)
    if times:
        yield (
            f"explain: median {times[len(times) // 2] * 1e3:.0f} ms, "
            f"at most {times[-1] * 1e3:.0f} ms; windows of up to "
            f"{max(each.requests for each in results):,} requests."
        )


def _intervals(results: Sequence[DiagnosisResult]) -> Iterator[str]:
    seen = [each for each in results if each.verdict == "incident" and each.causes and each.found]
    if not any(each.intervals for each in seen):
        return
    yield ""
    yield (
        f"{'shares by replay':22} {'decided':>14} {'coverage':>16} {'median width':>13}"
        f" {'mean error':>11} {'by accounting':>14}"
    )
    for kind in (SINGLE, PAIR):
        mine = [each for each in seen if each.kind == kind]
        decided = [each for each in mine if each.intervals]
        inside, widths, off, accounted = [], [], [], []
        for of in decided:
            after = dict(zip(of.found, of.shares, strict=True))
            before = dict(zip(of.accounted, of.accounted_shares, strict=True))
            intervals = dict(zip(of.found, of.intervals, strict=True))
            for cause in {**after, **before}:
                if (true := true_share(of, cause)) is None:
                    continue
                off.append(abs(after.get(cause, 0.0) - true))
                accounted.append(abs(before.get(cause, 0.0) - true))
                if cause in intervals:
                    low, high = intervals[cause]
                    inside.append(low <= true <= high)
                    widths.append(high - low)
        if not inside:
            continue
        yield (
            f"{kind:22} {f'{len(decided)} of {len(mine)}':>14}"
            f" {f'{sum(inside)} of {len(inside)}, {mean(inside):.0%}':>16}"
            f" {median(widths):13.1%} {mean(off):11.1%} {mean(accounted):14.1%}"
        )
        words = [
            (value > MAJORITY_SHARE) == (of.true_shares[of.causes.index(cause)] > MAJORITY_SHARE)
            for of in mine
            for cause, value in zip(of.accounted, of.accounted_shares, strict=True)
            if cause in of.causes
        ]
        yield f"{'':23} the word for the share by accounting is right in {_of(words)}"
        if kind == SINGLE:
            firsts = [
                share(getattr(each, of)[:1] == each.causes for each in decided)
                for of in ("found", "accounted")
            ]
            first, by_accounting = map(_percent, firsts)
            yield f"{'':22} first cause: {first}, by accounting {by_accounting}"
    times = sorted(each.replay_s for each in seen if each.intervals)
    yield f"replays: median {median(times):.1f} s, at most {times[-1]:.1f} s."
    yield "goal: coverage 90 to 98 %"
    for reason, count in Counter(each.not_replayed for each in seen if each.not_replayed).items():
        yield f"  {count} not decided: {reason}"


def _of(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)}"


def _off(pairs: Sequence[DiagnosisResult]) -> str:
    """Return the median difference between reported and true shares."""
    off = [
        abs(of.shares[of.found.index(cause)] - true)
        for of in pairs
        for cause, true in zip(of.causes, of.true_shares, strict=True)
        if cause in of.found
    ]
    if not off:
        return ""
    return f" The median error of the reported shares is {sorted(off)[len(off) // 2]:.0%}."


def _percent(of: float | None) -> str:
    return f"{'–':>6}" if of is None else f"{of:6.1%}"


def _row(name: str, *shares: float | None) -> str:
    first, three, both, alarms = map(_percent, shares)
    return f"{name:22} {first} {three}  {both:>16}  {alarms:>12}"


def _unexplained(seen: Sequence[DiagnosisResult]) -> str:
    nothing = sum(not each.found for each in seen)
    return f"{nothing} incidents without a named cause."
