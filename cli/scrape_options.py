"""Whose /metrics is asked for, and how to get in there: options of `up`, and what they mean."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cli.numbers import FiniteRange
from cli.target_access import TargetAccess

if TYPE_CHECKING:  # it brings libraries, and a command waits for its imports
    from server.scrape_setup import ScrapeSetup

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)

_ACCESS: Final = TargetAccess("--scrape")

_OPTIONS = (
    click.option(
        "--scrape",
        multiple=True,
        metavar="URL",
        help="Ask this /metrics for its engines' state: vLLM, SGLang, TGI, TensorRT-LLM on Triton."
        " dns+http://NAME:PORT for each address of a name, dnssrv+http://NAME for its SRV records."
        " May be repeated.",
    ),
    click.option(
        "--scrape-file",
        multiple=True,
        type=_FILE,
        metavar="FILE",
        help="The same for the targets in a file, JSON or YAML, of the form of Prometheus' file_sd;"
        " it is watched. Its labels __token_file__, __tls_ca_file__, __tls_cert_file__,"
        " __tls_key_file__, __tls_server_name__ say how to get in. May be repeated.",
    ),
    click.option(
        "--scrape-secrets",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        metavar="FOLDER",
        help="Where the files that a --scrape-file names must lie, such as tokens; links are"
        " followed first.  [default: the folder of that --scrape-file]",
    ),
    click.option(
        "--scrape-every",
        type=FiniteRange(1, 15),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="How often, from 1 to 15 s.",
    ),
    *_ACCESS.options(),
)


def scrape_options(command: _Command) -> _Command:
    """The options whose values `scrape_setup_of` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def scrape_setup_of(
    *,
    scrape: tuple[str, ...],
    scrape_file: tuple[Path, ...],
    scrape_secrets: Path | None,
    scrape_every: float,
    scrape_token_file: Path | None,
    scrape_ca: Path | None,
    insecure_credentials: bool = False,
) -> "ScrapeSetup":
    """What the options say.

    Raises:
        click.UsageError: one of them is malformed, a file cannot be had, or a token would go
            where others can read it.
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
        raise click.UsageError("--scrape-secrets is for --scrape-file, and there is none")
    for path in scrape_file:
        file = File(path, scrape_secrets, insecure_credentials)
        try:
            file.read()
        except DiscoveryError as error:
            raise click.UsageError(f"--scrape-file: {error}") from error
        places.append(file)
    return ScrapeSetup(tuple(places), scrape_every)
