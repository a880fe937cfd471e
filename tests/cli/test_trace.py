import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import analysis.trace_export
from replay.trace_file import read_trace
from tests.cli.conftest import START_S


@pytest.fixture
def recorded(fill: Callable[..., None], request_row: Callable[..., Any]) -> None:
    """Store four requests: two of acme, one of globex, and a rejected one."""
    shapes: list[tuple[int, dict[str, Any]]] = [
        (0, {"tenant": "acme", "prompt_tokens": 700, "output_tokens": 5}),
        (1_500_000_000, {"tenant": "globex", "prompt_tokens": 100, "output_tokens": 8}),
        (1_500_250_000, {"tenant": "acme", "prompt_tokens": 513, "output_tokens": 1}),
        (9_000_000_000, {"outcome": "rejected", "prompt_tokens": None, "output_tokens": None}),
    ]
    fill(
        *(
            request_row(number, received_unix_ns=START_S * 10**9 + after_ns, **about)
            for number, (after_ns, about) in enumerate(shapes)
        )
    )


@pytest.fixture
def exported(run: Callable[..., Result], recorded: None) -> Callable[..., Result]:
    return lambda *words: run("trace", "export", *words)


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_have_times_and_lengths_and_nothing_else(exported: Callable[..., Result]) -> None:
    result = exported()
    assert result.exit_code == 0
    assert _lines(result.stdout) == [
        {"timestamp": 0, "input_length": 700, "output_length": 5},
        {"timestamp": 1500, "input_length": 100, "output_length": 8},
        {"timestamp": 1500.25, "input_length": 513, "output_length": 1},
    ]
    assert "3 requests received" in result.stderr
    assert "1 requests left out: without prompt or answer tokens" in result.stderr
    assert "no hash_ids: shared prefixes are not recorded" in result.stderr
    notes = json.loads(exported("--format", "json").stderr)
    assert notes == {"requests": 3, "left_out": 1, "hash_ids": None}
    of_acme = _lines(exported("--where", "tenant=acme").stdout)
    assert [each["input_length"] for each in of_acme] == [700, 513]


def test_unshared_hash_ids_have_one_number_for_each_block(exported: Callable[..., Result]) -> None:
    result = exported("--hash-ids", "unshared", "--block-size", "256")
    found = [each["hash_ids"] for each in _lines(result.stdout)]
    assert found == [[0, 1, 2], [3], [4, 5, 6]]
    assert "no two prompts share a block" in result.stderr


def test_a_long_window_is_read_in_parts(
    exported: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = exported().stdout
    monkeypatch.setattr(analysis.trace_export, "PART_REQUESTS", 1)
    assert exported().stdout == whole


def test_a_file_replaces_the_previous_one(exported: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("previous")
    result = exported("--output", str(path))
    assert result.stdout == ""
    assert len(read_trace(path)) == 3
    assert [each.name for each in tmp_path.glob("*trace*")] == ["trace.jsonl"]


def test_ctrl_c_leaves_the_previous_file(
    exported: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Iterator[Any]:
        yield from parts(*_)
        raise KeyboardInterrupt

    parts = analysis.trace_export.exported_parts
    monkeypatch.setattr(analysis.trace_export, "exported_parts", interrupted)
    path = tmp_path / "trace.jsonl"
    path.write_text("previous")
    with pytest.raises(AssertionError):  # the exit status is 130, which the fixture does not allow
        exported("--output", str(path))
    assert path.read_text() == "previous"
    assert [each.name for each in tmp_path.glob("*trace*")] == ["trace.jsonl"]


@pytest.mark.parametrize("words", [("--where", "tenant=nobody"), ("--where", "outcome=rejected")])
def test_without_a_request_there_is_no_file(
    exported: Callable[..., Result], tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "trace.jsonl"
    result = exported("--output", str(path), *words)
    assert result.exit_code == 1
    assert not path.exists()
    assert "No requests received" in result.stderr or "1 requests left out" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "/nowhere/trace.jsonl"), "--output /nowhere/trace.jsonl: No such file"),
        (("--block-size", "0"), "0 is not in the range"),
        (("--where", "streamed=maybe"), "must be true or false"),
    ],
)
def test_wrong_usage_is_refused(
    exported: Callable[..., Result], words: tuple[str, ...], message: str
) -> None:
    result = exported(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_device_is_written_in_place(exported: Callable[..., Result]) -> None:
    assert exported("--output", "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()
