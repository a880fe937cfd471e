import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.arrivals import Arrivals, Prefixes
from replay.mooncake import MooncakeWriter, read_mooncake
from replay.trace_csv import TraceError

LINE = '{"timestamp": 5, "input_length": 600, "output_length": 7}\n'


def _read(text: str | bytes, **about: Any) -> Arrivals:
    content = text if isinstance(text, bytes) else text.encode()
    return read_mooncake(io.BytesIO(content), "t.jsonl", **about)


def _written(arrivals: Arrivals, **about: Any) -> str:
    return "".join(f"{line}\n" for line in MooncakeWriter(**about).lines(arrivals))


def _hash_ids(text: str) -> list[list[int]]:
    return [json.loads(line)["hash_ids"] for line in text.splitlines()]


@st.composite
def _traffic(draw: st.DrawFn) -> Arrivals:
    """Draw prompts that begin with one of a few texts, with or without a ladder of keys."""
    shapes = st.tuples(
        st.integers(0, 10**9),  # microseconds
        st.integers(1, 400),
        st.integers(1, 50),
        st.integers(0, 3),  # the number of the text
        st.lists(st.sampled_from([16, 32, 48, 64, 128, 256, 400]), unique=True),
    )
    rows = sorted(draw(st.lists(shapes, min_size=1, max_size=12)))
    keys, ends, counts = [], [], []
    for _, prompt_tokens, _, text, rungs in rows:
        its = [end for end in sorted(rungs) if end <= prompt_tokens]
        keys += [1_000 * text + end for end in its]
        ends += its
        counts.append(len(its))
    prefixes = Prefixes(
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        keys=np.array(keys, dtype=np.int64),
        end_tokens=np.array(ends, dtype=np.int64),
    )
    return Arrivals(
        received_s=np.array([row[0] for row in rows]) / 1e6,
        prompt_tokens=np.array([row[1] for row in rows]),
        output_tokens=np.array([row[2] for row in rows]),
        prefixes=prefixes if draw(st.booleans()) else None,
    )


@given(_traffic(), st.sampled_from([1, 16, 100, 512]), st.booleans())
def test_a_written_trace_is_written_again_as_it_was(
    traffic: Arrivals, block_tokens: int, unshared: bool
) -> None:
    first = _written(traffic, block_tokens=block_tokens, unshared=unshared)
    again = _read(first, block_tokens=block_tokens)
    assert _written(again, block_tokens=block_tokens) == first
    assert again.received_s == pytest.approx(traffic.received_s)
    assert again.prompt_tokens.tolist() == traffic.prompt_tokens.tolist()
    assert again.output_tokens.tolist() == traffic.output_tokens.tolist()


@given(_traffic(), st.sampled_from([16, 100, 512]))
def test_each_block_has_a_number_and_shared_blocks_share_a_prefix(
    traffic: Arrivals, block_tokens: int
) -> None:
    """Two prompts may share cached blocks only if these blocks have the same numbers."""
    found = _hash_ids(_written(traffic, block_tokens=block_tokens, unshared=True))
    prompts = traffic.prompt_tokens.tolist()
    assert [len(each) for each in found] == [-(-tokens // block_tokens) for tokens in prompts]
    used = {number for each in found for number in each}
    assert used == set(range(len(used)))
    if traffic.prefixes is None:
        assert len(used) == sum(map(len, found))
        return
    of = traffic.prefixes
    texts = [  # the text of each prompt that has a key
        {key // 1_000 for key in of.keys[of.offsets[row] : of.offsets[row + 1]].tolist()}
        for row in range(len(traffic))
    ]
    for row, numbers in enumerate(found):
        for other in range(row):
            if set(numbers) & set(found[other]):
                assert texts[row] == texts[other] != set()


def test_times_are_in_milliseconds_and_integers_if_possible() -> None:
    traffic = Arrivals(
        received_s=np.array([0.0, 0.0105, 1.5, 1.5000004]),
        prompt_tokens=np.full(4, 3),
        output_tokens=np.full(4, 2),
    )
    found = [json.loads(line) for line in _written(traffic).splitlines()]
    assert [each["timestamp"] for each in found] == [0, 10.5, 1500, 1500]
    assert list(found[0]) == ["timestamp", "input_length", "output_length"]


def test_numbers_continue_over_several_calls_and_do_not_contain_keys() -> None:
    traffic = Arrivals(
        received_s=np.zeros(2),
        prompt_tokens=np.array([1200, 600]),
        output_tokens=np.ones(2, dtype=np.int64),
        prefixes=Prefixes(
            offsets=np.array([0, 2, 3]),
            keys=np.array([2**60, 2**61, 2**60]),
            end_tokens=np.array([512, 1024, 512]),
        ),
    )
    writer = MooncakeWriter()
    assert [_hash_ids("\n".join(writer.lines(traffic))) for _ in range(2)] == [
        [[0, 1, 2], [0, 3]],
        [[0, 1, 4], [0, 5]],
    ]


def test_numbers_of_any_trace_become_shared_segments() -> None:
    """The last block before a branch is kept. A block that only one prompt has is not kept."""
    lines = [
        {"timestamp": 0, "input_length": 2048, "output_length": 1, "hash_ids": [9, 8, 7, 6]},
        {"timestamp": 0, "input_length": 1600, "output_length": 1, "hash_ids": [9, 8, 7, 5]},
        {"timestamp": 0, "input_length": 1030, "output_length": 1, "hash_ids": [9, 8]},
        {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [8]},
    ]
    prefixes = _read("\n".join(map(json.dumps, lines))).prefixes
    assert prefixes is not None
    assert prefixes.offsets.tolist() == [0, 2, 4, 5, 5]
    assert prefixes.end_tokens.tolist() == [1024, 1536, 1024, 1536, 1024]
    assert len(set(prefixes.keys.tolist())) == 2


def test_timestamps_may_count_from_any_instant() -> None:
    """The length of a trace is limited, as for CSV. Unix times are allowed."""
    found = _read(LINE.replace("5", "1700000000000", 1) + LINE.replace("5", "1700000000250", 1))
    assert np.diff(found.received_s) == pytest.approx([0.25], abs=1e-6)


def test_blank_lines_and_other_keys_are_ignored() -> None:
    found = _read(
        '\n{"session_id": "x", "timestamp": 5, "input_length": 1, "output_length": 7}\n\n'
    )
    assert (len(found), found.prefixes) == (1, None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{nope}", r"\{nope\} is not JSON \(Expecting property name.*allowed: one JSON object"),
        ("[1, 2]", r"\[1, 2\]; allowed: one JSON object per line"),
        ("\xff\xfe", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("9" * 5_000, "is not JSON"),
        ("{}", "timestamp: missing; the line has none"),
        ('{"timestamp": 9, "output_length": 7}', "input_length: missing; the line has timestamp, "),
        (
            '{"timestamp": 4, "input_length": 1, "output_length": 1}',
            "timestamp: 4; allowed: at lea",
        ),
        ('{"timestamp": -1}', "timestamp: -1; allowed: a number from 0 to 9,007,199,254,740,992"),
        ('{"timestamp": NaN}', "timestamp: nan; allowed"),
        ('{"timestamp": 1e999}', "timestamp: inf; allowed"),
        ('{"timestamp": 1700000000000000000}', "timestamp: 1700000000000000000; allowed"),
        (
            '{"timestamp": 1700000000000}',
            r"timestamp: 1700000000000, 1,699,999,999,995 ms after the first; allowed: at most"
            r" 2,678,400,000 ms \(31 days\)",
        ),
        ('{"timestamp": "9"}', "timestamp: 9; allowed"),
        ('{"timestamp": true}', "timestamp: True; allowed"),
        ('{"timestamp": 9, "input_length": 0}', "input_length: 0; allowed: a whole number from 1 "),
        ('{"timestamp": 9, "input_length": 6.5}', "input_length: 6.5; allowed"),
        ('{"timestamp": 9, "input_length": 1' + "0" * 4_000 + "}", "input_length: 10+…; allowed"),
        (
            '{"timestamp": 9, "input_length": 1, "output_length": null}',
            "output_length: None; allow",
        ),
    ],
)
def test_a_malformed_line_is_reported_with_the_allowed_form(line: str, message: str) -> None:
    with pytest.raises(TraceError, match=rf"^t\.jsonl, line 2: .*{message}"):
        _read(LINE.encode() + line.encode("latin-1"))


@pytest.mark.parametrize(
    ("hash_ids", "message"),
    [
        ("[1, 2, 3]", "hash_ids: 3 numbers for 600 tokens; allowed: 2, one for each 512 tokens"),
        ("[]", "hash_ids: 0 numbers for 600 tokens; allowed: 2"),
        ("[1, -2]", "hash_ids: -2; allowed: whole numbers"),
        ('[1, "a"]', "hash_ids: a; allowed: whole numbers"),
        ("[1, 18446744073709551616]", "hash_ids: 18446744073709551616; allowed: whole numbers"),
        ('"12"', "hash_ids: 12; allowed: a list"),
        ("null", "hash_ids: missing; allowed: in all lines or in none"),
    ],
)
def test_malformed_hash_ids_are_named(hash_ids: str, message: str) -> None:
    def line(numbers: str) -> str:
        return LINE.replace("}", f', "hash_ids": {numbers}}}')

    with pytest.raises(TraceError, match=rf"^t\.jsonl, line 2: {message}"):
        _read(line("[4, 5]") + line(hash_ids))


def test_a_partial_last_block_may_be_omitted() -> None:
    """Some traces have only full blocks; the rest of the prompt is then not shared."""
    found = _read(LINE.replace("}", ', "hash_ids": [3]}') * 2)
    assert found.prefixes is not None
    assert found.prefixes.end_tokens.tolist() == [512, 512]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_no_trace(content: str) -> None:
    with pytest.raises(TraceError, match=r"^t\.jsonl: contains no requests"):
        _read(content)


class _Endless(io.RawIOBase):
    """An endless file that counts the bytes that are read."""

    def __init__(self, repeated: bytes) -> None:
        self.repeated = repeated
        self.read_bytes = 0

    def readline(self, limit: int | None = -1, /) -> bytes:
        line = self.repeated if self.repeated.endswith(b"\n") else self.repeated * 2**20
        line = line[:limit]
        self.read_bytes += len(line)
        return line


def test_a_long_line_is_not_read_to_its_end() -> None:
    endless = _Endless(b"12345678")
    with pytest.raises(TraceError, match="line 1: longer than 4 MiB; allowed: one request per"):
        read_mooncake(endless, "t.jsonl")  # type: ignore[arg-type]
    assert endless.read_bytes < 5 * 2**20


def test_a_long_file_is_not_read_to_its_end() -> None:
    endless = _Endless(LINE.encode())
    with pytest.raises(TraceError, match=r"line 11: more than 10 requests; .*head -n 10 t\.jsonl"):
        read_mooncake(endless, "t.jsonl", max_requests=10)  # type: ignore[arg-type]
    assert endless.read_bytes < 20 * len(LINE)


def test_all_hash_ids_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay.mooncake.MAX_HASH_IDS", 3)
    line = LINE.replace("}", ', "hash_ids": [3, 4]}')
    with pytest.raises(TraceError, match="line 2: hash_ids: more than 3 in all lines"):
        _read(line * 2)
