"""`tailspan dashboards`: Grafana's JSON into a folder, or into a Grafana."""

import os
from pathlib import Path
from typing import Final

import click

from cli.errors import Unreachable
from cli.options.credentials import check_exposure, insecure_credentials_option
from cli.options.extras import check_extra
from cli.options.numbers import FiniteRange
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
    """Grafana dashboards: as files, or pushed to a Grafana."""


@dashboards.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def build(folder: Path) -> None:
    """Write the dashboards into FOLDER, a JSON file each, as Grafana imports or is provisioned."""
    check_extra("grafana_foundation_sdk", "dashboards", "tailspan dashboards")
    from dashboards.boards import BOARDS
    from dashboards.building import text

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for board in BOARDS:
            (folder / f"{board.uid}.json").write_text(text(board), encoding="utf-8")
    except OSError as error:
        raise Unreachable(f"{folder}: {error.strerror}") from error
    click.echo(f"{len(BOARDS)} dashboards in {folder}")


@dashboards.command(
    epilog="""The token is read from --token-file, else from GRAFANA_TOKEN: of a service account
with the role Editor, or Admin with --prometheus. What was changed in Grafana by hand is put back;
--dry-run shows it first."""
)
@click.option("--url", envvar=URL_KEY, required=True, help="The Grafana.  [default: GRAFANA_URL]")
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="The token.  [default: GRAFANA_TOKEN]"
)
@click.option(
    "--prometheus",
    metavar="URL",
    help="Make a data source for this Prometheus too, at its address as seen from Grafana."
    " Without it the dashboards offer the data sources that there are.",
)
@click.option(
    "--scrape-every",
    type=FiniteRange(min=0, min_open=True),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="How often that Prometheus scrapes.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@insecure_credentials_option
def push(
    url: str,
    token_file: Path | None,
    prometheus: str | None,
    scrape_every: float,
    dry_run: bool,
    insecure_credentials: bool,
) -> None:
    """Bring a Grafana up to date: folder, data source, dashboards. Twice is as good as once."""
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
            f"--prometheus {masked(prometheus)}: the address must hold no user, password or query;"
            " set them in Grafana's data source"
        )
    source = prometheus_source(prometheus, scrape_every) if prometheus else None
    would = "would " if dry_run else ""
    try:
        for change in pushed(url, token, BOARDS, source, dry_run=dry_run):
            said = change.action if change.action == "unchanged" else f"{would}{change.action}"
            click.echo(f"{said:14} {change.what}")
            if dry_run:
                for line in change.difference[:LINES_SHOWN]:
                    click.echo(f"    {line}")
                if (more := len(change.difference) - LINES_SHOWN) > 0:
                    click.echo(f"    … and {more} lines more")
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
        raise click.UsageError(f"{where}: give the token of a service account, in a file or there")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise click.UsageError("the token must be one line of printable ASCII without blanks")
    return token
