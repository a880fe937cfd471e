"""`tailspan config`: what is in force, one configuration, two held against each other."""

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from store.database import open_database
from store.writer import Writer
from telemetry.starts import EngineStart, written

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
SECOND = EngineStart(
    replica="chat-1",
    engine=0,
    process=8,
    at_unix_ns=1_763_634_060_000_000_000,
    config="c0de0000",
    arguments=written({"scheduler.max_num_seqs": 4, "cache.enable_prefix_caching": True}),
    model="llama",
    version="0.32.0",
)


@pytest.fixture
def config(url: str) -> Callable[..., Result]:
    """Run `tailspan config` on a database with two starts, or with others."""

    def run(*words: str, starts: tuple[EngineStart, ...] = (FIRST, SECOND)) -> Result:
        engine = open_database(url)
        with Writer(engine) as writer:
            writer.submit([], [], starts).result(10)
        engine.dispose()
        return CliRunner().invoke(tailspan, ["config", "--database", url, *words])

    return run


def test_each_engine_is_shown_with_its_configuration(config: Callable[..., Result]) -> None:
    """And how to see what they differ in."""
    result = config()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["replica", "engine", "model", "vLLM", "config", "since", "(UTC)"]
    assert lines[1].split()[:5] == ["chat-0", "0", "llama", "0.32.0", "c0ffee00"]
    assert "tailspan config c0de0000 c0ffee00" in lines[-1]


def test_one_fingerprint_shows_its_arguments(config: Callable[..., Result]) -> None:
    """By its first digits, where they are one configuration's alone."""
    result = config("c0ff")
    assert "c0ffee00: llama on vLLM 0.32.0" in result.output
    assert "scheduler.max_num_seqs       16" in result.output
    assert "cache.enable_prefix_caching  true" in result.output


def test_two_fingerprints_show_what_differs(config: Callable[..., Result]) -> None:
    """And nothing else."""
    result = config("c0ffee00", "c0de")
    assert "scheduler.max_num_seqs  16        4" in result.output
    assert "prefix" not in result.output
    told = [
        json.loads(line)
        for line in config("c0ff", "c0de", "--format", "json").output.split("\n")
        if line
    ]
    assert told == [{"argument": "scheduler.max_num_seqs", "before": 16, "after": 4}]


def test_json_is_one_object_an_engine(config: Callable[..., Result]) -> None:
    """With the arguments as an object."""
    first = json.loads(config("--format", "json").output.splitlines()[0])
    assert first["replica"] == "chat-0"
    assert first["since"] == 1_763_634_000.0
    assert first["arguments"] == {"scheduler.max_num_seqs": 16, "cache.enable_prefix_caching": True}


def test_a_configuration_and_itself_differ_in_nothing(config: Callable[..., Result]) -> None:
    """It says so, rather than nothing."""
    assert "do not differ" in config("c0ff", "c0ff").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["beef"], "no engine was started with 'beef'"),
        (["c0"], "the beginning of several: c0de0000, c0ffee00"),
        (["a", "b", "c"], "allowed: none, one or two"),
        (["\x1b[2J"], r"\x1b"),
    ],
)
def test_what_cannot_be_shown_is_said(
    config: Callable[..., Result], words: list[str], said: str
) -> None:
    """Exit status 2, and a sentence."""
    result = config(*words)
    assert result.exit_code == 2
    assert said in result.output


def test_nothing_told_yet_is_said(config: Callable[..., Result]) -> None:
    """An empty database is no error."""
    result = config(starts=())
    assert result.exit_code == 0
    assert "No engine has reported" in result.output
