import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from store.database import open_database
from store.writer import Writer
from telemetry.starts import EngineStart, written

Config = Callable[..., Result]


FIRST = EngineStart(
    replica="chat-0",
    engine=0,
    process=7,
    at_unix_ns=1_763_634_000_000_000_000,
    config="c0ffee00",
    arguments=written({"scheduler.max_num_seqs": 16, "cache.enable_prefix_caching": True}),
    model="llama",
    version="0.32.0",
)
SECOND = replace(
    FIRST,
    replica="chat-1",
    process=8,
    at_unix_ns=1_763_634_060_000_000_000,
    config="c0de0000",
    arguments=written({"scheduler.max_num_seqs": 4, "cache.enable_prefix_caching": True}),
)


@pytest.fixture
def config(url: str) -> Callable[..., Result]:
    def run(*words: str, starts: tuple[EngineStart, ...] = (FIRST, SECOND)) -> Result:
        engine = open_database(url)
        with Writer(engine) as writer:
            writer.submit([], [], starts).result(10)
        engine.dispose()
        return CliRunner().invoke(tailspan, ["config", "--database", url, *words])

    return run


def test_each_engine_is_shown_with_its_configuration(config: Config) -> None:
    result = config()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["replica", "engine", "model", "vLLM", "config", "since", "(UTC)"]
    assert lines[1].split()[:5] == ["chat-0", "0", "llama", "0.32.0", "c0ffee00"]
    assert "tailspan config c0de0000 c0ffee00" in lines[-1]
    first = json.loads(config("--format", "json").output.splitlines()[0])
    assert (first["replica"], first["since"]) == ("chat-0", 1_763_634_000.0)
    assert first["arguments"] == {"scheduler.max_num_seqs": 16, "cache.enable_prefix_caching": True}


def test_one_fingerprint_shows_its_arguments(config: Config) -> None:
    result = config("c0ff")
    assert "c0ffee00: llama on vLLM 0.32.0" in result.output
    assert "scheduler.max_num_seqs       16" in result.output
    assert "cache.enable_prefix_caching  true" in result.output


def test_two_fingerprints_show_the_differences(config: Config) -> None:
    result = config("c0ffee00", "c0de")
    assert "scheduler.max_num_seqs  16        4" in result.output
    assert "prefix" not in result.output
    (shown,) = config("c0ff", "c0de", "--format", "json").output.splitlines()
    assert json.loads(shown) == {"argument": "scheduler.max_num_seqs", "before": 16, "after": 4}
    assert "the same recorded arguments" in config("c0ff", "c0ff").output


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["beef"], "no engine was started with 'beef'"),
        (["c0"], "matches several: c0de0000, c0ffee00"),
        (["a", "b", "c"], "allowed: none, one or two"),
        (["\x1b[2J"], r"\x1b"),
    ],
)
def test_an_unknown_fingerprint_exits_2(config: Config, words: list[str], wanted: str) -> None:
    result = config(*words)
    assert result.exit_code == 2
    assert wanted in result.output


def test_an_empty_database_is_reported(config: Config) -> None:
    result = config(starts=())
    assert result.exit_code == 0
    assert "No engine has reported" in result.output
