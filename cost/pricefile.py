"""Parse a price file strictly. If an invalid entry were ignored, the bill would be wrong without a
message."""

from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import yaml

from cost.errors import PriceError
from cost.prices import (
    Carbon,
    DevicePrice,
    ManagedModel,
    Overhead,
    PriceList,
    PriceOrigin,
    ReplicaPrice,
)
from telemetry.bounded_yaml import load_yaml

ENVIRONMENT_KEY = "TAILSPAN_PRICES"
DEFAULTS = Path(__file__).with_name("prices.yaml")

_T = TypeVar("_T")
_ORIGIN = ("source", "page", "date")
_SECTIONS = ("devices", "replicas", "managed", "carbon", "pue")


def load_prices(path: Path | None = None) -> PriceList:
    """The prices of the file, if there is one, followed by the default prices.

    Raises:
        PriceError: the file is unreadable or invalid.
    """
    if path is None:
        return _defaults()
    try:
        written = path.read_text()
    except OSError as error:
        raise PriceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PriceError(f"{path}: cannot be read: {error}") from error
    return parse_prices(written, str(path)).before(_defaults())


def prices_in_force(given: Path | None, environment: Mapping[str, str]) -> PriceList:
    """The prices of the given file, or of the file that the environment names."""
    named = environment.get(ENVIRONMENT_KEY)
    return load_prices(given or (Path(named) if named else None))


@cache
def _defaults() -> PriceList:
    return parse_prices(DEFAULTS.read_text(), DEFAULTS.name)


def parse_prices(written: str, file: str) -> PriceList:
    """Parse a price list.

    Args:
        written: YAML with any of the sections devices, replicas, managed, carbon and pue.
        file: name for errors, and the source of entries without a source.

    Raises:
        PriceError: the text is invalid.
    """
    try:
        document = load_yaml(written)
    except yaml.YAMLError as error:
        raise PriceError(f"{file}: not valid YAML: {error}") from error
    if document is None:
        return PriceList()
    top = _Entry(file, "", document)
    top.only(_SECTIONS)
    return PriceList(
        devices=top.each("devices", _device),
        replicas=top.each("replicas", _replica),
        managed=top.each("managed", _managed),
        carbon=top.each("carbon", _carbon),
        pue=_pue(_Entry(file, "pue", top.fields["pue"])) if "pue" in top.fields else None,
    )


def _device(entry: "_Entry") -> DevicePrice:
    entry.only(("name", "match", "usd_per_hour", "regions", *_ORIGIN))
    match = entry.patterns()
    regions = entry.fields.get("regions", {})
    inner = _Entry(entry.file, f"{entry.where}.regions", regions)
    return DevicePrice(
        name=entry.text("name", match[0]),
        match=match,
        usd_per_hour=entry.number("usd_per_hour"),
        origin=entry.origin(),
        regions={str(region): inner.number(region) for region in inner.fields},
    )


def _replica(entry: "_Entry") -> ReplicaPrice:
    entry.only(("match", "usd_per_hour", *_ORIGIN))
    return ReplicaPrice(entry.patterns(), entry.number("usd_per_hour"), entry.origin())


def _managed(entry: "_Entry") -> ManagedModel:
    entry.only(("match", "provider", "model"))
    return ManagedModel(entry.patterns(), entry.text("provider"), entry.text("model"))


def _carbon(entry: "_Entry") -> Carbon:
    entry.only(("name", "match", "g_per_kwh", *_ORIGIN))
    match = entry.patterns()
    return Carbon(entry.text("name", match[0]), match, entry.number("g_per_kwh"), entry.origin())


def _pue(entry: "_Entry") -> Overhead:
    entry.only(("ratio", *_ORIGIN))
    return Overhead(entry.number("ratio", least=1), entry.origin())


class _Entry:
    def __init__(self, file: str, where: str, value: object) -> None:
        self.file, self.where = file, where
        if not isinstance(value, dict):
            raise self.wrong("", value, "a mapping of keys to values")
        self.fields: dict[Any, Any] = value

    def wrong(self, key: object, value: object, allowed: str) -> PriceError:
        place = ".".join(str(each) for each in (self.where, key) if each != "")
        return PriceError(f"{self.file}: {place or 'the file'}: {value!r:.80}; allowed: {allowed}")

    def only(self, allowed: tuple[str, ...]) -> None:
        for key in self.fields:
            if key not in allowed:
                raise self.wrong("", key, f"the keys {', '.join(allowed)}")

    def each(self, key: str, read: Callable[["_Entry"], _T]) -> tuple[_T, ...]:
        entries = self.fields.get(key, [])
        if not isinstance(entries, list):
            raise self.wrong(key, entries, "a list of entries, each after a -")
        return tuple(
            read(_Entry(self.file, f"{key}[{place}]", entry)) for place, entry in enumerate(entries)
        )

    def text(self, key: str, default: str | None = None) -> str:
        value = self.fields.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, value, "a text")
        return value

    def number(self, key: Any, least: float = 0) -> float:
        value = self.fields.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, value, f"a number, {least} or more")
        if not isfinite(value) or value < least:
            raise self.wrong(key, value, f"a number, {least} or more")
        return float(value)

    def patterns(self) -> tuple[str, ...]:
        value = self.fields.get("match")
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not found:
            raise self.wrong("match", value, "a name or a list of names; * matches anything")
        for each in found:
            if not isinstance(each, str) or not each:
                raise self.wrong("match", each, "a name; * matches anything")
        return tuple(found)

    def origin(self) -> PriceOrigin:
        when = self.fields.get("date")
        if isinstance(when, date):
            when = when.isoformat()
        if when is not None and not isinstance(when, str):
            raise self.wrong("date", when, "a date such as 2026-11-21")
        page = self.text("page") if "page" in self.fields else None
        return PriceOrigin(self.text("source", self.file), page, when)
