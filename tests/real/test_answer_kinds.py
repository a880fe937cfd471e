"""Tests of the first content and of each kind's tokens, on a vLLM that separates reasoning."""

import http.client
import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rig import install, reasoning_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

ENDS_SOON = {"logit_bias": {str(reasoning_model.END_ID): 4}, "seed": 1, "ignore_eos": True}
"""Each token of the random model ends the reasoning with a probability of about 0.1."""

FUNCTION = {
    "name": "look_up",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = {
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "look_up"}},
}
MESSAGES = [{"role": "user", "content": "hello"}]
EACH_CHUNK = {"include_usage": True, "continuous_usage_stats": True}
KINDS = ("reasoning_tokens", "tool_call_tokens", "content_tokens")


@pytest.fixture(scope="module")
def reasoning(
    start_module_vllm: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    folder = tmp_path_factory.mktemp("reasoning_model") / "tokenizer"
    command = [str(install.PYTHON), str(reasoning_model.__file__), str(folder)]
    subprocess.run(command, check=True)
    return start_module_vllm(
        *("--tokenizer", str(folder), "--reasoning-parser", "deepseek_r1"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    )


@dataclass
class Seen:
    """A chat as its client received it: the tokens of each kind, and when content first arrived."""

    trace_id: str
    tokens: dict[str, int]
    first_content_s: float | None


def chat(port: int, **body: Any) -> Seen:
    """Stream a chat, and count its tokens by kind as the server reports them in each chunk."""
    seen = Seen(secrets.token_hex(16), dict.fromkeys(KINDS, 0), None)
    begun, usage, counted = time.monotonic(), 0, 0
    kind = KINDS[0]
    asked = {"messages": MESSAGES, "stream": True, "stream_options": EACH_CHUNK, **body}
    for line in post(port, "/v1/chat/completions", seen.trace_id, **asked):
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        usage = chunk["usage"]["completion_tokens"]
        delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
        found = KINDS[2] if delta.get("content") else KINDS[0] if delta.get("reasoning") else None
        found = KINDS[1] if delta.get("tool_calls") else found
        if found == KINDS[2] and seen.first_content_s is None:
            seen.first_content_s = time.monotonic() - begun
        if found is not None:
            seen.tokens[found] += usage - counted
            kind, counted = found, usage
    seen.tokens[kind] += usage - counted
    return seen


def post(port: int, path: str, trace_id: str, **body: Any) -> Iterator[bytes]:
    """Send a request, and yield the lines of its answer as they arrive."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {
        "content-type": "application/json",
        "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
    }
    connection.request("POST", path, json.dumps({"model": "tiny", **body}), headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    yield from answer
    connection.close()


def test_a_stream_has_the_tokens_of_each_kind_that_its_client_counted(
    reasoning: Any, tailspan: Any
) -> None:
    answer = chat(reasoning.port, max_tokens=60, **ENDS_SOON)
    called = chat(reasoning.port, max_tokens=60, **ENDS_SOON, **CALL)
    cut = chat(reasoning.port, max_tokens=12, ignore_eos=True)
    rows = tailspan.rows({answer.trace_id, called.trace_id, cut.trace_id})
    for seen, shown in ((answer, KINDS[2]), (called, KINDS[1]), (cut, KINDS[0])):
        row = rows[seen.trace_id]
        assert sum(row[kind] for kind in KINDS) == row["output_tokens"]
        assert row[shown] > 0
        for kind in KINDS:
            # The engine may be ahead of the chunk that is being sent.
            assert row[kind] == pytest.approx(seen.tokens[kind], abs=2)
    first_s = rows[answer.trace_id]["first_content_s"]
    assert answer.first_content_s is not None
    assert rows[answer.trace_id]["ttft_s"] < first_s <= answer.first_content_s
    assert rows[called.trace_id]["first_content_s"] is None
    assert rows[cut.trace_id]["first_content_s"] is None


def test_the_other_routes_separate_kinds_too(reasoning: Any, tailspan: Any) -> None:
    names = [secrets.token_hex(16) for _ in range(3)]
    bias = {"logit_bias": ENDS_SOON["logit_bias"], "temperature": 1}
    streamed = {"stream": True, "input": "hello", "max_output_tokens": 60, **bias}
    lines = b"".join(post(reasoning.port, "/v1/responses", names[0], **streamed))
    list(post(reasoning.port, "/v1/responses", names[1], **{**streamed, "stream": False}))
    asked = {"stream": True, "max_tokens": 20, "messages": MESSAGES}
    list(post(reasoning.port, "/v1/messages", names[2], **asked))
    rows = tailspan.rows(set(names))
    streamed_row, whole, thought = (rows[name] for name in names)
    assert (streamed_row["first_content_s"] is not None) == (b"output_text.delta" in lines)
    assert sum(streamed_row[kind] for kind in KINDS) == streamed_row["output_tokens"]
    # The chat template opens the reasoning, so vLLM reports 0 reasoning tokens: the number is
    # unknown.
    assert whole["reasoning_tokens"] is None
    assert sum(thought[kind] for kind in KINDS) == thought["output_tokens"]
    assert thought["reasoning_tokens"] > 0
