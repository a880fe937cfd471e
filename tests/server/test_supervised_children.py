import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import simulator.live
from cli.main import tailspan
from server import children
from server.supervised_children import SupervisedSimulator
from simulator.sending import Sent


def test_the_simulator_sends_its_token_to_an_address_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such an address is not a loopback address, but its data does not leave the machine."""
    started: list[tuple[Any, ...]] = []

    async def start(*given: Any) -> None:
        started.append(given)

    monkeypatch.setattr(children, "start", start)
    monkeypatch.setattr(simulator.live, "run", lambda *_: Sent())
    address = "http://192.0.2.7:4318"
    asyncio.run(SupervisedSimulator(lambda: address, "0" * 16, tmp_path, asyncio.Queue()).start())
    [(_, command, environment, _)] = started
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(tailspan, command[command.index("simulate") :])
    assert result.exit_code == 0, result.output
