"""Parse CUDA_VISIBLE_DEVICES with CUDA's rules. Pure.

An entry is a GPU's number, its UUID, or a prefix of its UUID. CUDA ignores the first invalid entry
and all entries after it. Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
"""

from collections.abc import Sequence

from collector.gpus.reader import GpuReading

_PREFIXES = ("GPU-", "MIG-")


def visible(variable: str, gpus: Sequence[GpuReading]) -> list[str]:
    """The UUIDs of the GPUs that a process sees. If the machine has different models of GPUs,
    numbers cannot be resolved: CUDA numbers different models by speed, but the driver numbers them
    by PCI bus."""
    numbered = {each.index: each.gpu for each in gpus if each.index is not None}
    same_model = len({each.model_name for each in gpus if each.index is not None}) == 1
    found: list[str] = []
    for word in (part.strip() for part in variable.split(",")):
        if word.startswith(_PREFIXES):
            matches = [each.gpu for each in gpus if each.gpu.startswith(word)]
            if len(matches) != 1:
                break
            found += matches
        elif word.isascii() and word.isdigit() and int(word) in numbered:
            if not same_model:
                return []
            found.append(numbered[int(word)])
        else:
            break
    return found
