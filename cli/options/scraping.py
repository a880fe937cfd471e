"""Options of `tailspan up` for scraping `/metrics`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cli.options.durations import Duration
from cli.options.settings import setting, with_options
from cli.options.target_access import TargetAccess

if TYPE_CHECKING:  # a slow import
    from server.scrape_setup import ScrapeSetup

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)

_ACCESS: Final = TargetAccess("--scrape")

_OPTIONS = (
    setting(
        "--scrape",
        group="Scraping",
        multiple=True,
        metavar="URL",
        help=(
            "Scrape the state of engines from this /metrics: vLLM, SGLang, TGI, TensorRT-LLM on"
            " Triton. dns+http://NAME:PORT scrapes each address of NAME, dnssrv+http://NAME each"
            " SRV record. May be repeated."
        ),
    ),
    setting(
        "--scrape-file",
        group="Scraping",
        multiple=True,
        type=_FILE,
        metavar="FILE",
        help="Scrape the targets in this JSON or YAML file, in the format of Prometheus' file_sd."
        " Changes take effect without a restart. The labels __token_file__, __tls_ca_file__,"
        " __tls_cert_file__, __tls_key_file__ and __tls_server_name__ are a target's credentials."
        " May be repeated.",
    ),
    setting(
        "--scrape-secrets",
        group="Scraping",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        metavar="FOLDER",
        show_default="the folder of the --scrape-file",
        help=(
            "Folder that must contain all files that a --scrape-file names, such as tokens, after"
            " resolving symbolic links."
        ),
    ),
    setting(
        "--scrape-every",
        group="Scraping",
        type=Duration("1s", "15s"),
        default="5s",
        show_default=True,
        metavar="DURATION",
        help="Interval between scrapes, from 1s to 15s.",
    ),
    *_ACCESS.options("Scraping"),
)


def scrape_options(command: _Command) -> _Command:
    """Add the options whose values `scrape_setup_of` takes."""
    return with_options(command, *_OPTIONS)


def scrape_setup_of(
    *,
    scrape: tuple[str, ...],
    scrape_file: tuple[Path, ...],
    scrape_secrets: Path | None,
    scrape_every: int,
    scrape_token_file: Path | None,
    scrape_ca: Path | None,
    insecure_credentials: bool = False,
) -> "ScrapeSetup":
    """Parse the options.

    Raises:
        click.UsageError: an option is malformed, a file cannot be read, or a token would be sent
            without encryption.
    """
    from collector.scrape.failure_reasons import DiscoveryError
    from collector.scrape.targets import Discovery, File, place
    from server.scrape_setup import ScrapeSetup

    access = _ACCESS.read(scrape, scrape_token_file, scrape_ca, insecure_credentials)
    places: list[Discovery] = []
    try:
        places += [place(given, access) for given in scrape]
    except ValueError as error:
        raise click.UsageError(f"--scrape: {error}") from error
    if scrape_secrets is not None and not scrape_file:
        raise click.UsageError("--scrape-secrets requires --scrape-file")
    for path in scrape_file:
        file = File(path, scrape_secrets, insecure_credentials)
        try:
            file.read()
        except DiscoveryError as error:
            raise click.UsageError(f"--scrape-file: {error}") from error
        places.append(file)
    return ScrapeSetup(tuple(places), scrape_every / 1e9)
