"""Find the layers with a sliding attention window, and the size of the window. Pure.

Newer configurations list the type of each layer (`layer_types`). In older configurations, the model
type or a pattern determines the types.
"""

from typing import Final

from roofline.config import Config
from roofline.errors import UnknownShapeError

_FULL: Final = frozenset({"full_attention", "attention", "global_attention"})
_SLIDING: Final = frozenset({"sliding_attention", "chunked_attention", "local_attention"})


def sliding_layers(model: Config, kind: str, layers: int) -> tuple[int | None, int]:
    """The window in tokens and the number of layers that use it.

    The result is (None, 0) without a window.

    A chunked layer (Llama 4) counts as a sliding window of a whole chunk.

    Raises:
        UnknownShapeError: a layer type is unknown.
    """
    window = model.whole_or_none("sliding_window", "attention_chunk_size")
    kinds = model.tally("layer_types")
    for each in kinds:
        if each not in _FULL | _SLIDING:
            known = ", ".join(sorted(_FULL | _SLIDING))
            raise UnknownShapeError("layer_types", f"{each!r}: not modelled; known: {known}")
    if window is None or not model.flag("use_sliding_window", True):
        return None, 0
    number = _number(model, kind, kinds, layers)
    return (window, min(number, layers)) if number else (None, 0)


def _number(model: Config, kind: str, kinds: dict[str, int], layers: int) -> int:
    if kinds:
        return sum(count for each, count in kinds.items() if each in _SLIDING)
    if kind == "gemma2":
        return (layers + 1) // 2
    pattern = model.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # "LLLG" means local, local, local, global
        return sum(pattern[layer % len(pattern)] == "L" for layer in range(layers))
    if isinstance(pattern, int) and pattern > 1:
        return layers - layers // pattern
    if kind.startswith("qwen2"):
        return max(0, layers - (model.whole_or_none("max_window_layers") or 0))
    return layers
