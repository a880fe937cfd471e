"""Measure how well prefix ladders of several sizes reproduce the hit rate of a prefix cache.

    python benchmarks/prefix_ladder.py [--requests 6000] [--seed 1] [--trace FILE]...

Requests are sent to four replicas in rotation. Each replica has a cache of blocks of 16 tokens, and
evicts the least recently used block first. The true hit rate is computed from the hash of each
block. A prefix ladder has only a few of these hashes, called rungs in the output. The benchmark
computes the hit rate from two
inputs: the ladders, and the number of cached tokens of each request at the first cache size. The
hit rate is computed for three cache sizes, and also for a router that prefers the replica with the
longest cached prefix. The error is the computed hit rate minus the true hit rate.

Three traces are generated from the seed. The first two imitate traces that Qin et al. publish
("Mooncake", FAST 2025). The published averages are:

- Conversations, a chat service: 12,035 prompt tokens and 343 output tokens. 40 % of the prompt
  tokens are repeated.
- Agents with tool definitions: 8,596 prompt tokens and 182 output tokens. 59 % of the prompt tokens
  are repeated.

The third trace has short prompts: one of twelve system prompts of a few hundred tokens, and a
question. `--trace` reads a published trace: one JSON object per line with `timestamp` (ms),
`input_length`, `output_length` and `hash_ids`, one per 512 tokens. The CPU time per request is the
time in the fastest rounds.
"""

import argparse
import json
import random
import secrets
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "instrumentation"))

from tailspan_vllm.engine_core.block_hashes import HashReader
from tailspan_vllm.request.prefix_ladder import LadderKey

from analysis.prefix_ladders import prefixes_of
from replay.arrivals import Prefixes
from replay.kv_cache import KvCache, Lease, blocks_for
from replay.routing import prefix_aware
from telemetry.prefix_ladders import POSITIONS, Ladders

BLOCK, PUBLISHED_BLOCK = 16, 512
REPLICAS = 4
RECORDED, SMALLER, LARGER = 40_000, 10_000, 160_000
"""The three cache sizes of a replica, in blocks. The first size is 640,000 tokens. The other sizes
are a quarter of the first size and four times the first size."""

RECENT, SLACK = 40, 6
"""The router selects the replica with the longest cached prefix. But if this replica received over
6 more of the last 40 requests than the least used replica, the router selects the least used
replica."""

CHARS_LIMIT = 200
LONGEST = 8_192
"""Maximum number of blocks of a sequence. Longer sequences are cut."""


class Trace(NamedTuple):
    """Requests in order of time."""

    prompt_tokens: list[int]
    output_tokens: list[int]
    blocks: list[np.ndarray]
    """The hash of each whole block of prompt and output. A hash also depends on all earlier
    blocks."""


class BlockSequence:
    """A growing sequence of blocks."""

    def __init__(self, chance: random.Random, begins: "BlockSequence | None" = None) -> None:
        self._chance = chance
        self.tokens: int = begins.tokens if begins else 0
        self._hashes: list[int] = list(begins._hashes) if begins else []

    def add(self, tokens: int) -> None:
        """Append new tokens. If the last block is not whole, a new block replaces it."""
        self.tokens += tokens
        whole = self.tokens // BLOCK
        self._hashes += [self._chance.getrandbits(32) for _ in range(whole - len(self._hashes))]

    def whole(self) -> np.ndarray:
        """Return the hashes of the whole blocks."""
        return np.array(self._hashes[:LONGEST], dtype=np.uint32)


def drawn(chance: random.Random, median: float, sigma: float, most: int = 100_000) -> int:
    """Return a length with a lognormal distribution."""
    return min(most, max(1, round(chance.lognormvariate(np.log(median), sigma))))


def dialogue(
    chance: random.Random,
    text: BlockSequence,
    at_s: float,
    answer_tokens: tuple[float, float],
    end: float,
    pause_s: float,
    spread: float,
) -> list[tuple[float, int, int, BlockSequence]]:
    """Return the turns of a conversation. Each turn repeats the texts of all earlier turns.

    Args:
        text: the first prompt, which grows with each turn.
        answer_tokens: the median and the sigma of the lognormal length of a response.
        end: probability that a turn is the last.
        pause_s: mean time between a response and the next turn.
        spread: the sigma of the lognormal length that a turn adds.
    """
    turns = []
    while True:
        prompt, answer = text.tokens, drawn(chance, *answer_tokens, 2_000)
        text.add(answer)
        turns.append((at_s, prompt, answer, BlockSequence(chance, text)))
        if chance.random() < end:
            return turns
        at_s += answer * 0.04 + chance.expovariate(1 / pause_s)
        text.add(drawn(chance, 600, spread))


def conversations(requests: int, seed: int) -> Trace:
    """Return a chat service's traffic: one system prompt; each turn repeats the conversation."""
    chance = random.Random(seed)
    system = BlockSequence(chance)
    system.add(PUBLISHED_BLOCK)
    turns: list[tuple[float, int, int, BlockSequence]] = []
    began_s = 0.0
    while len(turns) < 1.3 * requests:
        began_s += chance.expovariate(1.2)
        talk, at_s = BlockSequence(chance, system), began_s
        talk.add(drawn(chance, 6_000, 1.05))
        turns += dialogue(chance, talk, at_s, (270, 0.7), 0.62, 60, 1.3)
    return trace_of(turns, requests)


def agents(requests: int, seed: int) -> Trace:
    """Return the traffic of agents that call the model in a loop. The prompt begins with tool
    definitions. Some tool definitions are used much more often than others."""
    chance = random.Random(seed)
    tools = []
    for _ in range(60):
        tool = BlockSequence(chance)
        tool.add(drawn(chance, 3_300, 0.6, 20_000))
        tools.append(tool)
    popularity = [1 / (1 + rank) for rank in range(len(tools))]
    turns: list[tuple[float, int, int, BlockSequence]] = []
    began_s = 0.0
    while len(turns) < 1.3 * requests:
        began_s += chance.expovariate(3.5)
        task, at_s = BlockSequence(chance, chance.choices(tools, popularity)[0]), began_s
        task.add(drawn(chance, 2_300, 1.2))
        turns += dialogue(chance, task, at_s, (130, 0.8), 0.7, 5, 1.2)
    return trace_of(turns, requests)


def questions(requests: int, seed: int) -> Trace:
    """Return requests that consist of a system prompt and one question. The system prompts differ
    in popularity."""
    chance = random.Random(seed)
    systems = []
    for _ in range(12):
        system = BlockSequence(chance)
        system.add(chance.randint(150, 950))
        systems.append(system)
    popularity = [1 / (1 + rank) for rank in range(len(systems))]
    single_questions: list[tuple[float, int, int, BlockSequence]] = []
    for number in range(requests):
        text = BlockSequence(chance, chance.choices(systems, popularity)[0])
        text.add(drawn(chance, 150, 0.9))
        prompt, answer = text.tokens, drawn(chance, 130, 0.7, 2_000)
        text.add(answer)
        single_questions.append((number / 10, prompt, answer, text))
    return trace_of(single_questions, requests)


def trace_of(turns: list[tuple[float, int, int, BlockSequence]], requests: int) -> Trace:
    """Return the first requests in order of time."""
    ordered = sorted(turns, key=lambda turn: turn[0])[:requests]
    return Trace(
        [prompt for _, prompt, _, _ in ordered],
        [answer for _, _, answer, _ in ordered],
        [text.whole() for *_, text in ordered],
    )


def published(lines: Iterable[str], requests: int) -> Trace:
    """Read a published trace. The trace's blocks of 512 tokens are divided into blocks of 16
    tokens, and the blocks of responses get random hashes."""
    chance = random.Random(0)
    rows = sorted((json.loads(line) for line in lines), key=lambda row: row["timestamp"])
    prompts, outputs, blocks = [], [], []
    for row in rows[:requests]:
        prompt, output = int(row["input_length"]), max(1, int(row["output_length"]))
        parts = PUBLISHED_BLOCK // BLOCK
        ids = np.repeat(np.array(row["hash_ids"], dtype=np.int64) * parts, parts)
        ids = (ids + np.tile(np.arange(parts), len(row["hash_ids"])))[: prompt // BLOCK]
        of_answer = (prompt + output) // BLOCK - len(ids)
        own = [chance.getrandbits(31) + 2**31 for _ in range(of_answer)]
        prompts.append(prompt)
        outputs.append(output)
        blocks.append(np.r_[ids, own].astype(np.uint32)[:LONGEST])
    return Trace(prompts, outputs, blocks)


def ladders_of(trace: Trace, positions: np.ndarray) -> Ladders:
    """Return ladders with a hash at each of these positions."""
    rungs = []
    for hashes in trace.blocks:
        contained = positions[: np.searchsorted(positions, len(hashes), side="right")]
        rungs.append(np.r_[np.uint32(0), hashes[contained - 1] & np.uint32(2**24 - 1)])
    return Ladders(
        np.full(len(rungs), BLOCK),
        np.concatenate([[0], np.cumsum([len(each) for each in rungs])]),
        np.concatenate(rungs),
    )


def found_tokens(trace: Trace, prefixes: Prefixes, blocks: int, router: str) -> np.ndarray:
    """Return the number of cached tokens of each request. The requests are served one after
    another."""
    caches = [KvCache(blocks) for _ in range(REPLICAS)]
    recent: deque[int] = deque(maxlen=RECENT)
    found = np.zeros(len(trace.blocks), dtype=np.int64)
    offsets = prefixes.offsets.tolist()
    keys, ends = prefixes.keys.tolist(), (prefixes.end_tokens // BLOCK).tolist()
    for number, (prompt, output) in enumerate(
        zip(trace.prompt_tokens, trace.output_tokens, strict=True)
    ):
        segments, before = [], 0
        most = (prompt + output - 1) // BLOCK
        for place in range(offsets[number], offsets[number + 1]):
            end = min(ends[place], most)
            if end > before:
                segments.append((keys[place], end - before))
                before = end
        lease = Lease(number, tuple(segments))
        limit = (prompt - 1) // BLOCK
        server = number % REPLICAS
        if router == "prefix_aware":
            cached = [cache.hits(lease, limit) for cache in caches]
            load = [recent.count(each) for each in range(REPLICAS)]
            server = prefix_aware(load, cached, SLACK, number)
        recent.append(server)
        cache = caches[server]
        hits = cache.hits(lease, limit)
        if not cache.admit(lease, hits, blocks_for(prompt)):
            continue
        found[number] = hits * BLOCK
        cache.grow(lease, blocks_for(prompt + output - 1))
        cache.release(lease, blocks_for(prompt + output - 1))
    return found


def cut(positions: Iterable[int]) -> np.ndarray:
    """Return the first of these positions: as many as a ladder of 200 characters has hashes."""
    rungs = (CHARS_LIMIT - len(f"{BLOCK}:")) // 4 - 1
    kept = [each for each in positions if each <= LONGEST]
    return np.array(kept[:rungs])


def per_doubling(number: int) -> np.ndarray:
    """Return the positions of a ladder's hashes: `number` positions each time that the prefix
    length doubles."""
    whole = [1 << power for power in range(14)]
    positions = {base + base * part // number for base in whole for part in range(number)}
    return cut(sorted(positions))


LADDERS = {
    "1 rung per doubling": per_doubling(1),
    "2 rungs per doubling": per_doubling(2),
    "4 rungs per doubling (chosen)": np.array(POSITIONS),
    "8 rungs per doubling": per_doubling(8),
    "a rung per 256 tokens": cut(range(16, LONGEST, 16)),
    "a rung per 512 tokens": cut(range(32, LONGEST, 32)),
    "a rung per 2,048 tokens": cut(range(128, LONGEST, 128)),
}
QUESTIONS = {
    "as recorded": (RECORDED, "round_robin"),
    "a quarter of the blocks": (SMALLER, "round_robin"),
    "four times the blocks": (LARGER, "round_robin"),
    "prefix-aware router": (RECORDED, "prefix_aware"),
}


def report(name: str, trace: Trace) -> None:
    """Print the true hit rates of a trace, and the errors of each ladder."""
    prompts = np.array(trace.prompt_tokens)
    nothing = np.zeros(len(prompts), dtype=np.int64)
    longest = max(map(len, trace.blocks))
    every = np.arange(1, longest + 1)
    exact, _ = prefixes_of(ladders_of(trace, every), nothing, every)
    truth = {
        question: found_tokens(trace, exact, *setting).sum() / prompts.sum()
        for question, setting in QUESTIONS.items()
    }
    recorded = found_tokens(trace, exact, *QUESTIONS["as recorded"])
    endless = found_tokens(trace, exact, 10**9, "prefix_aware").sum() / prompts.sum()
    print(
        f"{name}: {len(prompts):,} requests, means {prompts.mean():,.0f} prompt tokens and"
        f" {np.mean(trace.output_tokens):,.0f} answer tokens; {endless:.1%} seen before"
    )
    print("| ladder | characters, mean | most | " + " | ".join(QUESTIONS) + " |")
    print("|---|--:|--:|" + "--:|" * len(QUESTIONS))
    row(["true hit rate", "", "", *(f"{each:.1%}" for each in truth.values())])
    for kind, positions in LADDERS.items():
        ladders = ladders_of(trace, positions)
        characters = len(f"{BLOCK}:") + 4 * np.diff(ladders.offsets)
        for moved in (True, False) if "chosen" in kind else (True,):
            prefixes, _ = prefixes_of(ladders, recorded if moved else nothing, positions)
            errors = [
                found_tokens(trace, prefixes, *setting).sum() / prompts.sum() - truth[question]
                for question, setting in QUESTIONS.items()
            ]
            row(
                [
                    kind if moved else "the same, without the recorded cached tokens",
                    f"{characters.mean():.0f}",
                    f"{characters.max()}",
                    *(f"{100 * error:+.1f}" for error in errors),
                ]
            )
    print()


def row(cells: Sequence[str]) -> None:
    """Print one row of a table."""
    print("| " + " | ".join(cells) + " |", flush=True)


def costs(tokens: int, rounds: int = 200, requests: int = 50) -> tuple[float, float]:
    """Return the microseconds per request in the engine core and in the front end's thread."""
    hashing: Any = ModuleType("vllm.v1.core.kv_cache_utils")
    hashing.NONE_HASH = secrets.token_bytes(32)
    sys.modules[hashing.__name__] = hashing
    reader, key = HashReader(SimpleNamespace(block_size=BLOCK)), LadderKey(secrets.token_hex(16))
    ended = [
        SimpleNamespace(
            num_tokens=tokens,
            block_hashes=[secrets.token_bytes(32) for _ in range(tokens // BLOCK)],
        )
        for _ in range(requests)
    ]
    quietest = [float("inf")] * 2
    for _ in range(rounds):
        begun = time.perf_counter()
        copied = [reader.of(each) for each in ended]
        between = time.perf_counter()
        for each in copied:
            assert each is not None
            key.ladder(*each)
        took = between - begun, time.perf_counter() - between
        quietest = [min(pair) for pair in zip(quietest, took, strict=True)]
    engine_core_s, front_end_s = quietest
    return engine_core_s / requests * 1e6, front_end_s / requests * 1e6


def main() -> int:
    """Print the table of each trace, with errors in percentage points."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    for tokens in (200, 1_000, 12_000, 120_000):
        engine_core_us, front_end_us = costs(tokens)
        print(
            f"{tokens:,} tokens: {engine_core_us:.1f} µs in the engine core,"
            f" {front_end_us:.1f} µs in the front end"
        )
    print()
    report("Conversations", conversations(arguments.requests, arguments.seed))
    report("Agents", agents(arguments.requests, arguments.seed))
    report("Questions", questions(arguments.requests, arguments.seed))
    for path in arguments.trace:
        with path.open(encoding="utf-8") as lines:
            report(path.name, published(lines, arguments.requests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
