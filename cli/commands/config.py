"""`tailspan config`."""

import json
from collections.abc import Sequence
from typing import Any

import click

from analysis.configurations import last_starts, starts_with
from analysis.database import open_to_read
from cli.options.settings import config_option
from cli.options.shared import database_option, format_option, state_url
from cli.render import text
from telemetry import time_text
from telemetry.starts import Argument, EngineStart, differences, read

EXAMPLES = """\b
Examples:
  tailspan config
  tailspan config 3f2a91c0
  tailspan config 3f2a 81bd
  tailspan config --format json
"""


@click.command(epilog=EXAMPLES)
@click.argument("fingerprint", nargs=-1)
@format_option("A table, or one JSON object per line.")
@database_option
@config_option
def config(fingerprint: tuple[str, ...], form: str, database: str | None) -> None:
    """Show each engine's configuration, one configuration's arguments, or how two differ.

    A FINGERPRINT identifies a configuration: the value of `config` in each request, or its first
    digits. Without one, the command lists the configuration of each engine's last start.
    """
    if "" in fingerprint:
        raise click.UsageError(
            "a fingerprint is empty; allowed: a fingerprint that tailspan config lists"
        )
    if len(fingerprint) > 2:
        raise click.UsageError(f"{len(fingerprint)} fingerprints; allowed: none, one or two")
    engine = open_to_read(database, state_url())
    click.get_current_context().call_on_close(engine.dispose)
    if not fingerprint:
        _show_engines(last_starts(engine), form)
        return
    chosen = [_the_one(starts_with(engine, each), each) for each in fingerprint]
    if len(chosen) == 1:
        _show_arguments(chosen[0], form)
    else:
        _show_differences(chosen[0], chosen[1], form)


def _the_one(found: Sequence[EngineStart], given: str) -> EngineStart:
    if len(found) == 1:
        return found[0]
    shown = text.printable(given, text.WIDEST)
    if not found:
        raise click.UsageError(f"no engine was started with {shown!r}; tailspan config lists all")
    several = ", ".join(text.label(start.config) for start in found[:8])
    raise click.UsageError(f"{shown!r} matches several: {several}")


def _show_engines(found: Sequence[EngineStart], form: str) -> None:
    if form == "json":
        for start in found:
            _print(_json_fields(start))
        return
    if not found:
        click.echo("No engine has reported its start yet.", err=True)
        return
    if any(start.simulated for start in found):
        click.echo("simulated data\n")
    header = ["replica", "engine", "model", "vLLM", "config", "since (UTC)"]
    rows = [
        [
            text.label(start.replica),
            text.count(start.engine),
            text.label(start.model),
            text.label(start.version),
            text.label(start.config),
            time_text.moment(start.at_unix_ns),
        ]
        for start in found
    ]
    for line in text.table(header, rows, left=len(header)):
        click.echo(line)
    configs = sorted({start.config for start in found})
    if len(configs) > 1:
        before, after = map(text.label, configs[:2])
        click.echo(f"\nShow the differences: tailspan config {before} {after}")


def _show_arguments(start: EngineStart, form: str) -> None:
    if form == "json":
        _print(_json_fields(start))
        return
    model, version = text.label(start.model), text.label(start.version)
    click.echo(f"{text.label(start.config)}: {model} on vLLM {version}\n")
    rows = [
        [text.label(name), _argument_text(value)] for name, value in read(start.arguments).items()
    ]
    for line in text.table(["argument", "value"], rows, left=2):
        click.echo(line)


def _show_differences(before: EngineStart, after: EngineStart, form: str) -> None:
    found = differences(before.arguments, after.arguments)
    if form == "json":
        for each in found:
            _print(each._asdict())
        return
    if not found:
        click.echo("Both configurations have the same recorded arguments.")
        return
    header = ["argument", text.label(before.config), text.label(after.config)]
    rows = [
        [text.label(each.argument), _argument_text(each.before), _argument_text(each.after)]
        for each in found
    ]
    for line in text.table(header, rows, left=3, keep=3):
        click.echo(line)


def _argument_text(value: Argument | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return text.label(value if not isinstance(value, float) else f"{value:g}")


def _json_fields(start: EngineStart) -> dict[str, Any]:
    return {
        "config": start.config,
        "replica": start.replica,
        "engine": start.engine,
        "model": start.model,
        "version": start.version,
        "region": start.region,
        "since": start.at_unix_ns / 1e9,
        "simulated": start.simulated,
        "arguments": read(start.arguments),
    }


def _print(fields: dict[str, Any]) -> None:
    click.echo(json.dumps(fields, allow_nan=False))
