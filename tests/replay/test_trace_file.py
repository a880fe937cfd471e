from pathlib import Path

import pytest

from replay.mooncake import MooncakeWriter
from replay.trace_csv import TraceError
from replay.trace_file import read_trace, trace_rows

NAME = "azure_llm_inference_2023_conv.csv"
AZURE = [each / "shared" / "traces" / NAME for each in Path(__file__).parents]
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n100.5,7,0\n102,3000,9\n"
JSON = '{"timestamp": 500, "input_length": 7, "output_length": 1}\n'


def test_both_formats_are_read_whatever_the_file_is_called(tmp_path: Path) -> None:
    table, lines = tmp_path / "a.txt", tmp_path / "b.txt"
    table.write_text(CSV)
    lines.write_text(f"\ufeff\n{JSON}", encoding="utf-8")
    assert trace_rows(read_trace(table)) == ((0.0, 7, 1), (1.5, 3000, 9))
    assert trace_rows(read_trace(lines)) == ((0.0, 7, 1),)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"timestamp,input_length\n", "line 1: timestamp,input_length is not JSON"),
        ("a.csv", b"x" * 2**21, "line 1: longer than 1,048,576 characters"),
        ("a.csv", b"," * 100_000, "line 1: no column for at; .{0,400}$"),
        ("a.csv", b"time,input_tokens,output_tokens\n0,1,1\n3e9,1,1", "3,000,000,000 s from the f"),
        ("a.csv", b"time,input_tokens,output_tokens\n0,1,9999999999", "allowed: at most 2,147,"),
        ("a.csv", CSV.encode() * 1, "line 3: more than 1 requests; .*head -n 2"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_a_malformed_file_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    limit = 1 if "more than" in message else None
    with pytest.raises(TraceError, match=message):
        read_trace(path, max_requests=limit)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "gone.jsonl")


@pytest.mark.skipif(not any(each.exists() for each in AZURE), reason=f"{NAME} is absent")
def test_a_public_trace_keeps_its_times_and_lengths(tmp_path: Path) -> None:
    """The test uses the Azure conversation trace of 2023, as lines of JSON."""
    traffic = read_trace(next(each for each in AZURE if each.exists()))
    path = tmp_path / "azure.jsonl"
    path.write_text("".join(f"{line}\n" for line in MooncakeWriter().lines(traffic)))
    again = read_trace(path)
    assert len(again) == 19_366
    assert again.received_s == pytest.approx(traffic.received_s, abs=1e-6)
    assert (again.prompt_tokens == traffic.prompt_tokens).all()
    assert (again.output_tokens == traffic.output_tokens).all()
