"""A model of the duration of a request's own work, fitted to the baseline's requests.

Pure. Own prefill takes g + α·u + κ·q. u is the number of computed prompt tokens, and q = u·(prompt
− u/2) is the attention work. Own decode takes (γ + β·c)·n. n is the number of output tokens after
the first, and c is their mean context. Time beyond the prediction is attributed to a slower
machine.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diagnosis.inputs.requests import MIN_REQUESTS, BoolArray, FloatArray, IntArray, Requests

_FIT_ROWS: Final = 20_000
"""Maximum number of requests for the fit."""


@dataclass(frozen=True, slots=True)
class OwnWork:
    """The fitted coefficients, in seconds.

    `prefill` contains g, α and κ of the module's formula. `decode` contains γ and β. They are None
    if the baseline has too little data.
    """

    prefill: FloatArray | None
    decode: FloatArray | None
    cached_by_size: FloatArray
    """For each size class, the mean number of cached tokens of a prompt. Element i is for prompts
    with at least 2^i and fewer than 2^(i + 1) tokens. It is NaN if the baseline has too few such
    prompts."""
    prompt_range: tuple[float, float]
    uncached_range: tuple[float, float]
    output_range: tuple[float, float]

    def prefill_s(self, prompt_tokens: FloatArray, uncached_tokens: FloatArray) -> FloatArray:
        """Return the predicted seconds of each request's own prefill: (n,). A value is NaN if it is
        unknown."""
        if self.prefill is None:
            return np.full(prompt_tokens.size, np.nan)
        seconds: FloatArray = _prefill_columns(prompt_tokens, uncached_tokens) @ self.prefill
        return seconds

    def decode_s(self, prompt_tokens: FloatArray, output_tokens: FloatArray) -> FloatArray:
        """Return the predicted seconds of each request's own decode: (n,). A value is NaN if it is
        unknown."""
        if self.decode is None:
            return np.full(prompt_tokens.size, np.nan)
        seconds: FloatArray = _decode_columns(prompt_tokens, output_tokens) @ self.decode
        return seconds

    def expected_cached_tokens(
        self, prompt_tokens: FloatArray, cached_tokens: FloatArray
    ) -> FloatArray:
        """Return each prompt's number of cached tokens at the baseline's hit ratio: (n,). If the
        baseline has no prompts of this size, the given number is returned."""
        usual = self.cached_by_size[_sizes(prompt_tokens)]
        cached = np.where(np.isfinite(usual), usual, np.nan_to_num(cached_tokens))
        return np.asarray(np.minimum(cached, np.nan_to_num(prompt_tokens)))

    def expected_prefill_s(self, requests: Requests) -> FloatArray:
        """Return the predicted seconds of each request's own prefill at the baseline's hit ratio:
        (n,)."""
        prompt = requests.number("prompt_tokens")
        expected = self.expected_cached_tokens(prompt, requests.number("cached_tokens"))
        return self.prefill_s(prompt, prompt - expected)

    def prefill_seen(self, requests: Requests) -> BoolArray:
        """Return whether each request's number of computed prompt tokens is in the baseline's
        range: (n,)."""
        return _inside(uncached_tokens(requests), self.uncached_range)

    def decode_seen(self, requests: Requests) -> BoolArray:
        """Return whether each request's prompt and output are in the baseline's ranges of lengths:
        (n,).

        The prompt includes cached tokens."""
        prompt, output = requests.number("prompt_tokens"), requests.number("output_tokens")
        return _inside(prompt, self.prompt_range) & _inside(output, self.output_range)


_SIZES: Final = 32
"""Number of size classes of prompts. Each class is twice as large as the previous one."""


def _sizes(tokens: FloatArray) -> NDArray[np.intp]:
    size = np.floor(np.log2(np.maximum(np.nan_to_num(tokens), 1.0)))
    return np.clip(size, 0, _SIZES - 1).astype(np.intp)


def uncached_tokens(requests: Requests) -> FloatArray:
    """Return the number of computed prompt tokens: (n,). If the cached tokens are not reported, all
    tokens count as computed."""
    cached = np.nan_to_num(requests.number("cached_tokens"))
    return np.asarray(np.maximum(requests.number("prompt_tokens") - cached, 0.0))


def computed_tokens(requests: Requests, tokens: str) -> FloatArray:
    """Return the number of tokens that each request computes: (n,). A value is NaN if it is
    unknown.

    Args:
        tokens: "prompt_tokens" or "output_tokens". Cached prompt tokens are excluded, because they
            are not computed.
    """
    return uncached_tokens(requests) if tokens == "prompt_tokens" else requests.number(tokens)


def fit_own_work(baseline: Requests) -> OwnWork:
    """Return the model, fitted to the baseline's requests."""
    rows = _evenly_spread_rows(np.arange(len(baseline)))
    some = baseline.rows(rows)
    prompt, uncached = some.number("prompt_tokens"), uncached_tokens(some)
    output = some.number("output_tokens")
    return OwnWork(
        prefill=_fit(_prefill_columns(prompt, uncached), some.number("prefill_own_s")),
        decode=_fit(_decode_columns(prompt, output), some.number("decode_own_s")),
        cached_by_size=_cached_by_size(prompt, some.number("cached_tokens")),
        prompt_range=_range(prompt),
        uncached_range=_range(uncached),
        output_range=_range(output),
    )


def _range(values: FloatArray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not known.size:
        return np.inf, -np.inf
    low, high = np.quantile(known, [0.01, 0.99])
    return float(low), float(high)


def _inside(values: FloatArray, limits: tuple[float, float]) -> BoolArray:
    return np.asarray((values >= limits[0]) & (values <= limits[1]))


def _evenly_spread_rows(rows: IntArray) -> IntArray:
    if rows.size <= _FIT_ROWS:
        return rows
    return rows[np.linspace(0, rows.size - 1, _FIT_ROWS).astype(np.int64)]


def _prefill_columns(prompt: FloatArray, uncached: FloatArray) -> FloatArray:
    return np.stack([np.ones_like(prompt), uncached, uncached * (prompt - uncached / 2.0)], axis=1)


def _decode_columns(prompt: FloatArray, output: FloatArray) -> FloatArray:
    gaps = np.maximum(output - 1.0, 0.0)
    return np.stack([gaps, gaps * (prompt + gaps / 2.0)], axis=1)


def _cached_by_size(prompt: FloatArray, cached: FloatArray) -> FloatArray:
    known = np.isfinite(prompt) & np.isfinite(cached)
    size = _sizes(prompt[known])
    number = np.bincount(size, minlength=_SIZES)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(
            number >= MIN_REQUESTS,
            np.bincount(size, cached[known], minlength=_SIZES) / number,
            np.nan,
        )


def _fit(columns: FloatArray, seconds: FloatArray) -> FloatArray | None:
    """Return the coefficients that minimise the relative errors, by non-negative least squares.
    Requests with large errors get less weight."""
    known = np.isfinite(columns).all(axis=1) & np.isfinite(seconds) & (seconds > 0)
    if known.sum() < MIN_REQUESTS:
        return None
    x, y = columns[known], seconds[known]
    weights = 1.0 / np.maximum(y, np.median(y) / 10.0)
    found = _nonnegative(x * weights[:, None], y * weights)
    for _ in range(2):
        off = np.abs(x @ found - y) * weights
        robust = weights / np.sqrt(np.maximum(off, 0.02))
        found = _nonnegative(x * robust[:, None], y * robust)
    return found


def _nonnegative(x: FloatArray, y: FloatArray) -> FloatArray:
    """The non-negative coefficients with the smallest error.

    All subsets of the coefficients are fitted."""
    scale = np.sqrt((x**2).sum(axis=0))
    scale[scale == 0] = 1.0
    gram, target = (x / scale).T @ (x / scale), (x / scale).T @ y
    best, best_error = np.zeros(x.shape[1]), 0.0
    for choice in range(1, 2 ** x.shape[1]):
        used = [place for place in range(x.shape[1]) if choice >> place & 1]
        part = np.linalg.lstsq(gram[np.ix_(used, used)], target[used], rcond=None)[0]
        if (part < 0).any():
            continue
        error = float(part @ gram[np.ix_(used, used)] @ part - 2 * part @ target[used])
        if error < best_error:
            best, best_error = np.zeros(x.shape[1]), error
            best[used] = part
    result: FloatArray = best / scale
    return result
