"""Whose /metrics is asked for, and how to get in there: options of `up`, and what they mean."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:  # it brings a library, and a command waits for its imports
    from collector.scrape.targets import Discovery

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)

TOKEN: Final = "TAILSPAN_SCRAPE_TOKEN"
TOKEN_FILE: Final = "TAILSPAN_SCRAPE_TOKEN_FILE"

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
        "--scrape-every",
        type=click.FloatRange(1, 15),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="How often, from 1 to 15 s.",
    ),
    click.option(
        "--scrape-token-file",
        type=_FILE,
        metavar="FILE",
        help="A bearer token, shown to each --scrape, over https or on loopback alone; read anew"
        f" each time.  [default: {TOKEN_FILE}, else the token in {TOKEN}]",
    ),
    click.option(
        "--scrape-ca",
        type=_FILE,
        metavar="FILE",
        help="Who signed the certificates of each --scrape, in PEM.  [default: who is trusted"
        " anywhere]",
    ),
)


@dataclass(frozen=True, slots=True)
class ScrapeSetup:
    """What the options say."""

    places: "tuple[Discovery, ...]" = ()
    every_s: float = 5.0


def scrape_options(command: _Command) -> _Command:
    """The options whose values `scrape_setup_of` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def scrape_setup_of(
    *,
    scrape: tuple[str, ...],
    scrape_file: tuple[Path, ...],
    scrape_every: float,
    scrape_token_file: Path | None,
    scrape_ca: Path | None,
) -> ScrapeSetup:
    """What the options say.

    Raises:
        click.UsageError: one of them is malformed, a file cannot be had, or a token would go
            where others can read it.
    """
    from collector.errors import SecurityError
    from collector.scrape.access import Access
    from collector.scrape.reasons import DiscoveryError
    from collector.scrape.targets import Discovery, File, place

    for option, path in (("--scrape-token-file", scrape_token_file), ("--scrape-ca", scrape_ca)):
        if path and not scrape:
            raise click.UsageError(f"{option} is for --scrape, and there is none")
    token_file = scrape_token_file
    if token_file is None and (named := os.environ.get(TOKEN_FILE)):
        token_file = Path(named)
    token = None if token_file else os.environ.get(TOKEN)
    access = Access(token=token or None, token_file=token_file, ca_file=scrape_ca)
    places: list[Discovery] = []
    if scrape:
        try:
            access.check()
        except SecurityError as error:
            raise click.UsageError(f"--scrape-token-file, --scrape-ca: {error}") from error
    try:
        places += [place(given, access) for given in scrape]
    except ValueError as error:
        raise click.UsageError(f"--scrape: {error}") from error
    for path in scrape_file:
        try:
            File(path).read()
        except DiscoveryError as error:
            raise click.UsageError(f"--scrape-file: {error}") from error
        places.append(File(path))
    return ScrapeSetup(tuple(places), scrape_every)
