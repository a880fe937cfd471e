import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tailspan_vllm.request.answer_kinds import Answer, KindTokens, StreamedAnswer, answer_of

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
HOSTILE = '"content":"x","reasoning":"x","tool_calls":[{"type":"text_delta","text":"x'
"""A client's text that contains the stream's markers. JSON escapes its quotes."""


class Stream:
    """A streamed response whose chunks contain tokens."""

    def __init__(self, path: str = CHAT, requests: int = 1, streamed: bool = True) -> None:
        self.stats = SimpleNamespace(num_generation_tokens=0)
        flights = [SimpleNamespace(stats=self.stats) for _ in range(requests)]
        answer = answer_of(path, streamed, flights)
        assert answer is not None
        self.answer: Answer = answer
        self.reads = True

    def sends(self, body: bytes, tokens: int = 1) -> "Stream":
        self.stats.num_generation_tokens += tokens
        if self.reads:
            self.reads = self.answer.sent(body)
        return self

    def first_content(self) -> float | None:
        return self.answer.first_content

    def tokens(self) -> KindTokens:
        return self.answer.tokens(self.stats.num_generation_tokens)


def packed(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def chat(**delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
    return f"data: {packed(chunk)}\n\n".encode()


def call(arguments: str) -> list[dict[str, Any]]:
    return [{"index": 0, "function": {"arguments": arguments}}]


def event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {packed({'type': kind, **data})}\n\n".encode()


def message_delta(**delta: Any) -> bytes:
    return event("content_block_delta", index=0, delta=delta)


ROUTES: dict[str, dict[str, bytes]] = {
    CHAT: {
        "other": chat(role="assistant", content=""),
        "reasoning": chat(reasoning=HOSTILE),
        "content": chat(content=HOSTILE),
        "tool_call": chat(tool_calls=call(HOSTILE)),
    },
    "older chat": {
        "other": chat(role="assistant", content=""),
        "reasoning": chat(reasoning_content=HOSTILE),
        "content": chat(content=HOSTILE),
        "tool_call": chat(tool_calls=call(HOSTILE)),
    },
    RESPONSES: {
        "other": event("response.created", response={"output": [], "text": HOSTILE}),
        "reasoning": event("response.reasoning_text.delta", delta=HOSTILE),
        "content": event("response.output_text.delta", delta=HOSTILE),
        "tool_call": event("response.function_call_arguments.delta", delta=HOSTILE),
    },
    MESSAGES: {
        "other": event("content_block_start", content_block={"type": "text", "text": ""}),
        "reasoning": message_delta(type="thinking_delta", thinking=HOSTILE),
        "content": message_delta(type="text_delta", text=HOSTILE),
        "tool_call": message_delta(type="input_json_delta", partial_json=HOSTILE),
    },
}


def path_of(route: str) -> str:
    return CHAT if route == "older chat" else route


@pytest.mark.parametrize("route", ROUTES)
def test_the_kinds_of_a_stream_sum_to_its_tokens(route: str) -> None:
    events = ROUTES[route]
    stream = Stream(path_of(route)).sends(events["other"], tokens=0)
    for _ in range(5):
        stream.sends(events["reasoning"])
    assert stream.first_content() is None
    stream.sends(events["content"])
    at = stream.first_content()
    assert at is not None
    stream.sends(events["content"]).sends(events["other"])
    for _ in range(3):
        stream.sends(events["tool_call"])
    if path_of(route) == CHAT:
        stream.sends(b"data: [DONE]\n\n", tokens=0)
    # A token without a kind, such as a tag before the tool call, counts as the tool call's.
    assert stream.tokens() == KindTokens(reasoning=5, tool_call=4, content=2)
    assert stream.first_content() == at


@given(st.lists(st.tuples(st.sampled_from(list(ROUTES[CHAT])), st.integers(0, 9)), max_size=40))
def test_in_any_order_the_kinds_sum_to_the_tokens(parts: list[tuple[str, int]]) -> None:
    stream = Stream()
    for kind, tokens in parts:
        stream.sends(ROUTES[CHAT][kind], tokens)
    kinds = {kind for kind, _ in parts} - {"other"}
    reported = stream.tokens()
    assert (stream.first_content() is not None) == ("content" in kinds)
    if not kinds:
        assert reported == KindTokens()
        return
    assert None not in reported
    assert sum(each or 0 for each in reported) == stream.stats.num_generation_tokens
    for kind, tokens in reported._asdict().items():
        assert kind in kinds or tokens == 0


def test_equal_events_without_text_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bytes] = []
    search = StreamedAnswer._kind_of

    def counted(answer: StreamedAnswer, body: bytes) -> int | None:
        searched.append(body)
        return search(answer, body)

    monkeypatch.setattr(StreamedAnswer, "_kind_of", counted)
    empty, text = chat(content=""), chat(content="a")
    stream = Stream()
    for body in (empty, empty, empty, text, empty, empty, text):
        stream.sends(body)
    assert searched == [empty, text]
    assert stream.tokens() == KindTokens(0, 0, 7)


def test_an_answer_of_tool_calls_has_no_first_content() -> None:
    stream = Stream().sends(chat(role="assistant", content=""), 0)
    stream.sends(chat(tool_calls=call("{"))).sends(chat(content=""))
    assert stream.first_content() is None
    assert stream.tokens() == KindTokens(0, 2, 0)


def test_an_event_with_reasoning_and_content_is_the_first_content() -> None:
    stream = Stream().sends(chat(reasoning="a"))
    stream.sends(chat(reasoning="b", content="c"))
    assert stream.first_content() is not None
    assert stream.tokens() == KindTokens(1, 0, 1)


def test_several_engine_requests_share_the_first_content_but_no_tokens() -> None:
    """A request with `n=2` has two engine requests, whose events alternate in the stream."""
    stream = Stream(requests=2).sends(chat(reasoning="a"))
    assert stream.reads
    stream.sends(chat(content="b"))
    assert (stream.first_content() is not None, stream.reads) == (True, False)
    assert stream.tokens() == KindTokens()


def test_without_vllms_statistics_the_first_content_is_known() -> None:
    stream = Stream()
    stream.answer = answer_of(CHAT, True, [SimpleNamespace(stats=None)])  # type: ignore[assignment]
    stream.sends(chat(reasoning="a")).sends(chat(content="b"))
    assert (stream.first_content() is not None, stream.reads) == (True, False)
    assert stream.tokens() == KindTokens()


@pytest.mark.parametrize("route", ROUTES)
@given(data=st.data())
def test_chunks_divided_at_any_byte_have_the_same_first_content(
    route: str, data: st.DataObject
) -> None:
    events = ROUTES[route]
    order = ("other", "reasoning", "tool_call", "content", "content")
    whole = b"".join(events[kind] for kind in order)
    begin = whole.index(events["content"])
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))
    stream, at = Stream(path_of(route)), 0
    for cut in (*cuts, len(whole)):
        stream.sends(whole[at:cut])
        at = cut
        if cut <= begin:
            assert stream.first_content() is None
    assert stream.first_content() is not None
    if cuts:
        reported = stream.tokens()
        assert reported == KindTokens() or sum(each or 0 for each in reported) == len(cuts) + 1


@given(st.lists(st.binary(max_size=300), max_size=8), st.sampled_from([True, False]))
def test_bytes_that_are_no_answer_are_unknown(bodies: list[bytes], streamed: bool) -> None:
    assume(b'"content":"' not in b"".join(bodies))  # Hypothesis may draw the marker
    stream = Stream(streamed=streamed)
    for body in bodies:
        if body:
            stream.sends(body)
    assert stream.first_content() is None


def test_a_stream_in_one_huge_chunk_has_a_first_content() -> None:
    """A layer that buffers may join a whole stream into one chunk."""
    body = chat(role="assistant", content="") + chat(reasoning="r" * 5_000_000) + chat(content="c")
    stream = Stream().sends(body)
    assert stream.first_content() is not None
    assert stream.tokens() == KindTokens()


@pytest.mark.parametrize("route", ROUTES)
def test_no_text_of_an_answer_is_kept(route: str) -> None:
    secret = b"the-secret"
    stream = Stream(path_of(route))
    for kind in ("other", "reasoning", "content", "tool_call"):
        stream.sends(ROUTES[route][kind].replace(b"x", secret))
    divided = Stream(path_of(route))
    whole = ROUTES[route]["reasoning"].replace(b"x", secret)
    for at in range(0, len(whole), 3):
        divided.sends(whole[at : at + 3])
        assert secret[:4] not in held(divided.answer)
    assert secret not in held(stream.answer)


def held(answer: Answer) -> bytes:
    """Return everything that the object refers to, except the fixed markers."""
    slots = [name for name in type(answer).__slots__ if "marker" not in name]
    return repr([getattr(answer, name) for name in slots]).encode()


def whole_chat(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}}]}


def usage(reasoning_tokens: int) -> dict[str, Any]:
    details = {"reasoning_tokens": reasoning_tokens}
    return {"usage": {"completion_tokens": 10, "completion_tokens_details": details}}


@pytest.mark.parametrize(
    ("path", "body", "content", "tokens"),
    [
        (CHAT, whole_chat(content=HOSTILE, tool_calls=[]), True, KindTokens(0, 0, 10)),
        (CHAT, whole_chat(content=None, tool_calls=call(HOSTILE)), False, KindTokens(0, 10, 0)),
        (CHAT, whole_chat(content="a", tool_calls=call("b")), True, KindTokens(0, None, None)),
        (CHAT, whole_chat(content="a", reasoning="b") | usage(4), True, KindTokens(4, 0, 6)),
        # Some parsers cannot count reasoning tokens, and report 0.
        (CHAT, whole_chat(content="a", reasoning="b") | usage(0), True, KindTokens()),
        (CHAT, whole_chat(content="a", reasoning="b"), True, KindTokens()),
        (CHAT, whole_chat(content="a", reasoning="b") | usage(99), True, KindTokens()),
        (CHAT, whole_chat(content=None, reasoning=HOSTILE) | usage(9), False, KindTokens(9)),
        (MESSAGES, {"content": [{"type": "text", "text": "a"}]}, True, KindTokens(0, 0, 10)),
        (
            MESSAGES,
            {"content": [{"type": "tool_use", "input": {"type": "text", "text": "a"}}]},
            False,
            KindTokens(0, 10, 0),
        ),
        (
            RESPONSES,
            {
                "output": [
                    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}]},
                    {"content": [{"text": "a", "type": "output_text", "logprobs": None}]},
                ],
                "usage": {"output_tokens_details": {"reasoning_tokens": 3, "tool": 0}},
            },
            True,
            KindTokens(3, 0, 7),
        ),
    ],
)
def test_the_kinds_of_an_answer_that_is_not_streamed(
    path: str, body: dict[str, Any], content: bool, tokens: KindTokens
) -> None:
    stream = Stream(path, streamed=False).sends(packed(body).encode(), tokens=10)
    assert (stream.first_content() is not None) == content
    assert stream.tokens() == tokens


@given(cut=st.integers(1, 400))
def test_a_whole_answer_in_two_chunks_has_a_first_content_and_unknown_tokens(cut: int) -> None:
    body = packed(whole_chat(content="a" * 400)).encode()
    stream = Stream(streamed=False).sends(body[:cut]).sends(body[cut:], tokens=9)
    assert stream.first_content() is not None
    assert stream.tokens() == KindTokens()


def test_a_number_that_is_cut_off_is_no_number() -> None:
    body = packed(whole_chat(content="a", reasoning="b") | usage(44)).encode()
    stream = Stream(streamed=False).sends(body[: body.index(b"44") + 1], tokens=50)
    assert stream.tokens() == KindTokens()


def test_an_aborted_answer_counts_what_was_generated() -> None:
    stream = Stream().sends(chat(reasoning="a")).sends(chat(reasoning="a"))
    assert stream.answer.tokens(4) == KindTokens(4, 0, 0)
    assert stream.answer.tokens(1) == KindTokens()


def test_other_routes_have_no_kinds() -> None:
    assert answer_of("/v1/embeddings", False, []) is None


def test_a_completion_is_searched_only_until_its_first_content() -> None:
    stream = Stream("/v1/completions").sends(completion(""))
    searched = [stream.reads]
    stream.sends(completion("one"))
    assert [*searched, stream.reads] == [True, False]
    assert stream.first_content() is not None
    assert stream.sends(completion("two")).tokens() == KindTokens(0, 0, 3)


def completion(text: str) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": None}
    return f"data: {packed({'id': 'cmpl-1', 'choices': [choice]})}\n\n".encode()
