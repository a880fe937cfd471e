"""Prometheus rules as data, and as YAML that a person can read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import yaml


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that is computed once and used often."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that someone should hear of. `for_` is how long it must hold."""

    alert: str
    expr: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    for_: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in this order."""

    name: str
    interval: str
    rules: Sequence[Recording | Alert]


HEADING: Final = "# Made by `tailspan slo rules`; not edited by hand.\n"


def render(groups: Sequence[Group], selector: str = "") -> str:
    """A rules file; its heading names the selector."""
    whole = {
        "groups": [
            {
                "name": group.name,
                "interval": group.interval,
                "rules": [_rule(rule) for rule in group.rules],
            }
            for group in groups
        ]
    }
    heading = HEADING + (f"# Only series with {selector}\n" if selector else "")
    return heading + yaml.dump(
        whole, Dumper=_Dumper, sort_keys=False, width=1_000, allow_unicode=True
    )


def _rule(rule: Recording | Alert) -> dict[str, object]:
    if isinstance(rule, Recording):
        told: dict[str, object] = {"record": rule.record, "expr": rule.expr}
        return {**told, "labels": dict(rule.labels)} if rule.labels else told
    told = {"alert": rule.alert, "expr": rule.expr}
    if rule.for_ is not None:
        told["for"] = rule.for_
    return {**told, "labels": dict(rule.labels), "annotations": dict(rule.annotations)}


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def quoted(text: str) -> str:
    """A PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def literal(text: str) -> str:
    """A text for an annotation or a label, where Prometheus expands Go templates.

    Each brace is a template of its own that yields it, so that no text can hold another one.
    """
    return text.replace("{", '{{ "{" }}')


def label_text(name: str) -> str:
    """The template for a label's value, which a sender may have chosen.

    Line ends and angle brackets are replaced: receivers such as Slack read `<!here>` and
    `<https://…>` as mentions and links.
    """
    return f'{{{{ $labels.{name} | reReplaceAll "[\\x00-\\x1f\\x7f<>]" "_" }}}}'


def number(value: Fraction) -> str:
    """A PromQL number: exactly as a decimal where there is one, else as a division."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return f"({value.numerator} / {value.denominator})"
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    whole, part = divmod(abs(int(value * 10**digits)), 10**digits)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{part:0{digits}d}" if digits else f"{sign}{whole}"
