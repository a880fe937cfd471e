"""Tests of the audit log's entries about questions of the API and MCP."""

from typing import Any

import pytest

from cli.questions.reader import Reader


def test_a_filter_on_an_id_is_recorded_on_each_side_of_a_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded: list[tuple[str, bool]] = []

    class Log:
        def read(self, _interface: Any, _who: str, request: str, *, found: bool) -> None:
            recorded.append((request, found))

    monkeypatch.setattr("cli.questions.reader.audit_log", Log)
    given = [
        ("before-where", "trace_id=before"),
        ("after-where", "request_id=after"),
        ("where", "span_id=both"),
        ("where", "tenant=acme"),
        ("request", "one"),
    ]
    Reader().record(given, found=True)
    assert recorded == [("before", True), ("after", True), ("both", True), ("one", True)]
