import asyncio
import http.client
import json
import pickle
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from tailspan_vllm import guard, names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.front_end import capture as capture_module
from tailspan_vllm.front_end.capture import Capture
from tailspan_vllm.http import Message, TimingMiddleware
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.exchange import Exchange, current
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.record_builder import BuildRecord
from tailspan_vllm.settings import settings_from

from collector.listen.asgi_server import AsgiHost
from tests.instrumentation.fake_vllm import raising


class _Recording(Capture):
    def __init__(self) -> None:
        super().__init__(settings_from({"OTEL_SDK_DISABLED": "true"}))
        self.records: list[RequestRecord] = []
        setattr(self.sender, "submit", self._submit)  # noqa: B010  # a method is replaced
        self.kinds: list[str] = []

    def _submit(self, build: BuildRecord, kind: str = "served") -> None:
        self.records.append(build())
        self.kinds.append(kind)


def _refusal(status: int) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def refuse(request: Request) -> JSONResponse:
        return JSONResponse({"error": "no"}, status_code=status)

    return refuse


async def _break(request: Request) -> JSONResponse:
    raise RuntimeError("boom")


async def _stream(request: Request) -> StreamingResponse:
    async def chunks() -> AsyncIterator[str]:
        for index in range(3):
            yield f"data: {index}\n\n"

    return StreamingResponse(chunks(), media_type="text/event-stream")


def _post(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", path, b"{}")
    answer = connection.getresponse().read()
    connection.close()
    return answer


APP = Starlette(
    routes=[
        Route("/v1/messages", _refusal(401), methods=["POST"]),
        Route("/v1/completions", _refusal(400), methods=["POST"]),
        Route("/v1/chat/completions", _stream, methods=["POST"]),
        Route("/v1/embeddings", _break, methods=["POST"]),
        Route("/v1/responses", _refusal(404), methods=["POST"]),
        Route("/other", _refusal(400), methods=["POST"]),
    ]
)


async def _call(
    capture: Capture,
    path: str,
    headers: list[tuple[bytes, bytes]] | None = None,
    app: Any = APP,
    *,
    disconnects: bool = False,
) -> list[Message]:
    sent: list[Message] = []

    asked: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
    if disconnects:
        asked.insert(0, {"type": "http.disconnect"})

    async def receive() -> Message:
        if not asked:
            await asyncio.Event().wait()
        return asked.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers or [],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 8000),
    }
    await TimingMiddleware(app, capture)(scope, receive, send)
    return sent


def test_a_request_refused_before_the_engine_is_a_row() -> None:
    capture = _Recording()
    headers = [
        (b"x-tenant-id", b"acme"),
        (b"traceparent", b"00-" + b"0a" * 16 + b"-" + b"0b" * 8 + b"-01"),
    ]
    asyncio.run(_call(capture, "/v1/completions", headers))
    (record,) = capture.records
    assert (record.outcome, record.http_status, record.error_type) == ("rejected", 400, "400")
    assert (record.tenant, record.route) == ("acme", "/v1/completions")
    assert record.trace_id == int("0a" * 16, 16)
    assert record.received <= record.delivered


def test_a_model_that_is_not_there_is_no_label() -> None:
    capture = _Recording()
    capture.engines[0] = EngineState(0, 1, model="served", config="c0ffee")
    asyncio.run(_call(capture, "/v1/responses"))
    asyncio.run(_call(capture, "/v1/completions"))
    unknown, other = capture.records
    assert (unknown.model, unknown.error_type, unknown.config) == (None, "404", "c0ffee")
    assert other.model == "served"


def test_a_failure_inside_the_server_still_propagates_and_is_a_row() -> None:
    capture = _Recording()
    with pytest.raises(RuntimeError, match="boom"):
        asyncio.run(_call(capture, "/v1/embeddings"))
    assert [record.outcome for record in capture.records] == ["rejected"]
    assert capture.records[0].http_status == 500


def test_without_engine_hooks_the_http_edge_reports() -> None:
    capture = _Recording()
    capture.sees_engine = False
    asyncio.run(_call(capture, "/v1/chat/completions"))
    asyncio.run(_call(capture, "/v1/completions"))
    reported = [(record.basis, record.outcome, record.streamed) for record in capture.records]
    assert reported == [("edge", "stop", True), ("edge", "rejected", False)]
    assert capture.records[0].first_byte is not None


def test_routes_without_a_request_to_the_engine_make_no_row() -> None:
    capture = _Recording()
    asyncio.run(_call(capture, "/other"))
    assert capture.records == []


def test_the_answer_passes_unchanged() -> None:
    sent = asyncio.run(_call(_Recording(), "/v1/chat/completions"))
    assert b"".join(message.get("body", b"") for message in sent) == (
        b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    )


def test_a_complete_answer_is_no_abort() -> None:
    """uvicorn reports a disconnect after the last message of a stream."""
    capture = _Recording()
    capture.sees_engine = False

    async def exchange() -> None:
        host = AsgiHost(TimingMiddleware(APP, capture), host="127.0.0.1", port=0, option="--port")
        await host.start()
        for _ in range(5):
            await asyncio.to_thread(_post, host.port, "/v1/chat/completions")
        await host.stop(5)

    asyncio.run(exchange())
    assert [record.outcome for record in capture.records] == ["stop"] * 5


def test_a_stream_that_the_front_end_refuses_is_refused_with_the_limit() -> None:
    capture = _Recording()

    async def overloaded(request: Request) -> StreamingResponse:
        async def chunks() -> AsyncIterator[str]:
            exchange = current.get()
            assert exchange is not None
            exchange.refused = "max_num_queued_reqs"
            yield 'data: {"error": "busy"}\n\n'

        return StreamingResponse(chunks(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/v1/completions", overloaded, methods=["POST"])])
    asyncio.run(_call(capture, "/v1/completions", app=app))
    (record,) = capture.records
    assert (record.outcome, record.error_type) == ("rejected", "max_num_queued_reqs")
    assert record.http_status == 200


def test_a_layer_added_twice_times_once() -> None:
    """The plugin's layer and `--middleware` may both be present."""
    capture = _Recording()
    asyncio.run(_call(capture, "/v1/completions", app=TimingMiddleware(APP, capture)))
    assert len(capture.records) == 1


@pytest.mark.parametrize("is_background", [False, True])
def test_the_next_request_of_a_connection_is_its_own_row(is_background: bool) -> None:
    """uvicorn begins a pipelined request in the context of the previous request."""
    capture = _Recording()
    later: list[asyncio.Task[list[Message]]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        flight = capture.flight_began(None)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        capture.flight_ended(flight, _engine_state(1), "stop")
        await send({"type": "http.response.body", "body": b"ok"})
        if not later:
            later.append(asyncio.create_task(_call(capture, "/v1/embeddings", app=application)))
            await asyncio.sleep(0.05 if is_background else 0)

    async def serve() -> None:
        await _call(capture, "/v1/completions", app=application)
        await later[0]

    asyncio.run(serve())
    assert sorted(record.route or "" for record in capture.records) == [
        "/v1/completions",
        "/v1/embeddings",
    ]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"00-zz-1-01",
        b"00-" + b"0" * 32 + b"-" + b"0b" * 8 + b"-01",
        b"\xff" * 400,
        b"x" * 9000,
    ],
)
def test_a_hostile_traceparent_makes_a_root(header: bytes) -> None:
    capture = _Recording()
    asyncio.run(
        _call(capture, "/v1/completions", [(b"traceparent", header), (b"x-tenant-id", header)])
    )
    assert capture.records[0].trace_id is None
    assert len(capture.records[0].tenant or "") <= 256


def test_an_unauthenticated_client_has_no_tenant() -> None:
    capture = _Recording()
    tenant = [(b"x-tenant-id", b"acme")]
    asyncio.run(_call(capture, "/v1/messages", tenant))
    asyncio.run(_call(capture, "/v1/completions", tenant))
    asyncio.run(_call(capture, "/generate", tenant))
    assert [record.tenant for record in capture.records] == [None, "acme", "acme"]
    assert [record.http_status for record in capture.records] == [401, 400, 404]
    assert capture.kinds == ["unauthenticated", "refused", "refused"]


def test_headers_and_paths_are_truncated() -> None:
    """An exchange may wait for a long time, so it must not contain megabytes."""
    capture = _Recording()
    exchanges: list[Exchange] = []
    ended = capture.exchange_ended

    def keep(exchange: Exchange) -> None:
        exchanges.append(exchange)
        ended(exchange)

    capture.exchange_ended = keep  # type: ignore[method-assign]
    huge = b"x" * 2_000_000
    names = (b"x-tenant-id", b"traceparent", b"tracestate", b"x-request-id", b"cookie")
    headers = [(name, huge) for name in names]
    asyncio.run(_call(capture, "/v1/completions", headers))
    asyncio.run(_call(capture, "/v1/" + "y" * 100_000, headers))
    assert all(len(pickle.dumps(_kept(exchange))) < 4096 for exchange in exchanges)
    (record,) = capture.records
    assert (record.tenant, record.request_id) == ("x" * 256, "x" * 256)


def _kept(exchange: Exchange) -> list[Any]:
    return [getattr(exchange, name) for name in Exchange.__slots__]


@pytest.mark.parametrize("broken", ["Exchange", "nothing", "Capture.exchange_ended"])
def test_our_failures_leave_the_answer(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200})
        await send({"of": "another type"})
        await send({"type": "http.response.body", "body": b"answer"})

    async def receive() -> Any:
        return {"no": "type"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    boom = raising([], broken)
    capture, before = _Recording(), sum(guard.failures.values())
    if broken == "Exchange":
        monkeypatch.setattr("tailspan_vllm.http.Exchange", boom)
    elif broken == "Capture.exchange_ended":
        monkeypatch.setattr(capture, "exchange_ended", boom)
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    asyncio.run(TimingMiddleware(application, capture)(scope, receive, send))
    assert [message.get("body") for message in sent] == [None, None, b"answer"]
    assert sum(guard.failures.values()) > before
    asyncio.run(TimingMiddleware(application, capture)({}, receive, send))  # the scope has no type
    assert len(sent) == 6


def test_a_disabled_layer_forwards_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setattr("tailspan_vllm.front_end.capture._capture", None)
    seen: list[Any] = []

    async def application(*given: Any) -> None:
        seen.append((given, current.get()))

    scope, receive, send = {"type": "http"}, object(), object()
    asyncio.run(TimingMiddleware(application)(scope, receive, send))  # type: ignore[arg-type]
    assert seen == [((scope, receive, send), None)]
    assert capture_module._capture is None


def _event(**delta: Any) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": delta}]}
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n".encode()


def _engine_state(tokens: int) -> Any:
    now = time.monotonic()
    stats = SimpleNamespace(
        arrival_time=time.time(),
        queued_ts=now,
        scheduled_ts=now,
        first_token_ts=now,
        last_token_ts=now,
        num_generation_tokens=tokens,
    )
    return SimpleNamespace(
        request_id="r",
        external_req_id="r",
        lora_name=None,
        prompt_len=3,
        num_cached_tokens=0,
        stats=stats,
    )


def _answer_in(
    capture: Capture,
    chunks: list[bytes],
    headers: list[tuple[bytes, bytes]] | None = None,
    requests: int = 1,
) -> list[Message]:
    """Serve a response of these chunks. Each chunk has one token of each engine request."""
    states = [_engine_state(0) for _ in range(requests)]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": headers or [SSE]}
        await send(start)
        flights = [capture.flight_began(None) for _ in states]
        for flight, state in zip(flights, states, strict=True):
            flight.copy_parameters(state)
        for number, chunk in enumerate(chunks):
            for state in states:
                state.stats.num_generation_tokens = number + 1
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        for flight, state in zip(flights, states, strict=True):
            capture.flight_ended(flight, state, "stop")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return asyncio.run(_call(capture, "/v1/chat/completions", app=application))


SSE = (b"content-type", b"text/event-stream; charset=utf-8")
REASONING, CONTENT = _event(reasoning="secret thought"), _event(content="secret text")


def test_a_span_has_the_first_content_and_the_tokens_of_each_kind_but_no_text() -> None:
    capture = _Recording()
    sent = _answer_in(capture, [REASONING, REASONING, CONTENT, CONTENT, CONTENT])
    (record,) = capture.records
    assert record.first_byte is not None
    assert record.first_content is not None
    assert record.received < record.first_byte < record.first_content <= record.delivered
    assert record.output_tokens == 5
    assert (record.reasoning_tokens, record.tool_call_tokens, record.content_tokens) == (2, 0, 3)
    span = span_of(record, Resource({}))
    attributes: dict[str, Any] = dict(span.attributes or {})
    assert attributes[names.TTFC] == record.first_content - record.received
    assert attributes[names.TTFC] > attributes[names.TTFT]
    assert b"secret" in b"".join(message.get("body", b"") for message in sent)
    assert "secret" not in repr((attributes, [vars(type(each)) for each in span.events], record))


def test_two_choices_share_the_first_content_and_have_no_token_kinds() -> None:
    capture = _Recording()
    _answer_in(capture, [REASONING, REASONING, CONTENT], requests=2)
    first, second = capture.records
    assert first.first_content == second.first_content is not None
    assert first.reasoning_tokens is second.content_tokens is None


@pytest.mark.parametrize("kind", ["background", "stream", "disconnect", "cancel", "error"])
def test_a_response_in_the_background_is_a_row_when_the_engine_has_finished(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the engine does not finish after a whole stream or an error, it has crashed."""
    monkeypatch.setattr("tailspan_vllm.http.ORPHAN_GRACE_S", 0.01)
    capture = _Recording()
    is_stream = kind in ("stream", "disconnect", "cancel")
    headers = [SSE] if is_stream else [(b"content-type", b"application/json")]
    flights = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        flights.append(capture.flight_began(None))
        status = 500 if kind == "error" else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"status":"queued","output":[]}'})
        if kind in ("disconnect", "cancel"):
            assert [(await receive())["type"] for _ in range(2)][1] == "http.disconnect"

    async def serve() -> None:
        await _call(capture, "/v1/responses", app=application, disconnects=True)
        await asyncio.sleep(0.05)
        outcome: Any = "abort" if kind == "cancel" else "stop"
        capture.flight_ended(flights[0], _engine_state(7), outcome)

    asyncio.run(serve())
    (record,) = capture.records
    wanted = {"background": "stop", "disconnect": "stop", "cancel": "abort"}
    assert record.outcome == wanted.get(kind, "error")
    if kind in wanted:
        assert record.delivered == record.last_token
        assert (record.first_byte is not None) == is_stream
        assert record.reasoning_tokens is None
        assert not capture._unsettled


def test_a_compressed_answer_has_no_known_first_content() -> None:
    capture = _Recording()
    _answer_in(capture, [CONTENT], [SSE, (b"Content-Encoding", b"gzip")])
    (record,) = capture.records
    assert record.first_byte is not None
    assert record.first_content is record.content_tokens is None


def test_the_content_of_an_answer_that_is_not_streamed_is_sent_at_the_end() -> None:
    capture = _Recording()
    body = b'{"choices":[{"message":{"role":"assistant","content":"text"}}]}'
    _answer_in(capture, [body], [(b"content-type", b"application/json")])
    (record,) = capture.records
    assert record.first_content == pytest.approx(record.first_byte, abs=0.05)
    assert (record.reasoning_tokens, record.content_tokens) == (0, 1)


def test_an_answer_releases_vllms_objects() -> None:
    capture = _Recording()
    exchanges: list[Exchange] = []
    begun = capture.flight_began

    def keep(trace_headers: Any, *rest: Any) -> Any:
        flight = begun(trace_headers, *rest)
        assert flight.exchange is not None
        exchanges.append(flight.exchange)
        return flight

    capture.flight_began = keep  # type: ignore[method-assign, assignment]  # looked at on the way
    _answer_in(capture, [REASONING, CONTENT])
    (exchange,) = exchanges
    assert exchange.answer is not None
    held = [getattr(exchange.answer, name) for name in type(exchange.answer).__slots__]
    assert not any(isinstance(each, SimpleNamespace | dict) for each in held)


def test_a_failing_search_leaves_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    sent_by = "tailspan_vllm.request.answer_kinds.StreamedAnswer.sent"
    monkeypatch.setattr(sent_by, raising([], "sent"))
    monkeypatch.setattr(guard, "failures", guard.failures.__class__())
    capture = _Recording()
    sent = _answer_in(capture, [REASONING, CONTENT])
    assert [message.get("body") for message in sent] == [None, REASONING, CONTENT, b""]
    assert guard.failures["send"] == 1
    assert capture.records[0].outcome == "stop"


def test_the_server_is_ready_when_its_application_has_started() -> None:
    """A failure to note this does not reach the application."""
    capture = _Recording()
    noted: list[str] = []

    def note() -> None:
        noted.append("ready")
        raise RuntimeError("no clock")

    setattr(capture.sender, "serves", note)  # noqa: B010  # a method is replaced
    before = guard.failures["ready"]
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.failed"})
        assert noted == []
        await send({"type": "lifespan.startup.complete"})

    async def send(message: Message) -> None:
        sent.append(message["type"])

    asyncio.run(TimingMiddleware(app, capture)({"type": "lifespan"}, _no_message, send))
    assert sent == ["lifespan.startup.failed", "lifespan.startup.complete"]
    assert noted == ["ready"]
    assert guard.failures["ready"] == before + 1


async def _no_message() -> Message:
    return {}
