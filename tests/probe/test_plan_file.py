"""Tests that the error about an invalid file has the key, the value and the allowed values."""

from pathlib import Path

import pytest

from probe.errors import PlanError
from probe.plan_file import MAX_FILE_BYTES, read_plan

GOOD = """\
region: eu-west
every: 30s
budget: {usd_per_day: 1.5, tokens_per_day: 20000}
endpoint: http://127.0.0.1:4318
endpoints:
  - name: chat
    kind: openai-chat
    url: http://127.0.0.1:8000/v1/
    model: tiny
    max_tokens: 16
    prompt_tokens: 100
  - name: claude
    kind: anthropic-messages
    url: https://api.anthropic.com
    model: claude-sonnet-4-5
    max_tokens: 64
    prompt_file: prompt.txt
    key_env: ANTHROPIC_API_KEY
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "prompt.txt").write_text("Hello")
    (tmp_path / "probes.yaml").write_text(GOOD)
    return tmp_path / "probes.yaml"


def test_a_good_file_is_read(plan: Path) -> None:
    read = read_plan(plan)
    assert (read.region, read.every_s, read.results_url) == (
        "eu-west",
        30.0,
        "http://127.0.0.1:4318",
    )
    assert (read.limits.usd_per_day, read.limits.tokens_per_day) == (1.5, 20_000)
    chat, claude = read.endpoints
    assert (chat.url, chat.prompt_tokens, chat.key) == ("http://127.0.0.1:8000/v1", 100, None)
    assert claude.prompt_text == "Hello"
    assert claude.key is not None
    assert claude.key.variable == "ANTHROPIC_API_KEY"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("region: eu-west\n", "", "region: None; allowed: a printable text of 1 to 128 characters"),
        ("region: eu-west", "regoin: x", "the file: 'regoin'; allowed: the keys region, every"),
        ("every: 30s", "every: 30", "every: 30; allowed: a duration from 1s to 24h, such as 30s"),
        ("every: 30s", "every: 500ms", "every: '500ms'; allowed: a duration from 1s to 24h"),
        ("usd_per_day: 1.5", "usd_per_day: .nan", "budget.usd_per_day: nan; allowed: a number of"),
        ("usd_per_day: 1.5", "usd_per_day: true", "budget.usd_per_day: True; allowed: a number"),
        ("usd_per_day", "usd_per_dya", "budget: 'usd_per_dya'; allowed: the keys usd_per_day"),
        ("tokens_per_day: 20000", "tokens_per_day: 1e3", "budget.tokens_per_day: '1e3'; allowed"),
        ("name: claude", "name: chat", "endpoints: 'chat'; allowed: a different name for each"),
        ("kind: openai-chat", "kind: openai", "endpoints[0].kind: 'openai'; allowed: openai-chat"),
        ("kind: openai-chat", "kind: [x]", "endpoints[0].kind: ['x']; allowed: openai-chat, "),
        ("http://127.0.0.1:8000/v1/", "ftp://h", "endpoints[0].url: 'ftp://h'; allowed: an"),
        (
            "http://127.0.0.1:8000/v1/",
            "https://me:secret@h/",
            "endpoints[0].url: 'https://***@h/'; allowed: an address",
        ),
        ("http://127.0.0.1:8000/v1/", "http://h:99999", "endpoints[0].url: 'http://h:99999'"),
        ("max_tokens: 16", "max_tokens: 0", "endpoints[0].max_tokens: 0; allowed: a whole number"),
        ("max_tokens: 16", "max_tokens: 1.5", "endpoints[0].max_tokens: 1.5; allowed: a whole"),
        ("    prompt_tokens: 100\n", "", "endpoints[0]: 'neither'; allowed: either prompt_tokens"),
        ("prompt_file: prompt.txt", "prompt_file: no.txt", "endpoints[1].prompt_file: "),
        ("key_env: ANTHROPIC_API_KEY", "key_env: 5", "endpoints[1].key_env: 5; allowed: a"),
        (
            "key_env: ANTHROPIC_API_KEY",
            "key_env: A\n    key_file: b",
            "endpoints[1]: 'both key_env and key_file'; allowed: one of them",
        ),
        (
            "https://api.anthropic.com",
            "http://api.example.com",
            "http://api.example.com: the key would be sent unencrypted; use https, or allow it",
        ),
        ("- name: claude", "- name: claude\n    name: two", "the key 'name' is repeated"),
        ("endpoint: http://127.0.0.1:4318", "endpoint: [", "not valid YAML: "),
        ("endpoint: http://127.0.0.1:4318", "endpoint: 4318", "endpoint: 4318; allowed: an"),
    ],
)
def test_a_bad_value_is_reported_with_the_allowed_ones(
    old: str, new: str, error: str, plan: Path
) -> None:
    assert old in GOOD
    plan.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(PlanError) as raised:
        read_plan(plan)
    assert error in str(raised.value).replace(str(plan.parent) + "/", "")
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_key_over_http_can_be_allowed(plan: Path) -> None:
    plan.write_text(GOOD.replace("https://api.anthropic.com", "http://api.example.com"))
    assert read_plan(plan, insecure_credentials=True).endpoints[1].url == "http://api.example.com"


def test_hostile_files_are_refused_quickly(plan: Path) -> None:
    """A YAML alias could make a small file huge, and nesting could exhaust the stack."""
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    for written, error in (
        (bomb, "the alias *a is not allowed"),
        ("[" * 5_000, "nested too deeply"),
        ("x" * (MAX_FILE_BYTES + 1), "more than 262,144 bytes"),
        ("- 1", "the file: [1]; allowed: a mapping of keys to values"),
        ("", "the file: None; allowed: a mapping"),
        ("!!python/object/apply:os.system [ls]", "not valid YAML"),
        ("region: \x00", "not valid YAML"),
        (
            GOOD.replace("- name: chat", "- 7\n  - name: chat"),
            "endpoints[0]: 7; allowed: a",
        ),
        ("region: x\nevery: 1s\nendpoints: []", "endpoints: '0 entries'; allowed: a list of 1 to"),
    ):
        plan.write_text(written)
        with pytest.raises(PlanError) as raised:
            read_plan(plan)
        assert error in str(raised.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file or directory"):
        read_plan(tmp_path / "none.yaml")
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        read_plan(tmp_path)
    (tmp_path / "latin").write_bytes(b"region: \xff")
    with pytest.raises(PlanError, match="not a text in UTF-8"):
        read_plan(tmp_path / "latin")
