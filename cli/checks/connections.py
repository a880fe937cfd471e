"""Check each connection of Tailspan."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from cli.checks.findings import CheckFinding, length
from cli.checks.newest_data import query_newest_data
from cli.checks.own_metrics import TIMEOUT_S, own_series
from cli.options.addresses import authority
from cli.options.shared import state_url
from cli.render.text import usd as usd_text
from server import http_check
from server.client_access import OPEN, ClientAccess
from telemetry.printable import printable
from telemetry.store_errors import DatabaseMissing, StoreError

RECENT_S = 60
"""Maximum age of the newest telemetry. An idle server also reports every few seconds."""
AHEAD_S = 5
PRICED_NS = 600 * 10**9
"""Only servers that reported recently need a price. This is the maximum age of their last report,
relative to the newest telemetry."""


def database(url: str | None, *, server_expected: bool = False) -> Iterator[CheckFinding]:
    """Check that the database opens, and that its telemetry is recent.

    Old telemetry is a failure only if `server_expected` is set.
    """
    from analysis.database_check import check_database

    try:
        found = check_database(url, state_url())
    except DatabaseMissing as error:
        yield CheckFinding(
            "database", False, str(error), "run `tailspan up`, or correct --database"
        )
        return
    except StoreError as error:
        yield CheckFinding("database", False, str(error))
        return
    yield CheckFinding("database", True, f"{found.url} opens, and this version can use its schema")
    if found.state is not None:
        problem = found.state.problem
        state = " belongs to this database" if problem is None else f": {problem}"
        yield CheckFinding("state database", problem is None, f"{found.state.url}{state}")
    if found.slow_because:
        yield CheckFinding(
            "columns",
            None,
            "reading many requests takes about four times as long as necessary:"
            f" {found.slow_because}",
            "install the missing library, or continue without it: the results are the same",
        )
    yield _freshness(found.newest_unix_ns, time.time_ns(), server_expected)


def prices(url: str | None, path: Path | None) -> Iterator[CheckFinding]:
    """Check that each engine that reported recently has a price."""
    from analysis.hourly_cost import recent_bill
    from cost.errors import PriceError
    from cost.pricefile import prices_in_force

    try:
        in_force = prices_in_force(path, os.environ)
    except PriceError as error:
        yield CheckFinding("prices", False, str(error), "correct the file: tailspan cost --help")
        return
    found = query_newest_data(
        url, lambda engine, newest: recent_bill(engine, newest, PRICED_NS, in_force)
    )
    if found is None:
        return
    for what, usd, number, origin in sorted(
        {
            (rate.what, rate.usd_per_hour, rate.devices, str(rate.origin))
            for rates in found.rates.values()
            for rate in rates
        }
    ):
        each = f"{number} × {what}" if number > 1 else what
        yield CheckFinding(
            "prices", True, f"an engine on {each}: {usd_text(usd)} per hour ({origin})"
        )
    for server in found.unpriced:
        if not server.wall_s:
            continue
        device = "an unknown device" if server.device is None else repr(server.device)
        name = printable(server.replica, http_check.WIDEST_WHY)
        yield CheckFinding(
            "prices",
            None,
            f"{name} runs on {printable(device, http_check.WIDEST_WHY)}, which has no price:"
            " its requests have no cost",
            "set a price: --prices FILE or TAILSPAN_PRICES (tailspan cost --help)",
        )


def _freshness(newest_unix_ns: int | None, now_unix_ns: int, server_expected: bool) -> CheckFinding:
    ok = False if server_expected else None
    if newest_unix_ns is None:
        return CheckFinding(
            "telemetry",
            ok,
            "nothing has been received yet",
            "connect a server (tailspan up prints the steps), or try tailspan up --simulate",
        )
    age_s = (now_unix_ns - newest_unix_ns) / 1e9
    if age_s < -AHEAD_S:
        return CheckFinding(
            "telemetry",
            False,
            f"the newest data is from {length(-age_s)} in the future",
            "set the clocks of this machine and of the servers (NTP)",
        )
    if age_s <= RECENT_S:
        return CheckFinding("telemetry", True, f"the newest data is {max(age_s, 0):.0f} s old")
    return CheckFinding(
        "telemetry",
        ok,
        f"the newest data is {length(age_s)} old",
        "check that the server is up, and that its environment has OTEL_EXPORTER_OTLP_ENDPOINT."
        " Its log contains 'tailspan: capturing' when the instrumentation is loaded",
    )


def vllm(url: str) -> Iterator[CheckFinding]:
    """Check the health and the metrics of a vLLM server."""
    health = http_check.get(f"{url}/health", TIMEOUT_S)
    if not health.ok:
        yield CheckFinding(
            "vllm", False, f"{url}/health: {health.why}", "start it, or correct --vllm"
        )
        return
    yield CheckFinding("vllm", True, f"{url} is healthy")
    metrics = http_check.get(f"{url}/metrics", TIMEOUT_S)
    if not metrics.ok:
        yield CheckFinding("vllm", False, f"{url}/metrics: {metrics.why}", "is this a vLLM?")
    elif "vllm:" not in metrics.body:
        yield CheckFinding(
            "vllm",
            False,
            f"{url}/metrics has no vllm: series",
            "check that this is a vLLM, and that it was started without --disable-log-stats",
        )
    else:
        yield CheckFinding("vllm", True, f"{url}/metrics has the metrics of a vLLM engine")


def otlp_grpc(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Export over gRPC."""
    import grpc
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

    where = authority(host, port)
    with access.channel(where) as channel:
        try:
            stub = TraceServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            stub.Export(
                ExportTraceServiceRequest(),
                timeout=TIMEOUT_S,
                metadata=tuple(access.headers().items()),
            )
        except grpc.RpcError as error:
            # gRPC's message lists all attempts to connect.
            why = printable(error.details().rpartition("last error: ")[2], http_check.WIDEST_WHY)
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                yield CheckFinding("OTLP gRPC", False, f"{where}: {why}", _TOKEN)
                return
            yield CheckFinding("OTLP gRPC", False, f"{where}: {why}", _remedy("--grpc-port"))
            return
    yield CheckFinding("OTLP gRPC", True, f"{where} accepts an export")


def otlp_http(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Export over HTTP."""
    where = authority(host, port)
    # An empty body is a valid OTLP message, and so is an empty response.
    url = f"{access.scheme}://{where}/v1/traces"
    answer = http_check.post(url, b"", "application/x-protobuf", TIMEOUT_S, access)
    if answer.ok:
        yield CheckFinding("OTLP HTTP", True, f"{where} accepts an export")
    else:
        yield CheckFinding(
            "OTLP HTTP", False, f"{where}: {answer.why}", _remedy("--http-port", answer)
        )


def metrics(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Check /metrics and the readiness probe."""
    where = authority(host, port)
    for path, what in (("healthz", "is alive"), ("readyz", "is ready")):
        answer = http_check.get(f"{access.scheme}://{where}/{path}", TIMEOUT_S, access)
        if not answer.ok:
            found = f"{where}/{path}: {answer.why}"
            answered = printable(answer.body.strip(), http_check.WIDEST_WHY)
            if answered.startswith("not ready; failing"):
                yield CheckFinding("metrics", False, f"{where}/{path}: {answered}", _LOG)
                return
            yield CheckFinding("metrics", False, found, _remedy("--metrics-port"))
            return
        answered = printable(answer.body.strip(), http_check.WIDEST_WHY)
        if path == "readyz" and answered.startswith("ready; degraded"):
            yield CheckFinding("metrics", False, f"{where}/{path}: {answered}", _LOG)
        else:
            yield CheckFinding("metrics", True, f"{where}/{path} {what}")
    answer = http_check.get(f"{access.scheme}://{where}/metrics", TIMEOUT_S, access)
    if "tailspan_" in answer.body:
        yield CheckFinding("metrics", True, f"{where}/metrics serves Tailspan's series")
    elif answer.status == _UNAUTHORISED:
        yield CheckFinding("metrics", False, f"{where}/metrics: {answer.why}", _TOKEN)
    else:
        found = f"{where}/metrics has no tailspan_ series: the port belongs to another program"
        yield CheckFinding("metrics", False, found, _remedy("--metrics-port"))


def tasks(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Report components that failed earlier and work now."""
    samples = own_series(host, port, access, "tailspan_task_")
    up = {s.labels.get("task"): s.value for s in samples if s.name == "tailspan_task_up"}
    working = 0
    for sample in samples:
        if sample.name != "tailspan_task_failures_total" or not up.get(sample.labels.get("task")):
            continue
        working += 1
        if sample.value:
            name = printable(sample.labels.get("task", ""), http_check.WIDEST_WHY)
            found = f"{name} failed {sample.value:.0f} times since the start, and works again"
            yield CheckFinding("tasks", None, found, _LOG)
    if up:
        yield CheckFinding(
            "tasks", working == len(up), f"{working} of {len(up)} components work", None
        )


def refusals(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Report the items that the collector has refused, by reason."""
    refused: dict[str, float] = {}
    for sample in own_series(host, port, access, "tailspan_collector_items_total"):
        if sample.labels.get("result") == "refused" and sample.value:
            reason = printable(sample.labels.get("reason", ""), http_check.WIDEST_WHY)
            refused[reason] = refused.get(reason, 0) + sample.value
    for reason, count in refused.items():
        items = "item" if count == 1 else "items"
        yield CheckFinding(
            "refused",
            None,
            f"{count:,.0f} {items} since the collector started: {reason}",
            _REFUSED_MENDS.get(
                reason, "if the sender is old, update it; its log has the reason for each refusal"
            ),
        )


_REFUSED_MENDS = {
    "in_the_future": "a sender's clock is more than a day ahead: set it by NTP",
    "instant_out_of_range": (
        "a sender's clock was never set: set it by NTP; the log has the details"
    ),
    "too_many_operations": (
        "an application reports more operations in one trace than Tailspan stores: use one trace"
        " per request of a user"
    ),
    "too_many_starts": (
        "too many engine starts: an engine restarts in a loop, or a sender sends false starts; the"
        " log has the details"
    ),
    "too_old": "a sender's clock is far behind, or the sender's data is older than --keep-rows",
}


def scrapes(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Check that each scrape target responds."""
    samples = own_series(host, port, access, "tailspan_scrape_")
    failures: dict[str, list[str]] = {}
    for sample in samples:
        if sample.name == "tailspan_scrape_failures_total":
            count = f"{sample.value:.0f} {sample.labels.get('reason')}"
            failures.setdefault(sample.labels.get("target", ""), []).append(count)
    for sample in samples:
        if sample.name == "tailspan_scrape_up":
            target = sample.labels.get("target", "")
            shown = printable(target, http_check.WIDEST_WHY)
            if sample.value:
                yield CheckFinding("scrape", True, f"{shown} is up")
            else:
                why = ", ".join(failures.get(target, []))
                found = f"{shown} is down; failures: {printable(why, http_check.WIDEST_WHY)}"
                yield CheckFinding("scrape", False, found, _mend_scrape(why))
        elif sample.name == "tailspan_scrape_discovery_up" and not sample.value:
            name = printable(sample.labels.get("discovery", ""), http_check.WIDEST_WHY)
            mend = "the log of `tailspan up` has the reason; the previous targets are still scraped"
            yield CheckFinding("scrape", False, f"{name} does not return its targets", mend)


def explorer(host: str, port: int, base_path: str = "") -> Iterator[CheckFinding]:
    """Check that the explorer serves its pages under the base path."""
    where = f"{authority(host, port)}/{base_path.strip('/')}".rstrip("/")
    answer = http_check.get(f"http://{where}/_stcore/health", TIMEOUT_S)
    if answer.ok:
        yield CheckFinding("explorer", True, f"http://{where} answers")
    else:
        found = f"http://{where}: {answer.why}"
        option = _remedy("--explorer-port, --base-path")
        mend = f"{option}; explorer.log in the database's folder has the reason"
        yield CheckFinding("explorer", False, found, mend)


def _mend_scrape(reasons: str) -> str:
    for reason, mend in _SCRAPE_MENDS.items():
        if reason in reasons:
            return mend
    return "check that the target is up, and that this is the address of its /metrics"


_SCRAPE_MENDS = {
    "unauthorised": "set a token that the target accepts: --scrape-token-file, or __token_file__ in"
    " the file of targets",
    "no_token": (
        "the token file of the target cannot be read; the log of `tailspan up` has the reason"
    ),
    "tls": "set the CA of the target's certificate (--scrape-ca, __tls_ca_file__), or the"
    " certificate's name (__tls_server_name__); the log of `tailspan up` has the details",
}
_UNAUTHORISED = 401
_LOG = "the log of `tailspan up` has the reason; the component restarts automatically"
_TOKEN = "set a token that Tailspan accepts: --token-file, TAILSPAN_TOKENS"


def _remedy(option: str, answer: http_check.HttpResult | None = None) -> str:
    if answer is not None and answer.status == _UNAUTHORISED:
        return _TOKEN
    return f"run `tailspan up`, or set its address: --host, {option}"
