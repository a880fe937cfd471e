"""The servers whose /metrics `tailspan up` scrapes."""

from dataclasses import dataclass

from collector.scrape.targets import Discovery


@dataclass(frozen=True, slots=True)
class ScrapeSetup:
    """The targets to scrape."""

    places: tuple[Discovery, ...] = ()
    every_s: float = 5.0
