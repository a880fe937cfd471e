"""Read the file of probes. Errors name the key, the value and what is allowed."""

import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from probe.errors import PlanError
from probe.plan import DailyLimits, Endpoint, KeySource, ProbePlan
from probe.protocols import PROTOCOLS
from telemetry import durations
from telemetry.addresses import exposes, exposure, masked
from telemetry.printable import printable

MAX_FILE_BYTES: Final = 256 * 1024
MAX_PROMPT_BYTES: Final = 4 * 2**20
"""Maximum size of a prompt file in bytes. A file of this size has about a million tokens."""
MAX_ENDPOINTS: Final = 1_000
MIN_EVERY_S: Final = 1.0
MAX_EVERY_S: Final = 86_400.0
MAX_TOKENS: Final = 1_000_000
MAX_NAME_CHARS: Final = 128

_KEYS: Final = ("region", "every", "budget", "endpoints", "endpoint")
_BUDGET_KEYS: Final = ("usd_per_day", "tokens_per_day")
_ENDPOINT_KEYS: Final = (
    *("name", "kind", "url", "model", "max_tokens"),
    *("prompt_tokens", "prompt_file", "key_env", "key_file"),
)


def read_plan(path: Path, *, insecure_credentials: bool = False) -> ProbePlan:
    """Read a file of probes. Paths in it are relative to its folder.

    Args:
        insecure_credentials: whether keys may be sent without encryption.

    Raises:
        PlanError: the file cannot be used.
    """
    document = _document(path)
    top = _Entry(path, "", document)
    top.only(_KEYS)
    endpoints = tuple(
        _endpoint(_Entry(path, f"endpoints[{place}]", each), insecure_credentials)
        for place, each in enumerate(top.list_of("endpoints", MAX_ENDPOINTS))
    )
    seen: set[str] = set()
    for each in endpoints:
        if each.name in seen:
            raise top.wrong("endpoints", each.name, "a different name for each endpoint")
        seen.add(each.name)
    results_url = top.url("endpoint") if "endpoint" in top.fields else None
    return ProbePlan(
        region=top.name("region"),
        every_s=_every_s(top),
        endpoints=endpoints,
        limits=_limits(_Entry(path, "budget", top.fields.get("budget", {}))),
        results_url=results_url,
    )


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            written = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    if len(written) > MAX_FILE_BYTES:
        raise PlanError(f"{path}: more than {MAX_FILE_BYTES:,} bytes; allowed: a smaller file")
    try:
        return yaml.load(written.decode(), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: not a text in UTF-8") from error
    except RecursionError as error:
        raise PlanError(f"{path}: nested too deeply; allowed: three levels") from error
    except yaml.YAMLError as error:
        raise PlanError(f"{path}: not valid YAML: {_one_line(error)}") from error


class _Loader(yaml.SafeLoader):
    """A safe loader that rejects repeated keys and aliases. Aliases could expand a small file to a
    huge document."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, f"the alias *{event.anchor} is not allowed here", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r:.80} is repeated", key_node.start_mark
                )
            if isinstance(key_node.value, str):
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _one_line(error: yaml.YAMLError) -> str:
    return printable(" ".join(str(error).split()), 200)


def _endpoint(entry: "_Entry", insecure_credentials: bool) -> Endpoint:
    entry.only(_ENDPOINT_KEYS)
    kind = entry.fields.get("kind")
    if not isinstance(kind, str) or kind not in PROTOCOLS:
        raise entry.wrong("kind", kind, ", ".join(PROTOCOLS))
    if ("prompt_tokens" in entry.fields) == ("prompt_file" in entry.fields):
        given = "both" if "prompt_tokens" in entry.fields else "neither"
        raise entry.wrong("", given, "either prompt_tokens or prompt_file")
    key = _key(entry)
    url = entry.url("url")
    needs_key = key is not None or kind == "bedrock"
    if needs_key and not insecure_credentials and exposes(url):
        raise PlanError(f"{entry.file}: {entry.where}.url: {exposure(url, 'the key')}")
    return Endpoint(
        name=entry.name("name"),
        kind=kind,
        url=url.rstrip("/"),
        model=entry.name("model"),
        max_tokens=entry.whole("max_tokens", MAX_TOKENS),
        prompt_tokens=(
            entry.whole("prompt_tokens", MAX_TOKENS) if "prompt_tokens" in entry.fields else None
        ),
        prompt_text=_prompt_text(entry) if "prompt_file" in entry.fields else None,
        key=key,
    )


def _key(entry: "_Entry") -> KeySource | None:
    if "key_env" in entry.fields and "key_file" in entry.fields:
        raise entry.wrong("", "both key_env and key_file", "one of them")
    if "key_env" in entry.fields:
        return KeySource(variable=entry.name("key_env"))
    if "key_file" in entry.fields:
        return KeySource(file=entry.path("key_file"))
    return None


def _prompt_text(entry: "_Entry") -> str:
    path = entry.path("prompt_file")
    try:
        with path.open("rb") as file:
            written = file.read(MAX_PROMPT_BYTES + 1)
    except OSError as error:
        raise entry.wrong(
            "prompt_file", str(path), f"a readable file ({error.strerror})"
        ) from error
    if not written or len(written) > MAX_PROMPT_BYTES:
        raise entry.wrong(
            "prompt_file", str(path), f"a file that has 1 to {MAX_PROMPT_BYTES:,} bytes"
        )
    try:
        return written.decode()
    except UnicodeDecodeError as error:
        raise entry.wrong("prompt_file", str(path), "a text in UTF-8") from error


def _every_s(top: "_Entry") -> float:
    written = top.fields.get("every")
    allowed = "a duration from 1s to 24h, such as 30s"
    if not isinstance(written, str):
        raise top.wrong("every", written, allowed)
    try:
        every_s = durations.parse_ns(written) / 1e9
    except ValueError as error:
        raise top.wrong("every", written, allowed) from error
    if not MIN_EVERY_S <= every_s <= MAX_EVERY_S:
        raise top.wrong("every", written, allowed)
    return every_s


def _limits(entry: "_Entry") -> DailyLimits:
    entry.only(_BUDGET_KEYS)
    usd = entry.fields.get("usd_per_day")
    number = isinstance(usd, int | float) and not isinstance(usd, bool)
    if usd is not None and not (number and math.isfinite(usd) and usd > 0):
        raise entry.wrong("usd_per_day", usd, "a number of dollars above 0")
    tokens = entry.whole("tokens_per_day", 10**12) if "tokens_per_day" in entry.fields else None
    return DailyLimits(None if usd is None else float(usd), tokens)


class _Entry:
    def __init__(self, file: Path, where: str, value: object) -> None:
        self.file, self.where = file, where
        if not isinstance(value, dict):
            raise self.wrong("", value, "a mapping of keys to values")
        self.fields: dict[Any, Any] = value

    def wrong(self, key: str, value: object, allowed: str) -> PlanError:
        place = ".".join(each for each in (self.where, key) if each)
        shown = printable(repr(value), 80)
        return PlanError(f"{self.file}: {place or 'the file'}: {shown}; allowed: {allowed}")

    def only(self, allowed: tuple[str, ...]) -> None:
        for key in self.fields:
            if key not in allowed:
                raise self.wrong("", key, f"the keys {', '.join(allowed)}")

    def list_of(self, key: str, most: int) -> list[Any]:
        value = self.fields.get(key)
        if not isinstance(value, list) or not value or len(value) > most:
            shown = f"{len(value):,} entries" if isinstance(value, list) else value
            raise self.wrong(key, shown, f"a list of 1 to {most:,} entries, each after a -")
        return value

    def name(self, key: str) -> str:
        value = self.fields.get(key)
        if not isinstance(value, str) or not (
            0 < len(value) <= MAX_NAME_CHARS and value.isprintable() and value.strip() == value
        ):
            raise self.wrong(key, value, f"a printable text of 1 to {MAX_NAME_CHARS} characters")
        return value

    def path(self, key: str) -> Path:
        value = self.fields.get(key)
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.wrong(key, value, "the path of a file")
        return self.file.parent / Path(value).expanduser()

    def whole(self, key: str, most: int) -> int:
        value = self.fields.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.wrong(key, value, f"a whole number from 1 to {most:,}")
        return value

    def url(self, key: str) -> str:
        value = self.fields.get(key)
        allowed = "an address such as https://HOST:PORT/PATH, without user, query and fragment"
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise self.wrong(key, value, allowed)
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a malformed port or IPv6 address
            usable = None
        if not usable or " " in value or any(mark in value for mark in "@?#"):
            raise self.wrong(key, masked(value), allowed)
        return value
