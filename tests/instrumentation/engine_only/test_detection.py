import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm.engine_only.detection import has_rust_front_end, served_port

SERVE = ["/opt/vllm/cli/main.py", "serve", "model"]
MODULE = ["/opt/vllm/entrypoints/openai/api_server.py", "--model", "m"]


def envs(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    vllm = ModuleType("vllm")
    vllm.envs = SimpleNamespace(**values)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)


@pytest.mark.parametrize(
    ("command_line", "chosen", "found"),
    [
        (SERVE, True, True),
        (SERVE, False, False),
        (["/opt/vllm/api_server.py", "--model", "serve"], True, False),
        (["offline.py"], True, False),
        ([], True, False),
        (["/opt/vllm/cli/headless_engine.py", "--model", "m"], False, True),
    ],
)
def test_only_vllm_serve_with_the_variable_has_a_rust_front_end(
    command_line: list[str], chosen: bool, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs(monkeypatch, VLLM_USE_RUST_FRONTEND=chosen)
    assert has_rust_front_end(command_line) is found


def test_a_vllm_without_the_variable_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 0.22, vLLM has only Python API servers."""
    envs(monkeypatch)
    assert not has_rust_front_end(SERVE)


def test_a_variable_that_vllm_refuses_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @property
        def VLLM_USE_RUST_FRONTEND(self) -> bool:  # noqa: N802  # vLLM's name
            raise ValueError("invalid literal for int()")

    vllm = ModuleType("vllm")
    vllm.envs = Refusing()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    assert not has_rust_front_end(SERVE)


@pytest.mark.parametrize(
    ("words", "port"),
    [
        ([], 8000),
        (["--port", "8123"], 8123),
        (["--port=8123"], 8123),
        (["--port"], None),
        (["--port", "http"], None),
        (["--config", "file.yaml"], None),
        (["--uds=/run/vllm"], None),
        (["--headless"], None),
        (["--headless", "--port", "8123"], 8123),
    ],
)
def test_the_port_is_read_from_the_command_line(words: list[str], port: int | None) -> None:
    assert served_port([*SERVE, *words]) == port
    assert served_port([*MODULE, *words]) == port


def test_an_engine_of_another_program_has_no_port() -> None:
    assert served_port(["/opt/vllm/cli/headless_engine.py", "--model", "m"]) is None
