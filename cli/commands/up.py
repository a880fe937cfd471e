"""`tailspan up`."""

import asyncio
import os
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from cli.errors import Unreachable, reason
from cli.options.addresses import (
    PORT,
    ServerAddress,
    authority,
    check_own_address,
    host_option,
    reaches,
)
from cli.options.api import api_limits_of, api_options
from cli.options.credentials import check_exposure, insecure_credentials_setting
from cli.options.durations import Retention
from cli.options.endpoints import endpoint_access_of, endpoint_options
from cli.options.extras import check_extra
from cli.options.gpus import gpu_options, gpu_setup_of
from cli.options.price_files import own_peaks, prices_of
from cli.options.roles import NO_SIGN_IN
from cli.options.scraping import scrape_options, scrape_setup_of
from cli.options.settings import SettingsCommand, announce_file, config_option, setting
from cli.options.shared import database_option, objectives_option, prices_option, state_url
from cli.options.sign_in import sign_in_of, sign_in_options
from server import http_check
from telemetry import time_text
from telemetry.addresses import masked

if TYPE_CHECKING:  # a slow import
    from exporters.forwarding.forwarder import Forwarder

EXAMPLES = """\b
Examples:
  tailspan up
  tailspan up --simulate
  tailspan up --vllm http://gpu-host:8000
  tailspan up --notify notify.yaml
  tailspan up --scrape http://gpu-host:8000/metrics --scrape-every 2s
  tailspan up --scrape dns+http://vllm-headless:8000 --scrape-file targets.json
  tailspan up --scrape https://gpu-host:8000 --scrape-token-file token --scrape-ca ca.pem
  tailspan up --dcgm http://gpu-host:9400 --gpu-replica 0=chat-0
  tailspan up --database sqlite:////var/lib/tailspan/tailspan.db --no-explorer
  tailspan up --database clickhousedb://tailspan@db/tailspan --state-url postgresql://db/state
  tailspan up --config /etc/tailspan/tailspan.toml
  tailspan up --forward http://tempo:4318
  tailspan up --host 0.0.0.0 --token-file tokens.txt --tls-cert cert.pem --tls-key key.pem
"""


@click.command(cls=SettingsCommand, epilog=EXAMPLES)
@setting(
    "--vllm",
    group="Servers to watch",
    type=ServerAddress(),
    metavar="URL",
    help=("A vLLM server: check its health, and print a line when its telemetry arrives."),
)
@setting(
    "--simulate",
    group="Servers to watch",
    is_flag=True,
    help="Also start a simulated fleet with an incident.",
)
@host_option
@setting(
    "--grpc-port",
    group="Ports",
    type=PORT,
    metavar="PORT",
    default=4317,
    show_default=True,
    help="Port for OTLP over gRPC.",
)
@setting(
    "--http-port",
    group="Ports",
    type=PORT,
    metavar="PORT",
    default=4318,
    show_default=True,
    help="Port for OTLP over HTTP.",
)
@setting(
    "--metrics-port",
    group="Ports",
    type=PORT,
    metavar="PORT",
    default=9464,
    show_default=True,
    help="Port for /metrics, which Prometheus scrapes.",
)
@setting(
    "--explorer-port",
    group="Ports",
    type=PORT,
    metavar="PORT",
    default=8501,
    show_default=True,
    help="Port for the explorer.",
)
@setting("--no-explorer", group="Ports", is_flag=True, help="Do not start the explorer.")
@sign_in_options
@api_options
@database_option
@setting(
    "--keep-rows",
    group="Storage",
    type=Retention(),
    default="7d",
    show_default=True,
    metavar="DURATION",
    help=(
        "Delete requests and samples that are older than this, and reject older data on arrival:"
        " 36h, 7d, forever."
    ),
)
@setting(
    "--keep-minutes",
    group="Storage",
    type=Retention(),
    default="90d",
    show_default=True,
    metavar="DURATION",
    help="Delete per-minute rollups that are older than this. They replace deleted requests, so"
    " they are kept at least as long as --keep-rows.",
)
@setting(
    "--keep-hours",
    group="Storage",
    type=Retention(),
    default="400d",
    show_default=True,
    metavar="DURATION",
    help="Delete hourly rollups that are older than this. The value must be at least"
    " --keep-minutes.",
)
@objectives_option
@prices_option
@setting(
    "--notify",
    group="Objectives and prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Notification channels for alerts, as YAML (see tailspan slo notify --help).",
)
@setting(
    "--forward",
    group="Forwarding",
    metavar="URL",
    help="Forward received telemetry to another OTLP/HTTP backend, such as http://tempo:4318."
    " TAILSPAN_FORWARD_HEADERS (name=value,…) adds headers, such as a credential.",
)
@scrape_options
@gpu_options
@endpoint_options
@insecure_credentials_setting
@config_option
def up(
    vllm: str | None,
    simulate: bool,
    host: str,
    grpc_port: int,
    http_port: int,
    metrics_port: int,
    explorer_port: int,
    no_explorer: bool,
    sign_in: Path | None,
    base_path: str,
    api_questions: int,
    api_timeout: int,
    database: str | None,
    keep_rows: int | None,
    keep_minutes: int | None,
    keep_hours: int | None,
    objectives: tuple[Path, ...],
    prices: Path | None,
    notify: Path | None,
    forward: str | None,
    insecure_credentials: bool,
    scrape: tuple[str, ...],
    scrape_file: tuple[Path, ...],
    scrape_secrets: Path | None,
    scrape_every: int,
    scrape_token_file: Path | None,
    scrape_ca: Path | None,
    gpus: str,
    dcgm: tuple[str, ...],
    dcgm_token_file: Path | None,
    dcgm_ca: Path | None,
    dcgm_every: int,
    gpu_replica: tuple[str, ...],
    dcgm_replica: str,
    **endpoints: Any,
) -> None:
    """Run the collector, the exporter and the explorer until Ctrl-C."""
    # Importing these modules is slow.
    from alerts.errors import AlertsError
    from alerts.notify.configuration import load_configuration
    from alerts.openslo.reader import OBJECTIVES, load
    from cli import foreground
    from collector.errors import ListenError
    from server.children import ChildError
    from server.memory import limit_allocator_memory
    from server.own_database import own_database
    from server.retention_task import RetentionPeriods
    from server.stack import Ports, Stack
    from telemetry.database_urls import default_state_url, default_url

    announce_file()
    if not no_explorer:
        check_extra("streamlit", "explorer", "the explorer (or give --no-explorer)")
    check_own_address(host)
    if vllm and simulate:
        raise click.UsageError("--vllm and --simulate exclude each other: use one of them")
    sign_in_settings, base_path = (None, "") if no_explorer else sign_in_of(sign_in, base_path)
    access = endpoint_access_of(host, **endpoints, signed_in=sign_in_settings is not None)
    ports = {"--grpc-port": grpc_port, "--http-port": http_port, "--metrics-port": metrics_port}
    # An explorer on another host may have the same port, unless `host` stands for all addresses.
    if not no_explorer and (access.explorer_host in (None, host) or host in ("0.0.0.0", "::")):
        ports["--explorer-port"] = explorer_port
    _check_ports(ports)
    if access.roles is not None and sign_in_settings is None and not no_explorer:
        raise click.UsageError(NO_SIGN_IN)
    if simulate and access.tokens is not None and access.own_token is None:
        raise click.UsageError(
            "--simulate: all tokens have a role, and cannot send data; add a token without a role"
        )
    if simulate and access.tls:
        raise click.UsageError(
            "--simulate and --tls-cert exclude each other, because the name in the certificate is"
            " unknown; run tailspan simulate --endpoint https://NAME:4318 instead"
        )
    try:
        in_force = load(objectives or [OBJECTIVES]).objectives
    except (AlertsError, FileNotFoundError) as error:
        raise click.UsageError(f"--objectives: {error}") from error
    priced_at, peaks = prices_of(prices), own_peaks()
    keep = RetentionPeriods(keep_rows, keep_minutes, keep_hours)
    if keep.hours_ns is not None and (keep.minutes_ns is None or keep.minutes_ns > keep.hours_ns):
        minutes = "forever" if keep.minutes_ns is None else time_text.length(keep.minutes_ns)
        raise click.UsageError(
            f"--keep-hours {time_text.length(keep.hours_ns)}: must be at least --keep-minutes"
            f" {minutes}, because hourly rollups replace deleted per-minute rollups"
        )
    try:
        notify_settings = load_configuration(notify, os.environ) if notify else None
    except (AlertsError, OSError) as error:
        raise click.UsageError(f"--notify: {reason(error)}") from error
    scrape_setup = scrape_setup_of(
        scrape=scrape,
        scrape_file=scrape_file,
        scrape_secrets=scrape_secrets,
        scrape_every=scrape_every,
        scrape_token_file=scrape_token_file,
        scrape_ca=scrape_ca,
        insecure_credentials=insecure_credentials,
    )
    gpu_setup = gpu_setup_of(
        # A simulated fleet has simulated GPUs. Real GPUs belong to no simulated engine.
        gpus="off" if simulate else gpus,
        dcgm=dcgm,
        dcgm_token_file=dcgm_token_file,
        dcgm_ca=dcgm_ca,
        dcgm_every=dcgm_every,
        gpu_replica=gpu_replica,
        dcgm_replica=dcgm_replica,
        insecure_credentials=insecure_credentials,
    )
    url = database or default_url(os.environ)
    separate_state = state_url() or default_state_url(os.environ)
    sent_on = _forwarder(forward, host, http_port, insecure_credentials) if forward else None
    engine = click.get_current_context().with_resource(
        own_database(url, separate_state, click.echo)
    )
    limit_allocator_memory()

    async def run() -> None:
        stack = Stack(
            engine,
            url,
            host,
            Ports(grpc_port, http_port, metrics_port, explorer_port),
            explorer=not no_explorer,
            simulate=simulate,
            objectives=in_force,
            objective_paths=objectives,
            keep=keep,
            notify=notify_settings,
            scrape=scrape_setup,
            access=access,
            forward=sent_on,
            gpus=gpu_setup,
            prices=priced_at,
            price_file=prices,
            peaks=peaks,
            sign_in=sign_in_settings,
            base_path=base_path,
            api=api_limits_of(api_questions, api_timeout),
        )
        await foreground.run(stack, vllm=vllm)

    try:
        asyncio.run(run())
    except ListenError as error:
        raise Unreachable(f"{error}{_why_port_is_taken(host, metrics_port)}") from error
    except ChildError as error:
        raise Unreachable(str(error)) from error


def _check_ports(ports: Mapping[str, int]) -> None:
    """Raise click.UsageError if two options have the same port. Port 0 is ignored, because it
    selects any free port."""
    for (option, port), (other, same) in combinations(ports.items(), 2):
        if port and port == same:
            raise click.UsageError(
                f"{option} and {other} are both {port}: set a different port for each"
            )


def _forwarder(url: str, host: str, http_port: int, insecure: bool) -> "Forwarder":
    from opentelemetry.util.re import parse_env_headers

    from exporters.forwarding.forwarder import Forwarder
    from exporters.forwarding.http_post import HttpPost

    shown = masked(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise click.UsageError(f"--forward {shown}: invalid port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"--forward {shown}: write http://HOST:4318 or https://HOST")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise click.UsageError(
            f"--forward {shown}: the address must have no user, password or query; set a"
            " credential in TAILSPAN_FORWARD_HEADERS"
        )
    if parts.path.startswith("/v1/"):
        raise click.UsageError(f"--forward {shown}: give the address without {parts.path}")
    port = port or (443 if parts.scheme == "https" else 80)
    if port == http_port and reaches(parts.hostname, host):
        raise click.UsageError(
            f"--forward {shown}: this is the address of this Tailspan; give the address of another"
            " OTLP receiver"
        )
    headers = parse_env_headers(os.environ.get("TAILSPAN_FORWARD_HEADERS", ""), liberal=True)
    if headers:
        check_exposure("--forward", url, "TAILSPAN_FORWARD_HEADERS", insecure)
    return Forwarder(HttpPost(url, headers))


def _why_port_is_taken(host: str, metrics_port: int) -> str:
    url = f"http://{authority(host, metrics_port)}/metrics"
    if "tailspan_" not in http_check.get(url).body:
        return ""
    return f"\nTailspan is already running here: {url} belongs to it."
