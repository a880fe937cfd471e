"""Read a budget from YAML. Errors name the line, the key, the value and what is allowed."""

from functools import cache
from pathlib import Path
from typing import Final

from alerts.errors import DocumentError, shown
from alerts.strict_yaml import MAX_CHARACTERS, Fields, MappingReader, YamlScalar
from alerts.yaml_files import read_mapping
from analysis.budget.budget import (
    AROUND,
    BEYOND_TTFT,
    LATENCIES,
    LAYERS,
    OPERATIONS,
    PERCENTILES,
    LatencyBudget,
)
from telemetry import durations

PRESETS: Final = ("voice", "chat", "code")
MAX_NS: Final = 86_400 * 10**9
_FOLDER: Final = Path(__file__).with_name("presets")
_KEYS: Final = ("latency", "percentile", "total", "layers", "source")


@cache
def preset(name: str) -> LatencyBudget:
    """A built-in budget, from `presets/`.

    Raises:
        DocumentError: there is no preset of this name.
    """
    if name not in PRESETS:
        raise DocumentError("preset", 1, "", f"{shown(name)}; allowed: {', '.join(PRESETS)}")
    return read_budget(_FOLDER / f"{name}.yaml")


def read_budget(path: Path) -> LatencyBudget:
    """Read a budget file.

    Raises:
        DocumentError: the file cannot be read, or is not a budget.
    """
    try:
        with path.open("rb") as file:
            # A character has at most four bytes.
            written = file.read(4 * MAX_CHARACTERS + 1)
        text = written.decode()
    except OSError as error:
        raise DocumentError(str(path), None, "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(str(path), 1, "", "not a text in UTF-8") from error
    return parse_budget(text, str(path), path.stem)


def parse_budget(text: str, file: str, name: str) -> LatencyBudget:
    """Parse a budget.

    Raises:
        DocumentError: the text is not a budget, or its layers exceed its total.
    """
    top = read_mapping(text, file, _KEYS)
    latency = top.choice("latency", LATENCIES)
    percentile = top.choice("percentile", tuple(PERCENTILES)) if "percentile" in top else "p95"
    total_ns = _duration_ns(top, "total")
    layers_ns = dict(_layers(top, latency)) if "layers" in top else {}
    if (assigned := sum(layers_ns.values())) > total_ns:
        raise top.error(
            "layers",
            f"{assigned / 1e6:g} ms in all layers; allowed: at most the total of"
            f" {total_ns / 1e6:g} ms",
        )
    source = top.text("source") if "source" in top else None
    return LatencyBudget(name, latency, percentile, total_ns, layers_ns, source)


def _layers(top: MappingReader, latency: str) -> list[tuple[str, int]]:
    layers = top.inner("layers", LAYERS)
    found: list[tuple[str, int]] = []
    for layer in LAYERS:
        if layer not in layers:
            continue
        if latency == "ttft" and layer in BEYOND_TTFT:
            allowed = ", ".join(each for each in LAYERS if each not in BEYOND_TTFT)
            raise layers.error(
                layer,
                f"comes after the first token; allowed with latency: ttft: {allowed}; or set"
                " latency: e2e",
            )
        if layer in AROUND and isinstance(layers.node(layer), Fields):
            names = tuple(map(str, OPERATIONS))
            inner = layers.inner(layer, names)
            if not any(each in inner for each in names):
                raise layers.error(
                    layer,
                    "names no operation; allowed: one duration for the layer, or durations of these"
                    f" operations: {', '.join(names)}",
                )
            found += [
                (f"{layer}.{each}", _duration_ns(inner, each)) for each in names if each in inner
            ]
        else:
            found.append((layer, _duration_ns(layers, layer)))
    return found


def _duration_ns(reader: MappingReader, key: str) -> int:
    allowed = "a duration above 0 and up to 24h, such as 40ms or 1.5s"
    if not isinstance(reader.node(key), YamlScalar):
        raise reader.error(key, f"a list or a mapping; allowed: {allowed}")
    written = reader.text(key)
    try:
        ns = durations.parse_ns(written)
    except ValueError as error:
        raise reader.error(key, f"{shown(written)}; allowed: {allowed}") from error
    if ns > MAX_NS:
        raise reader.error(key, f"{shown(written)}; allowed: {allowed}")
    return ns
