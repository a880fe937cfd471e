"""`tailspan doctor`: look at each connection, and say how to mend the ones that fail."""

from pathlib import Path
from typing import Any

import click

from cli import checks, clock_checks, gpu_checks, hung_checks, name_checks, objective_checks
from cli.addresses import REMOTE_PORT, Host, Server
from cli.client_access import access_of, access_options

EXAMPLES = """\b
Examples:
  tailspan doctor
  tailspan doctor --vllm http://gpu-host:8000
  tailspan doctor --format json
  tailspan doctor --host tailspan.example --token-file tokens.txt --tls-ca ca.pem --no-explorer
"""


@click.command(epilog=EXAMPLES)
@click.option("--vllm", type=Server(), metavar="URL", help="A vLLM that should report here.")
@click.option("--host", type=Host(), default="127.0.0.1", show_default=True, help="Where it runs.")
@click.option("--grpc-port", type=REMOTE_PORT, default=4317, show_default=True)
@click.option("--http-port", type=REMOTE_PORT, default=4318, show_default=True)
@click.option("--metrics-port", type=REMOTE_PORT, default=9464, show_default=True)
@click.option("--explorer-port", type=REMOTE_PORT, default=8501, show_default=True)
@click.option("--base-path", default="", metavar="PATH", help="Of the pages, as for `tailspan up`.")
@click.option("--no-explorer", is_flag=True, help="It was started without the pages.")
@click.option(
    "--database",
    metavar="URL",
    help="A SQLAlchemy URL.  [default: TAILSPAN_DATABASE_URL, else sqlite:///var/tailspan.db]",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="What your GPUs cost (tailspan cost --help)."
    "  [default: TAILSPAN_PRICES, else list prices]",
)
@click.option(
    "--objectives",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The objectives in force, as for `tailspan up`; may be repeated."
    "  [default: those that come with Tailspan]",
)
@access_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines to read, or one JSON object a line; ok is null where nobody can say.",
)
def doctor(
    vllm: str | None,
    host: str,
    grpc_port: int,
    http_port: int,
    metrics_port: int,
    explorer_port: int,
    base_path: str,
    no_explorer: bool,
    database: str | None,
    prices: Path | None,
    objectives: tuple[Path, ...],
    form: str,
    **ways_in: Any,
) -> None:
    """Check each connection, and the GPUs here, and say how to mend what is amiss; then exit 1."""
    access = access_of(**ways_in, host=host)
    looks = [
        checks.database(database, server_expected=vllm is not None),
        checks.prices(database, prices),
    ]
    if vllm:
        looks.append(checks.vllm(vllm))
    looks += [
        checks.otlp_grpc(host, grpc_port, access),
        checks.otlp_http(host, http_port, access),
        checks.metrics(host, metrics_port, access),
        checks.tasks(host, metrics_port, access),
        checks.refusals(host, metrics_port, access),
        hung_checks.steps(database),
        objective_checks.objectives(database, objectives, host, metrics_port, access),
        name_checks.names(database),
        clock_checks.clocks(host, metrics_port, access),
        clock_checks.against_clients(database),
        checks.scrapes(host, metrics_port, access),
        gpu_checks.readers(host, metrics_port, access),
        gpu_checks.owners(database),
        gpu_checks.local(),
    ]
    if not no_explorer:
        looks.append(checks.explorer(host, explorer_port, base_path))
    amiss = False
    for look in looks:
        for finding in checks.guarded(look):
            amiss = amiss or finding.ok is False
            click.echo(checks.as_json(finding) if form == "json" else checks.as_text(finding))
    if amiss:
        raise click.exceptions.Exit(1)
