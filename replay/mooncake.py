"""Read and write requests as lines of JSON, in the format of the Mooncake traces.

Each line is one request, with `timestamp` (milliseconds), `input_length` and `output_length`
(tokens). If shared prefixes are recorded, the line also has `hash_ids`: one number for each block
of the prompt. Prompts with the same first k numbers have the same first k blocks.

The writer numbers blocks from 0 in the order of their first use, because benchmark clients use the
numbers as indices.
"""

import json
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import numpy as np

from replay.arrivals import Arrivals, IntArray, Prefixes
from replay.trace_csv import MAX_S, MAX_TOKENS, TraceError

BLOCK_TOKENS: Final = 512
"""Number of tokens per block in the Mooncake traces."""
MAX_LINE_BYTES: Final = 4 * 2**20
"""Maximum length of a line in bytes. A prompt of a million tokens in blocks of 16 needs 0.6 MiB."""
MAX_HASH_IDS: Final = 10_000_000
"""Maximum number of `hash_ids` in all lines together. Reading this many numbers needs up to 0.8 GiB
of memory."""
COMMON_FROM: Final = 10
"""A prefix counts as common to many users if at least this many prompts begin with it."""
MAX_TIMESTAMP_MS: Final = 2**53
"""Above this number, a float cannot represent every millisecond."""
_SHOWN_CHARACTERS: Final = 40


class MooncakeWriter:
    """Converts requests to lines. A later call of `lines` continues the numbering of blocks."""

    def __init__(self, block_tokens: int = BLOCK_TOKENS, unshared: bool = False) -> None:
        """Create a writer.

        Args:
            unshared: whether prompts without recorded prefixes get unique numbers. If False, such
                prompts get no `hash_ids`.
        """
        self._block_tokens = block_tokens
        self._unshared = unshared
        self._shared: dict[int, tuple[list[int], int]] = {}
        """Maps a segment's key to two values: the block numbers of a prompt with this segment, and
        the number of whole blocks up to the segment's end."""
        self._last: dict[tuple[int, int], int] = {}
        """Maps a segment's key and a prompt's length to the number of the prompt's last block. Used
        only for prompts that end with this segment and whose last block is not full."""
        self._next = 0

    def lines(self, arrivals: Arrivals) -> Iterator[str]:
        """Yield one line for each request, without its line break."""
        prefixes = arrivals.prefixes
        for row, (received_s, prompt_tokens, output_tokens) in enumerate(
            zip(
                arrivals.received_s.tolist(),
                arrivals.prompt_tokens.tolist(),
                arrivals.output_tokens.tolist(),
                strict=True,
            )
        ):
            line: dict[str, Any] = {
                "timestamp": _milliseconds(received_s),
                "input_length": prompt_tokens,
                "output_length": output_tokens,
            }
            if prefixes is not None:
                its = slice(prefixes.offsets[row], prefixes.offsets[row + 1])
                line["hash_ids"] = self._hash_ids(
                    prompt_tokens, prefixes.keys[its].tolist(), prefixes.end_tokens[its].tolist()
                )
            elif self._unshared:
                line["hash_ids"] = self._hash_ids(prompt_tokens, [], [])
            yield json.dumps(line)

    def _hash_ids(self, prompt_tokens: int, keys: list[int], ends: list[int]) -> list[int]:
        """Return the `hash_ids` of a prompt: one number for each of its blocks.

        The blocks that belong to a segment of an earlier prompt have the same numbers as in the
        earlier prompt. If a segment ends inside a block, this block gets the same number only if
        both prompts end at the same token.
        """
        size = self._block_tokens
        whole = prompt_tokens // size
        found: list[int] = []
        for key in reversed(keys):
            if key in self._shared:
                numbers, blocks = self._shared[key]
                found = numbers[: min(blocks, whole)]
                break
        more = range(self._next, self._next + whole - len(found))
        self._next = more.stop
        found += more
        for key, end in zip(keys, ends, strict=True):
            numbers, blocks = self._shared.get(key, ([], 0))
            # A segment can end in the answer, so a longer prompt can contain more of the segment's
            # blocks.
            if min(len(numbers), blocks) < min(len(found), end // size) or key not in self._shared:
                self._shared[key] = found, end // size
        if not prompt_tokens % size:
            return found
        number = self._next
        if ends and ends[-1] == prompt_tokens:
            number = self._last.setdefault((keys[-1], prompt_tokens), number)
        self._next += number == self._next
        return [*found, number]


def _milliseconds(received_s: float) -> int | float:
    """Return a time in milliseconds, rounded to microseconds, as int if it is whole."""
    microseconds = round(received_s * 1e6)
    whole, rest = divmod(microseconds, 1_000)
    return microseconds / 1_000 if rest else whole


def read_mooncake(
    file: BinaryIO,
    name: str,
    block_tokens: int = BLOCK_TOKENS,
    max_requests: int | None = None,
) -> Arrivals:
    """Read requests from lines of JSON. Keys that are not in the format are ignored.

    Args:
        name: name of the file for error messages.
        max_requests: maximum number of requests, or None for any number.

    Raises:
        TraceError: a line is malformed.
    """
    found = _Columns(block_tokens)
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        where = f"{name}, line {number}"
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(
                f"{where}: longer than {MAX_LINE_BYTES // 2**20} MiB; allowed: one request per line"
            )
        if not line.strip():
            continue
        if max_requests is not None and len(found.received_ms) == max_requests:
            raise TraceError(
                f"{where}: more than {max_requests:,} requests; allowed: at most that many. Use"
                f" a part of the trace: head -n {max_requests} {name}"
            )
        found.add(_parsed(line, where), where)
    if not number or not found.received_ms:
        raise TraceError(f"{name}: contains no requests")
    return found.arrivals()


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    # Python's JSON parser raises these errors also for huge numbers and for deep nesting.
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise TraceError(
            f"{where}: {_shown(line.decode(errors='replace').strip())} is not JSON ({reason});"
            " allowed: one JSON object per line"
        ) from None
    if not isinstance(row, dict):
        raise TraceError(f"{where}: {_shown(row)}; allowed: one JSON object per line")
    return row


class _Columns:
    """The requests that have been read so far, as columns."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self.received_ms = array("d")
        self._prompt_tokens = array("q")
        self._output_tokens = array("q")
        self._hashed: bool | None = None
        """Whether the lines have `hash_ids`; None before the first line."""
        self._keys = array("q")
        self._ends = array("q")
        self._counts = array("q")

    def add(self, row: dict[str, Any], where: str) -> None:
        """Append the request of a line."""
        received_ms = _number(row, "timestamp", 0, MAX_TIMESTAMP_MS, where)
        if self.received_ms and received_ms < self.received_ms[-1]:
            raise TraceError(
                f"{where}: timestamp: {received_ms:.15g}; allowed: at least"
                f" {self.received_ms[-1]:.15g}, as in the line before. Sort the lines by timestamp."
            )
        if self.received_ms and (length_ms := received_ms - self.received_ms[0]) > MAX_S * 1_000:
            raise TraceError(
                f"{where}: timestamp: {received_ms:.15g}, {length_ms:,.0f} ms after the first;"
                f" allowed: at most {MAX_S * 1_000:,} ms (31 days)"
            )
        prompt_tokens = _whole_number(row, "input_length", 1, MAX_TOKENS, where)
        output_tokens = _whole_number(row, "output_length", 1, MAX_TOKENS, where)
        hashed = row.get("hash_ids") is not None
        if self._hashed not in (None, hashed):
            raise TraceError(
                f"{where}: hash_ids: {'given' if hashed else 'missing'}; allowed: in all lines or"
                " in none"
            )
        self._hashed = hashed
        if hashed:
            self._add_blocks(row["hash_ids"], prompt_tokens, where)
        self.received_ms.append(received_ms)
        self._prompt_tokens.append(prompt_tokens)
        self._output_tokens.append(output_tokens)

    def _add_blocks(self, numbers: object, prompt_tokens: int, where: str) -> None:
        size = self._block_tokens
        if not isinstance(numbers, list):
            raise TraceError(f"{where}: hash_ids: {_shown(numbers)}; allowed: a list of numbers")
        blocks = -(-prompt_tokens // size)
        # Some traces omit the last block if it is not full.
        if len(numbers) not in (blocks, prompt_tokens // size):
            raise TraceError(
                f"{where}: hash_ids: {len(numbers)} numbers for {prompt_tokens} tokens; allowed:"
                f" {blocks}, one for each {size} tokens. --block-size sets another size."
            )
        if len(self._keys) + len(numbers) > MAX_HASH_IDS:
            raise TraceError(
                f"{where}: hash_ids: more than {MAX_HASH_IDS:,} in all lines; allowed: at most"
                " that many. Use a part of the trace."
            )
        key = 0
        for place, number in enumerate(numbers, 1):
            if type(number) is not int or not 0 <= number < 2**64:
                raise TraceError(
                    f"{where}: hash_ids: {_shown(number)}; allowed: whole numbers from 0 to 2⁶⁴ − 1"
                )
            end = min(place * size, prompt_tokens)
            # The key identifies the prefix up to this block: it is a hash of the previous key, of
            # this number, and of the prefix's length.
            key = hash((key, number, end))
            self._keys.append(key)
            self._ends.append(end)
        self._counts.append(len(numbers))

    def arrivals(self) -> Arrivals:
        """Return the requests."""
        return Arrivals(
            received_s=np.asarray(self.received_ms) / 1e3,
            prompt_tokens=np.asarray(self._prompt_tokens),
            output_tokens=np.asarray(self._output_tokens),
            prefixes=_shared_prefixes(
                np.asarray(self._keys), np.asarray(self._ends), np.asarray(self._counts)
            )
            if self._hashed
            else None,
        )


def _shared_prefixes(keys: IntArray, ends: IntArray, counts: IntArray) -> Prefixes:
    """Merge blocks into segments, and return the shared prefixes.

    A segment ends where the number of prompts that share the prefix changes. Blocks that only one
    prompt contains are omitted.
    """
    _, names, uses = np.unique(keys, return_inverse=True, return_counts=True)
    shared_by = uses[names] if keys.size else np.zeros(0, dtype=np.int64)
    last = np.zeros(keys.size, dtype=bool)
    filled = counts > 0
    last[np.cumsum(counts)[filled] - 1] = True
    changes = np.append(shared_by[1:] != shared_by[:-1], True) if keys.size else last
    kept = (shared_by > 1) & (last | changes)
    rows = np.repeat(np.arange(counts.size), counts)[kept]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=counts.size))])
    common = shared_by[kept] >= COMMON_FROM
    return Prefixes(offsets=offsets, keys=names[kept], end_tokens=ends[kept], common=common)


def _number(row: dict[str, Any], key: str, low: int, high: int, where: str) -> float:
    value = _required_value(row, key, where)
    # NaN is refused too, because every comparison with NaN is false.
    if type(value) not in (int, float) or not low <= value <= high:
        raise TraceError(
            f"{where}: {key}: {_shown(value)}; allowed: a number from {low:,} to {high:,}"
        )
    return float(value)


def _whole_number(row: dict[str, Any], key: str, low: int, high: int, where: str) -> int:
    value = _required_value(row, key, where)
    if type(value) is not int or not low <= value <= high:
        raise TraceError(
            f"{where}: {key}: {_shown(value)}; allowed: a whole number from {low:,} to {high:,}"
        )
    return value


def _required_value(row: dict[str, Any], key: str, where: str) -> Any:
    if key not in row:
        keys = _shown(", ".join(row)) if row else "none"
        raise TraceError(f"{where}: {key}: missing; the line has {keys}")
    return row[key]


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
