"""`tailspan slo notify`."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from alerts.errors import AlertsError
from alerts.notify.channel_sender import RENDER
from alerts.notify.channels import Channel
from alerts.notify.configuration import Configuration, load_configuration
from alerts.notify.example import example
from alerts.notify.http_post import ChannelPoster, DeliveryVerdict
from alerts.notify.message import IncidentMessage, Transition
from alerts.notify.webhook import SIGNATURE
from alerts.secrets import Secret
from cli.errors import reason
from cli.options.shared import format_option
from cli.render import text

HIDDEN: Final = "***"
_VERDICTS: Final = {
    DeliveryVerdict.DELIVERED: "delivered",
    DeliveryVerdict.LATER: "failed",
    DeliveryVerdict.REFUSED: "refused",
}


@click.command(
    epilog="""\b
Examples:
  tailspan slo notify notify.yaml
  tailspan slo notify notify.yaml --test
  tailspan slo notify notify.yaml --test --resolved --channel on-call
  tailspan up --notify notify.yaml

\b
notify.yaml:
  explorer_url: https://tailspan.example.org
  channels:
    - name: on-call
      type: pagerduty
      severities: [page]
      routing_key_env: PAGERDUTY_ROUTING_KEY
    - name: team
      type: slack
      url_file: /run/secrets/slack-url
    - name: alertmanager
      type: alertmanager
      url: http://127.0.0.1:9093
    - name: hook
      type: webhook
      url_env: HOOK_URL
      signing_key_env: HOOK_KEY
"""
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--test", is_flag=True, help="Send the message, and print each channel's response.")
@click.option(
    "--resolved", is_flag=True, help="Use the message that is sent when an incident ends."
)
@click.option(
    "--channel",
    "names",
    multiple=True,
    metavar="NAME",
    help="Use only this channel. May be repeated.",
)
@format_option("Text, or one JSON object per line.")
def notify(file: Path, test: bool, resolved: bool, names: Sequence[str], form: str) -> None:
    """Check the notification channels, and print or send an example message.

    Without --test, each channel's message is printed, without keys and addresses. With --test, it
    is sent, marked as an example. On PagerDuty it opens an incident, which --resolved closes.
    Secret addresses, keys and authorizations are sent only over https or to loopback, unless the
    channel has `insecure_credentials: true`.

    Exit status 1: a channel rejects the message.
    """
    try:
        configuration = load_configuration(file, os.environ)
    except (AlertsError, OSError) as error:
        raise click.UsageError(reason(error)) from error
    channels = _chosen_channels(configuration, names)
    transition = Transition.RESOLVED if resolved else Transition.FIRING
    now_s = int(time.time())
    delivered = True
    for channel in channels:
        message = example(channel.severities[0], transition, now_s, configuration.explorer_url)
        if test:
            delivered &= _send(channel, message, now_s, form)
        else:
            _show(channel, message, now_s, form)
    if not delivered:
        click.get_current_context().exit(1)


def _chosen_channels(configuration: Configuration, names: Sequence[str]) -> list[Channel]:
    known = {channel.name: channel for channel in configuration.channels}
    for name in names:
        if name not in known:
            raise click.UsageError(f"--channel {name!r}; allowed: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


def _show(channel: Channel, message: IncidentMessage, now_s: int, form: str) -> None:
    hidden = replace(channel, key=Secret(HIDDEN) if channel.key else None)
    post = RENDER[channel.kind](hidden, message, now_s)
    headers = {**post.headers}
    if SIGNATURE in headers:
        headers[SIGNATURE] = HIDDEN
    if channel.authorization is not None:
        headers["Authorization"] = HIDDEN
    shown: dict[str, Any] = {
        "channel": channel.name,
        "type": str(channel.kind),
        "severities": channel.severities,
        "headers": headers,
        "body": json.loads(post.body),
    }
    if form == "json":
        click.echo(json.dumps(shown))
        return
    click.echo(f"{channel.name}: {channel.kind}, for {' and '.join(channel.severities)}")
    for name, value in headers.items():
        click.echo(f"  {name}: {value}")
    body = json.dumps(shown["body"], indent=2, ensure_ascii=False)
    click.echo("\n".join(f"  {line}" for line in body.splitlines()) + "\n")


def _send(channel: Channel, message: IncidentMessage, now_s: int, form: str) -> bool:
    answer = ChannelPoster(channel)(RENDER[channel.kind](channel, message, now_s))
    result = _VERDICTS[answer.verdict]
    if form == "json":
        fields = {"channel": channel.name, "result": result, "status": answer.status}
        click.echo(json.dumps({**fields, "answer": answer.text}))
    else:
        click.echo(f"{channel.name}  {result}  {text.printable(str(answer), 240)}")
    return answer.verdict is DeliveryVerdict.DELIVERED
