"""Tests of each protocol's probe, against servers that follow the protocols' documentation."""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import AF_INET, SOCK_STREAM
from types import SimpleNamespace

import pytest
import trustme
from botocore.exceptions import CredentialRetrievalError

from cli.render.probe import text_line
from collector.drop_reasons import DroppedValue
from collector.normalise.spans import normalise_spans
from probe.otlp_spans import message
from probe.plan import Endpoint, KeySource
from probe.results_json import as_object
from probe.run_probe import Due, Prober
from telemetry.probes import PROBE_TENANT, Probe, ProbeOutcome
from tests.probe.conftest import Script, body_of, listening
from tests.probe.recorded_shapes import (
    CHAT,
    ERRORS_IN_STREAM,
    PATHS,
    REFUSALS,
    STREAMS,
    Part,
    chat_chunk,
    sse,
)

KINDS = tuple(STREAMS)
ProbeOf = Callable[..., tuple[Probe, Script]]

AWS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "aws-secret-1234",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("kind", KINDS)
def test_each_protocol_is_probed_by_its_documented_shape(kind: str, probe_of: ProbeOf) -> None:
    """Tokens come from the usage field, and reasoning and content have separate times."""
    result, script = probe_of(Script(STREAMS[kind]), kind=kind)
    assert result.error is None
    assert result.outcome.succeeded
    path, headers, _ = script.asked[0]
    assert path == PATHS[kind]
    assert headers["x-tenant-id"] == PROBE_TENANT
    assert headers["traceparent"].split("-")[1:3] == [result.trace_id, result.span_id]
    assert result.prompt_tokens == 30
    assert result.output_tokens == {"openai-completions": 2, "openai-responses": 8}.get(kind, 9)
    assert result.first_content_s is not None
    assert result.e2e_s is not None
    assert (result.first_reasoning_s is None) == (kind == "openai-completions")
    assert 0 < (result.first_byte_s or 0) <= (result.first_event_s or 0) <= result.first_content_s
    assert result.first_content_s <= result.e2e_s
    assert result.connect_s is not None
    assert (result.dns_s, result.tls_s) == (None, None)
    assert result.cost_usd is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_stream_is_a_failure(kind: str, probe_of: ProbeOf) -> None:
    parts = [*STREAMS[kind][:-3], Part(ERRORS_IN_STREAM[kind])]
    result, _ = probe_of(Script(parts), kind=kind)
    assert (result.outcome, result.error_type) == (ProbeOutcome.ERROR, "stream_error")
    assert "out of memory" in (result.error or "")


@pytest.mark.parametrize(
    ("kind", "end"),
    [*((kind, "cut") for kind in KINDS), ("openai-chat", "whole"), ("openai-chat", "reset")],
)
def test_a_truncated_stream_is_a_failure(kind: str, end: str, probe_of: ProbeOf) -> None:
    """Behind a proxy, a truncated stream may have an HTTP body that ends normally."""
    result, _ = probe_of(Script(STREAMS[kind][:2], end=end), kind=kind)
    assert (result.outcome, result.error_type) == (ProbeOutcome.ERROR, "truncated")


@pytest.mark.parametrize("kind", KINDS)
def test_throttling_is_a_sentence_with_the_pause(kind: str, probe_of: ProbeOf) -> None:
    body = json.dumps(REFUSALS[kind]).encode()
    script = Script([Part(body)], "429 Too Many Requests", "retry-after: 7\r\n")
    result, script = probe_of(script, kind=kind)
    assert (result.outcome, result.error_type, result.http_status) == (
        ProbeOutcome.REJECTED,
        "429",
        429,
    )
    assert result.error == (
        "HTTP 429: the endpoint limits the rate, and asks to wait 7 s: too many requests"
    )
    assert len(script.asked) == 1, "no retries"


@pytest.mark.parametrize(
    ("headers", "outcome", "cache"),
    [
        ("x-portkey-cache-status: SEMANTIC HIT\r\n", ProbeOutcome.CACHED, ("portkey", "hit")),
        ("cf-aig-cache-status: MISS\r\n", ProbeOutcome.STOP, ("cloudflare", "miss")),
        ("helicone-cache: <b>\x7f\r\n", ProbeOutcome.STOP, ("helicone", "unknown")),
        ("x-ai-cache-similarity: 1e999\r\n", ProbeOutcome.STOP, (None, None)),
    ],
)
def test_an_answer_of_a_gateways_cache_is_not_the_models(
    headers: str, outcome: ProbeOutcome, cache: tuple[str | None, str | None], probe_of: ProbeOf
) -> None:
    result, _ = probe_of(Script(CHAT, headers=headers))
    assert result.error is None
    assert result.outcome is outcome
    assert (result.cache, result.cache_result) == cache
    assert result.cost_usd is None
    shown = text_line(result)
    assert ("cached by portkey, not the model" in shown) == (cache == ("portkey", "hit"))


METRICS = {"queue_time_ms": 1.25, "time_to_first_token_ms": 10, "generation_time_ms": 80.5}


@pytest.mark.parametrize(
    ("kind", "metrics", "seconds"),
    [
        ("openai-completions", METRICS, (0.00125, 0.01, 0.0805)),
        ("openai-chat", {**METRICS, "queue_time_ms": None}, (None, 0.01, 0.0805)),
        (
            "openai-chat",
            {"queue_time_ms": float("nan"), "generation_time_ms": 1e300},
            (None, None, None),
        ),
        ("openai-chat", {"queue_time_ms": -1, "time_to_first_token_ms": True}, (None, None, None)),
        ("openai-chat", {"queue_time_ms": "5", "generation_time_ms": [1]}, (None, None, None)),
        ("openai-chat", [1], (None, None, None)),
    ],
)
def test_the_times_that_vllm_reports_are_those_of_its_server(
    kind: str, metrics: object, seconds: tuple[float | None, ...], probe_of: ProbeOf
) -> None:
    """`--enable-per-request-metrics` adds the times to the last event, beside the usage."""
    usage = {"prompt_tokens": 30, "completion_tokens": 9}
    last = Part(sse({"id": "x", "choices": [], "usage": usage, "metrics": metrics}))
    result, _ = probe_of(Script([*STREAMS[kind][:-1], last, Part(sse("[DONE]"))]), kind=kind)
    assert result.outcome.succeeded
    times = (result.server_queue_s, result.server_prefill_s, result.server_decode_s)
    assert times == seconds
    printed = as_object(result)
    assert (printed["server_queue_s"], printed["server_decode_s"]) == (seconds[0], seconds[2])


def test_instants_are_those_of_the_stream(probe_of: ProbeOf) -> None:
    result, _ = probe_of(Script(CHAT))
    assert result.first_event_s == pytest.approx(0.02, abs=0.015)
    assert result.first_reasoning_s == pytest.approx(0.05, abs=0.02)
    assert result.first_content_s == pytest.approx(0.08, abs=0.03)
    assert result.itl_max_s == pytest.approx(0.06, abs=0.02)
    assert (result.chunks, result.output_tokens, result.reasoning_tokens) == (3, 9, 4)
    assert (result.cached_tokens, result.request_id) == (16, "chatcmpl-1")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a_stream_of_reasoning_only_is_an_answer(field: str, probe_of: ProbeOf) -> None:
    parts = [Part(chat_chunk({field: "Let"})), Part(chat_chunk({}, "length")), Part(sse("[DONE]"))]
    result, _ = probe_of(Script(parts))
    assert result.outcome is ProbeOutcome.LENGTH
    assert result.first_reasoning_s is not None
    assert result.first_content_s is None
    assert result.output_tokens is None, "without usage the number of tokens is unknown"


def test_a_server_that_ignores_max_tokens_is_stopped(probe_of: ProbeOf) -> None:
    parts = [Part(chat_chunk({"content": "x"}))] * 50
    result, _ = probe_of(Script(parts, end="silent"), max_tokens=3)
    assert (result.error_type, result.chunks) == ("max_tokens", 4)


def test_a_silent_server_is_counted_when_the_next_probe_is_due(probe_of: ProbeOf) -> None:
    result, _ = probe_of(Script(CHAT[:3], end="silent"), within_s=0.3)
    assert (result.outcome, result.error_type) == (ProbeOutcome.TIMEOUT, "timeout")
    assert result.error == "no complete answer within 0.3 s"
    assert result.e2e_s == pytest.approx(0.3, abs=0.1)


def test_a_page_is_not_an_answer(probe_of: ProbeOf) -> None:
    script = Script([Part(b"<html></html>")], headers="content-type: text/html\r\n")
    result, _ = probe_of(script)
    assert result.error == "the answer is not an event stream, but text/html"


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("401 Unauthorized", "HTTP 401: the endpoint refused the key: bad key *** given"),
        ("302 Found", "HTTP 302: the endpoint redirects elsewhere, which a probe does not follow"),
        ("500 Oops", "HTTP 500: the endpoint failed: bad key *** given"),
    ],
)
def test_a_key_that_a_server_repeats_is_hidden(
    status: str, sentence: str, probe_of: ProbeOf
) -> None:
    body = b'{"error": {"message": "bad key sk-secret-1234 given"}}'
    result, script = probe_of(Script([Part(body)], status), key=KeySource(variable="KEY"))
    assert script.asked[0][1]["authorization"] == "Bearer sk-secret-1234"
    assert (result.error or "").startswith(sentence)
    assert "sk-secret" not in repr(result)


@pytest.mark.parametrize(("before", "chars"), [(30, 300), (110, 40), (190, 40)])
@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("401 Unauthorized", '{"error": {"message": "SERVER"}}'),
        ("200 OK", 'data: {"error": {"message": "SERVER"}}\n\n'),
        ("200 OK", 'data: {"error": {"type": "SERVER"}}\n\n'),
        ("200 OK", "data: SERVER\n\n"),
    ],
)
def test_no_part_of_a_key_is_sent(
    status: str, text: str, before: int, chars: int, prober: Prober, probe_of: ProbeOf
) -> None:
    """The message is too long, and would be cut within the key."""
    key = "sk-" + "".join(f"{number:03d}" for number in range(chars // 3))
    assert isinstance(prober.environment, dict)
    prober.environment["KEY"] = key
    body = text.replace("SERVER", f"{'x' * before}{key}{'y' * 300}").encode()
    result, _ = probe_of(Script([Part(body)], status), key=KeySource(variable="KEY"))
    assert len(result.error or "") == 240
    assert key[:6] not in (result.error or "")


@pytest.mark.parametrize(
    ("kind", "header", "value"),
    [
        ("anthropic-messages", "x-api-key", "sk-secret-1234"),
        ("gemini", "x-goog-api-key", "sk-secret-1234"),
        ("bedrock", "authorization", "Bearer sk-secret-1234"),
    ],
)
def test_each_protocol_sends_the_key_in_its_header(
    kind: str, header: str, value: str, probe_of: ProbeOf
) -> None:
    _, script = probe_of(Script(STREAMS[kind]), kind=kind, key=KeySource(variable="KEY"))
    assert script.asked[0][1][header] == value


def test_bedrock_is_signed_by_botocore(probe_of: ProbeOf) -> None:
    _, script = probe_of(Script(STREAMS["bedrock"]), kind="bedrock")
    signed = script.asked[0][1]["authorization"]
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/us-east-1/bedrock/aws4_request" in signed
    assert "aws-secret" not in str(script.asked)


def _with(response_id: str, prompt_tokens: int) -> list[Part]:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 1}
    return [
        Part(sse({"id": response_id, "choices": [], "usage": usage})),
        Part(sse({"error": {"message": "out of memory"}})),
    ]


@pytest.mark.parametrize(
    ("script", "dropped"),
    [
        (Script(status="999 Request Denied"), {DroppedValue.HTTP_STATUS: 1}),
        (Script(_with("id", 2**31)), {}),
        (Script(_with("x" * 900_000, 1)), {}),
        (Script(_with("\ud800", 1)), {}),
    ],
)
def test_a_server_cannot_prevent_that_its_failure_is_stored(
    script: Script, dropped: dict[DroppedValue, int], probe_of: ProbeOf
) -> None:
    result, _ = probe_of(script)
    assert not result.outcome.succeeded
    now_unix_ns = 1_790_000_000 * 10**9
    sent = message("eu", [replace(result, at_unix_ns=now_unix_ns)])
    assert len(sent) < 4_096
    batch = normalise_spans(sent, now_unix_ns)
    assert ([each.outcome for each in batch.probes], batch.refused) == ([result.outcome], {})
    assert batch.truncated_texts == 0
    assert batch.dropped_values == dropped


def test_chat_asks_for_usage_and_limits_the_answer(probe_of: ProbeOf) -> None:
    _, script = probe_of(Script(CHAT))
    body = body_of(script)
    assert (body["max_completion_tokens"], body["stream"]) == (16, True)
    assert body["stream_options"] == {"include_usage": True}


def test_a_key_file_is_read_again_for_each_probe(tmp_path: Path, probe_of: ProbeOf) -> None:
    file = tmp_path / "key"
    for key in ("first", "second"):
        file.write_text(f"{key}\n")
        _, script = probe_of(Script(CHAT), key=KeySource(file=file))
        assert script.asked[0][1]["authorization"] == f"Bearer {key}"


def test_a_missing_or_malformed_key_is_a_sentence(tmp_path: Path, probe_of: ProbeOf) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"sk-secret\x00\nX-Evil: 1")
    malformed, _ = probe_of(Script(CHAT), key=KeySource(file=file))
    assert malformed.error == (
        f"key_file {file} is not a key; allowed: printable ASCII characters without spaces"
    )
    missing, script = probe_of(Script(CHAT), key=KeySource(variable="NO_SUCH_KEY"))
    assert missing.error == "key_env NO_SUCH_KEY is empty or not set; allowed: a key"
    assert script.asked == []


def _send(prober: Prober, endpoint: Endpoint, within_s: float = 5.0) -> Probe:
    async def run() -> Probe:
        now = asyncio.get_running_loop().time()
        return await prober.send(endpoint, "prompt", False, Due(now, 10**18, now + within_s))

    return asyncio.run(run())


def test_errors_of_an_unknown_name_and_a_closed_port_are_sentences(
    prober: Prober, endpoint: Endpoint
) -> None:
    dead = _send(prober, replace(endpoint, url="http://tailspan-test.invalid"))
    assert dead.error_type == "dns"
    assert (dead.error or "").startswith("the name tailspan-test.invalid was not found: ")
    closed = _send(prober, replace(endpoint, url="http://127.0.0.1:1"))
    assert closed.error == "127.0.0.1:1: connection refused"
    assert (closed.e2e_s, closed.request_id) == (None, None)


def test_an_address_family_without_support_is_skipped(
    prober: Prober, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str, port: int, timings: object) -> list[object]:
        return [(family, SOCK_STREAM, 0, "", ("127.0.0.1", port)) for family in (999, AF_INET)]

    monkeypatch.setattr("probe.connection._resolve", resolve)

    async def run() -> Probe:
        async with listening(Script(CHAT)) as port:
            asked = replace(endpoint, url=f"http://dual.example:{port}")
            now = asyncio.get_running_loop().time()
            return await prober.send(asked, "prompt", False, Due(now, 10**18, now + 5))

    assert asyncio.run(run()).outcome.succeeded


def test_credentials_that_cannot_be_renewed_are_a_failure(
    prober: Prober, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renew() -> None:
        raise CredentialRetrievalError(provider="assume-role", error_msg="denied")

    expired = SimpleNamespace(get_frozen_credentials=renew)
    session = SimpleNamespace(get_credentials=lambda: expired)
    monkeypatch.setattr("probe.protocols.bedrock._session", lambda: session)
    result = _send(prober, replace(endpoint, kind="bedrock"))
    assert result.error_type == "key"
    assert (result.error or "").endswith("from assume-role: denied")


def test_a_defect_of_the_prober_is_the_result_of_one_probe(
    prober: Prober, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("no thread for sk-secret-1234")

    monkeypatch.setattr("probe.run_probe.exchange", fail)
    result = _send(prober, replace(endpoint, key=KeySource(variable="KEY")))
    assert (result.outcome, result.error_type) == (ProbeOutcome.ERROR, "prober")
    assert result.error == "the prober failed: RuntimeError: no thread for ***"


def _tls_server(authority: trustme.CA, **about: object) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", **about).configure_cert(context)  # type: ignore[arg-type]
    return context


def _over_tls(prober: Prober, endpoint: Endpoint, server: ssl.SSLContext) -> Probe:
    async def run() -> Probe:
        async with listening(Script(CHAT), server) as port:
            asked = replace(endpoint, url=f"https://localhost:{port}")
            now = asyncio.get_running_loop().time()
            return await prober.send(asked, "prompt", False, Due(now, 10**18, now + 5))

    return asyncio.run(run())


def test_tls_is_timed_and_the_end_of_the_certificate_is_known(
    prober: Prober, endpoint: Endpoint
) -> None:
    authority = trustme.CA()
    authority.configure_trust(prober.context)
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    result = _over_tls(prober, endpoint, _tls_server(authority, not_after=end))
    assert result.outcome.succeeded, result.error
    assert result.certificate_ends_unix_s == end.timestamp()
    assert (result.tls_s or 0) > 0
    assert result.dns_s is not None


def test_errors_of_expired_and_unknown_certificates_are_sentences(
    prober: Prober, endpoint: Endpoint
) -> None:
    authority = trustme.CA()
    past = datetime.now(UTC) - timedelta(days=1)
    server = _tls_server(authority, not_before=past - timedelta(days=9), not_after=past)
    unknown = _over_tls(prober, endpoint, server)
    assert (unknown.error_type, unknown.request_id) == ("tls", None)
    authority.configure_trust(prober.context)
    expired = _over_tls(prober, endpoint, server)
    assert expired.error == "TLS to localhost failed: certificate has expired"


def test_a_stopped_probe_is_a_result(prober: Prober, endpoint: Endpoint) -> None:
    async def run() -> Probe:
        async with listening(Script(CHAT[:3], end="silent")) as port:
            asked = replace(endpoint, url=f"http://127.0.0.1:{port}")
            now = asyncio.get_running_loop().time()
            task = asyncio.ensure_future(
                prober.send(asked, "prompt", False, Due(now, 10**18, now + 5))
            )
            await asyncio.sleep(0.15)
            task.cancel()
            return await task

    result = asyncio.run(run())
    assert (result.outcome, result.error) == (ProbeOutcome.ABORT, "the prober was stopped")
    assert result.first_event_s is not None
