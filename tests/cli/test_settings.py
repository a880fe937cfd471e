import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.commands.up import up
from cli.main import COMMANDS, tailspan
from cli.options.settings import GROUPS, Setting, all_settings
from cli.settings_page import page

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new working directory, and unset Tailspan's variables."""
    monkeypatch.chdir(tmp_path)
    for each in all_settings():
        monkeypatch.delenv(each.variable, raising=False)
    monkeypatch.delenv("TAILSPAN_CONFIG", raising=False)
    return tmp_path


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options that `tailspan up` would run with."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(up, "callback", lambda **values: given.update(values))
    return given


def run(*words: str) -> Result:
    return CliRunner().invoke(tailspan, words, catch_exceptions=False)


def written(text: str, name: str = "tailspan.toml") -> Path:
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_every_option_of_up_is_a_setting() -> None:
    options = [each for each in up.params if each.name != "_settings_file"]
    assert all(isinstance(each, Setting) for each in options)
    for names in ([each.key for each in all_settings()], [e.variable for e in all_settings()]):
        assert len(set(names)) == len(names) == len(options)


def test_flags_precede_variables_then_the_file_then_defaults(
    seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written("grpc-port = 1\nhttp-port = 2\nmetrics-port = 3\n")
    monkeypatch.setenv("TAILSPAN_GRPC_PORT", "11")
    monkeypatch.setenv("TAILSPAN_HTTP_PORT", "12")
    assert run("up", "--grpc-port", "21").exit_code == 0
    ports = [seen[f"{name}_port"] for name in ("grpc", "http", "metrics", "explorer")]
    assert ports == [21, 12, 3, 8501]


@pytest.mark.parametrize("text", ["1.5", ""])
def test_a_malformed_number_is_refused_with_the_range(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("up", f"--grpc-port={text}")
    assert refused.exit_code == 2
    assert f"{text!r} is not a whole number in the range 0<=x<=65535." in refused.stderr
    monkeypatch.setenv("TAILSPAN_GRPC_PORT", "abc")
    refused = run("settings")
    assert "'TAILSPAN_GRPC_PORT': 'abc' is not a whole number in the range" in refused.stderr


def test_a_mistyped_variable_has_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    others = ("TENANT_HEADER", "FORWARD_HEADERS", "SERVICE_HOST", "PORT", "SERVICE_PORT_METRICS")
    for name in (*others, "PORT_4317_TCP_PORT", "DATABASE_URL", "TOKENS"):
        monkeypatch.setenv(f"TAILSPAN_{name}", "x")
    assert "Warning" not in run("settings").stderr
    monkeypatch.setenv("TAILSPAN_GRPC_PROT", "5")
    shown = run("settings")
    assert shown.exit_code == 0
    assert "Warning: TAILSPAN_GRPC_PROT is ignored, because" in shown.stderr
    assert "Did you mean TAILSPAN_GRPC_PORT?" in shown.stderr


EXAMPLE = {
    "vllm": "http://h:1",
    "keep-rows": "36h",
    "keep-minutes": "37h",
    "keep-hours": "38h",
    "api-timeout": "30s",
    "scrape-every": "2s",
    "dcgm-every": "2s",
    "gpus": "off",
    "scrape-secrets": ".",
}


def _example(each: Setting) -> object:
    if each.key in EXAMPLE:
        return EXAMPLE[each.key]
    if each.is_flag:
        return True
    if each.multiple:
        return ["x"]
    return {"integer range": 7, "float range": 7.5}.get(each.type.name, "x")


def test_every_setting_can_be_set_in_the_file(seen: dict[str, Any]) -> None:
    examples = {each.key: _example(each) for each in all_settings()}
    file = written("".join(f"{key} = {json.dumps(value)}\n" for key, value in examples.items()))
    result = run("up")
    assert result.exit_code == 0, result.output
    from_file = dict(seen)
    file.unlink()
    seen.clear()
    words: list[str] = []
    for each in all_settings():
        value = examples[each.key]
        if each.is_flag:
            words.append(each.flag)
        else:
            for item in value if isinstance(value, list) else [value]:
                words += [each.flag, str(item)]
    assert run("up", *words).exit_code == 0
    assert from_file == seen


def test_the_file_is_given_by_flag_variable_or_working_directory(
    seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written("grpc-port = 1")
    named = written('grpc-port = 2\ntoken-file = "tokens"\nobjectives = ["/a", "b"]', "etc/t.toml")
    other = written("grpc-port = 3", "other.toml")
    run("up")
    assert seen["grpc_port"] == 1
    monkeypatch.setenv("TAILSPAN_CONFIG", str(named))
    run("up")
    assert seen["grpc_port"] == 2
    assert seen["token_file"] == Path("etc/tokens")
    assert seen["objectives"] == (Path("/a"), Path("etc/b"))
    run("up", "--config", str(other))
    assert seen["grpc_port"] == 3


@pytest.mark.parametrize("command", ["collect", "gpus", "doctor", "ui", "stats"])
def test_other_commands_skip_keys_that_they_do_not_have(command: str) -> None:
    written('keep-rows = "3d"\nwrong = 1\n')
    result = run(command)
    assert result.exit_code == 2
    assert "tailspan.toml: wrong: unknown key" in result.stderr


def test_commands_that_read_use_the_database_of_the_file() -> None:
    written('database = "sqlite:///nowhere/of-the-file.db"')
    assert "of-the-file.db" in run("stats").stderr


def test_slo_commands_take_the_objectives_in_force() -> None:
    written('objectives = ["mine.yaml"]')
    assert "mine.yaml" in run("slo", "check").stderr
    assert "other.yaml" in run("slo", "check", "other.yaml").stderr


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("grpc_port = 3", "grpc_port: unknown key; did you mean grpc-port"),
        ("grpc_port = 3", "? docs/configuration.md and tailspan up --help list all keys"),
        ('tokens = "s3cret"', "tokens: unknown key; did you mean token-file"),
        ("zzz = 3", "zzz: unknown key; allowed: " + ", ".join(each.key for each in all_settings())),
        ("[ports]\ngrpc = 3", "[ports]: tables are not allowed; allowed keys: "),
        ('grpc-port = "3"', 'grpc-port = "3": wrong type; allowed: a whole number'),
        ("grpc-port = true", "grpc-port = true: wrong type; allowed: a whole number"),
        ("grpc-port = 99999", "grpc-port = 99999: 99999 is not in the range 0<=x<=65535"),
        ("keep-rows = 7", "keep-rows = 7: wrong type; allowed: a string in quotes"),
        ('keep-rows = "7"', "keep-rows = \"7\": '7' is not a duration; allowed: a number"),
        ('scrape = "http://a"', 'scrape = "http://a": wrong type; allowed: a list of strings'),
        ('no-explorer = "yes"', 'no-explorer = "yes": wrong type; allowed: true or false'),
        ('gpus = "some"', "gpus = \"some\": 'some' is not one of 'auto', 'off'"),
        ('vllm = "http://u:s3cret@h"', 'vllm = "http://***@h": it must not contain an @'),
        ('database = ["postgresql://u:s3cret@h/d"]', 'database = ["postgresql://***@h/d"]'),
        ("x = [", "malformed TOML"),
    ],
)
def test_an_error_in_the_file_is_named(text: str, wanted: str) -> None:
    written(text)
    result = run("up")
    assert result.exit_code == 2
    assert "tailspan.toml" in result.stderr
    assert wanted in result.stderr
    assert "s3cret" not in result.output


def test_a_file_that_is_named_must_be_there() -> None:
    result = run("up", "--config", "nowhere.toml")
    assert result.exit_code == 2
    assert "--config nowhere.toml: cannot be read: No such file" in result.stderr


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILSPAN_SCRAPE_EVERY", "often")
    assert "Invalid value for 'TAILSPAN_SCRAPE_EVERY': 'often'" in run("up").stderr


def test_tokens_in_the_environment_precede_the_settings_file(
    seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written('token-file = "tokens"')
    monkeypatch.setenv("TAILSPAN_TOKENS", "0123456789abcdef")
    run("up")
    assert seen["token_file"] is None


def test_settings_shows_values_and_sources_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    written('database = "postgresql://u:s3cret@h/d"\nkeep-rows = "30d"\n')
    monkeypatch.setenv("TAILSPAN_HOST", "::1")
    monkeypatch.setenv("TAILSPAN_TOKENS", "s3cret-0123456789")
    lines = run("settings", "--format", "json").stdout.splitlines()
    found = {each["setting"]: (each["value"], each["source"]) for each in map(json.loads, lines)}
    assert found["database"] == ("postgresql://***@h/d", "tailspan.toml")
    assert found["keep-rows"] == ("30d", "tailspan.toml")
    assert found["host"] == ("::1", "TAILSPAN_HOST")
    assert found["grpc-port"] == (4317, "default")
    assert found["TAILSPAN_TOKENS"] == ("(hidden)", "TAILSPAN_TOKENS")
    shown = run("settings").stdout
    assert "Settings file: tailspan.toml" in shown
    assert all(each.key in shown for each in all_settings())
    assert "s3cret" not in shown + "".join(lines)


def test_json_has_the_whole_value_of_a_setting() -> None:
    path = "/srv/tailspan/" + "objectives/" * 20 + 'the "chat" team.yaml'
    written(f"objectives = [{json.dumps(path)}]\n")
    lines = run("settings", "--format", "json").stdout.splitlines()
    found = {each["setting"]: each["value"] for each in map(json.loads, lines)}
    assert found["objectives"] == [path]


def test_help_lists_every_setting_under_its_heading() -> None:
    shown = run("up", "--help").stdout
    places = [shown.index(f"\n{group}:\n") for group in (*GROUPS, "Other options")]
    assert places == sorted(places)
    assert {each.group for each in all_settings()} == set(GROUPS)


def test_the_documentation_has_the_table_of_today() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert text == page(text), "run make generate"


def test_the_example_of_the_documentation_is_valid(seen: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    written(text.partition("```toml\n")[2].partition("```")[0])
    result = run("up")
    assert result.exit_code == 0, result.output
    assert "settings" in COMMANDS
