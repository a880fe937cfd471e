"""`tailspan collect`."""

from typing import Any

import click

from cli.commands.up import up
from cli.options.settings import SettingsCommand

_OF_UP = ("vllm", "simulate", "explorer_port", "no_explorer", "sign_in", "base_path")


def _collect(**given: Any) -> None:
    """Run the collector and the exporter until Ctrl-C.

    This is `tailspan up` without the explorer. `tailspan ui` can show the same database on another
    machine.
    """
    click.get_current_context().invoke(up, no_explorer=True, **given)


collect = SettingsCommand(
    "collect",
    callback=_collect,
    help=_collect.__doc__,
    params=[option for option in up.params if option.name not in _OF_UP],
    epilog="""\b
Examples:
  tailspan collect
  tailspan collect --database postgresql+psycopg://tailspan@db/tailspan
  tailspan collect --host 0.0.0.0 --token-file tokens.txt --tls-cert cert.pem --tls-key key.pem
  tailspan collect --scrape http://gpu-host:8000/metrics --forward http://tempo:4318
""",
)
