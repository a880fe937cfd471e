"""`tailspan dashboards`."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from cli.errors import Unreachable
from cli.options.credentials import check_exposure, insecure_credentials_option
from cli.options.durations import Duration
from cli.options.extras import check_extra
from cli.options.shared import format_option
from telemetry.addresses import masked

TOKEN_KEY: Final = "GRAFANA_TOKEN"
URL_KEY: Final = "GRAFANA_URL"
LINES_SHOWN: Final = 40


@click.group(
    epilog="""\b
Examples:
  tailspan dashboards build grafana/
  GRAFANA_TOKEN=… tailspan dashboards push --url https://grafana.example.org --dry-run
  tailspan dashboards push --url http://127.0.0.1:3000 --token-file token --prometheus http://127.0.0.1:9090
"""
)
def dashboards() -> None:
    """Write Grafana dashboards as files, or push them to a Grafana."""


@dashboards.command(
    epilog="""\b
Examples:
  tailspan dashboards build grafana/
"""
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@format_option("A line of text, or one JSON object per dashboard.")
def build(folder: Path, form: str) -> None:
    """Write each dashboard to FOLDER as a JSON file, for Grafana's import or provisioning."""
    check_extra("grafana_foundation_sdk", "dashboards", "tailspan dashboards")
    from dashboards.boards import BOARDS
    from dashboards.grafana_json import text

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for board in BOARDS:
            (folder / f"{board.uid}.json").write_text(text(board), encoding="utf-8")
    except OSError as error:
        raise Unreachable(f"{folder}: {error.strerror}") from error
    if form == "json":
        for board in BOARDS:
            click.echo(json.dumps({"uid": board.uid, "file": str(folder / f"{board.uid}.json")}))
    else:
        click.echo(f"{len(BOARDS)} dashboards in {folder}")


@dashboards.command(
    epilog="""\b
Examples:
  tailspan dashboards push --url https://grafana.example.org --token-file token --dry-run
  GRAFANA_TOKEN=… tailspan dashboards push --url http://127.0.0.1:3000 --format json
"""
)
@click.option(
    "--url",
    envvar=URL_KEY,
    show_envvar=True,
    required=True,
    help="Address of Grafana.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    show_default=TOKEN_KEY,
    metavar="PATH",
    help="File with the token of a service account.",
)
@click.option(
    "--prometheus",
    metavar="URL",
    help=(
        "Also create a data source for the Prometheus at this address, as seen from Grafana. By"
        " default, readers select a data source."
    ),
)
@click.option(
    "--scrape-every",
    type=Duration("1s"),
    default="15s",
    show_default=True,
    metavar="DURATION",
    help="Scrape interval of the Prometheus in --prometheus.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@format_option("Text, or one JSON object per change.")
@insecure_credentials_option
def push(
    url: str,
    token_file: Path | None,
    prometheus: str | None,
    scrape_every: int,
    dry_run: bool,
    form: str,
    insecure_credentials: bool,
) -> None:
    """Create or update the folder, the data source and the dashboards in a Grafana. Idempotent.

    The token must belong to a service account with the role Editor, or Admin with --prometheus.
    Changes that were made in Grafana are reverted; --dry-run shows them first.
    """
    check_extra("grafana_client", "dashboards", "tailspan dashboards")
    from dashboards.boards import BOARDS
    from dashboards.pushing import PushError, check_address, prometheus_source
    from dashboards.pushing import push as pushed

    try:
        check_address(url)
    except PushError as error:
        raise click.UsageError(f"--url: {error}") from error
    token = _token(token_file)
    check_exposure("--url", url, "the token", insecure_credentials)
    if prometheus and masked(prometheus) != prometheus:
        raise click.UsageError(
            f"--prometheus {masked(prometheus)}: the address must have no user, password or query;"
            " set them in Grafana's data source"
        )
    source = prometheus_source(prometheus, scrape_every / 1e9) if prometheus else None
    would = "would " if dry_run else ""
    try:
        for change in pushed(url, token, BOARDS, source, dry_run=dry_run):
            if form == "json":
                click.echo(json.dumps({**asdict(change), "dry_run": dry_run}))
                continue
            action = change.action if change.action == "unchanged" else f"{would}{change.action}"
            click.echo(f"{action:14} {change.what}")
            if dry_run:
                for line in change.difference[:LINES_SHOWN]:
                    click.echo(f"    {line}")
                if (more := len(change.difference) - LINES_SHOWN) > 0:
                    click.echo(f"    … and {more} more lines")
    except PushError as error:
        raise Unreachable(str(error)) from error


def _token(file: Path | None) -> str:
    try:
        token = file.read_text(encoding="utf-8") if file else os.environ.get(TOKEN_KEY, "")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--token-file {file}: cannot be read") from error
    token = token.strip()
    if not token:
        where = f"--token-file {file} is empty" if file else f"{TOKEN_KEY} is not set"
        raise click.UsageError(
            f"{where}: provide the token of a service account, in a file or this variable"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise click.UsageError("the token must be one line of printable ASCII without blanks")
    return token
