from itertools import combinations

import numpy as np
import pytest

from analysis.over_time.phases import LAYERS
from ui.kit import colours

WHITE, DARK = "#ffffff", "#171614"
NAMED = {layer.key: layer.colour for layer in LAYERS if layer.colour.startswith("#")}

# Source: Machado, Oliveira, Fernandes 2009, severity 1.0; applied to linear RGB.
VISIONS = {
    "common": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    matrix = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    ratio = matrix @ rgb.clip(0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(c)) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("named", [NAMED, colours.ENDINGS], ids=["phases", "outcomes"])
@pytest.mark.parametrize("vision", VISIONS)
def test_colours_are_distinct(named: dict[str, str], vision: str) -> None:
    """For every kind of colour vision, ΔE in CIELAB is at least 20; 2.3 is just noticeable."""
    seen = {key: lab(VISIONS[vision] @ linear(colour)) for key, colour in named.items()}
    nearest = min(
        (float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in combinations(seen, 2)
    )
    assert nearest[0] >= 20, nearest


@pytest.mark.parametrize("background", [WHITE, DARK])
def test_phases_stand_out_from_the_background(background: str) -> None:
    for key, colour in NAMED.items():
        if key not in ("stall", "delivery"):
            assert contrast(colour, background) >= 2, (key, background)
    assert contrast("#8c8c8c", background) >= 3  # OUTLINE, almost opaque


@pytest.mark.parametrize(
    ("theme", "background"), [("light", WHITE), ("dark", DARK), (None, WHITE), (None, DARK)]
)
def test_lines_are_readable_on_their_background(theme: str | None, background: str) -> None:
    """Before the browser has reported its theme, the colours must fit both backgrounds."""
    ink = colours.ink(theme)
    assert contrast(ink.strong, background) >= 3
    assert contrast(ink.middle, background) >= 3
    assert contrast(ink.weak, background) >= 2.5


def test_text_on_a_phase_is_readable() -> None:
    for key, colour in NAMED.items():
        text = colours.on(colour)
        assert text is not None
        assert contrast(text, colour) >= 4.5, key
    assert colours.on(colours.UNACCOUNTED) is None


def test_outcomes_stand_out_from_the_background() -> None:
    for colour in (*colours.ENDINGS.values(), colours.THRESHOLD):
        assert min(contrast(colour, background) for background in (WHITE, DARK)) >= 2
