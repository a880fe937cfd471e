"""CUDA_VISIBLE_DEVICES, read as CUDA reads it.

Pure. Source: CUDA C++ Programming Guide, "CUDA Environment Variables": numbers, or UUIDs and
beginnings of them; what follows the first that is none is not seen.
"""

from collections.abc import Sequence

from collector.gpus.reader import Told

_PREFIXES = ("GPU-", "MIG-")


def visible(variable: str, gpus: Sequence[Told]) -> list[str]:
    """The UUIDs of the GPUs that a process sees.

    A number is CUDA's, which counts from the fastest on; only among GPUs of one model it is
    surely the driver's, and otherwise nothing is said.

    Args:
        variable: its value.
        gpus: those of this machine.
    """
    numbered = {each.index: each.gpu for each in gpus if each.index is not None}
    alike = len({each.model_name for each in gpus if each.index is not None}) == 1
    found: list[str] = []
    for word in (part.strip() for part in variable.split(",")):
        if word.startswith(_PREFIXES):
            meant = [each.gpu for each in gpus if each.gpu.startswith(word)]
            if len(meant) != 1:
                break
            found += meant
        elif word.isascii() and word.isdigit() and int(word) in numbered:
            if not alike:
                return []
            found.append(numbered[int(word)])
        else:
            break
    return found
