"""Parse YAML, and limit the size to which its aliases expand.

A YAML alias (`*name`) repeats an earlier value. Nested aliases expand a file of 400 bytes to
gigabytes. PyYAML copies an aliased value that is merged with `<<`, and `repr` writes out every
repetition.
"""

from itertools import chain
from typing import Any, Final

import yaml

MAX_EXPANDED_CHARACTERS: Final = 4 * 2**20
"""Maximum size of a document in which each alias is replaced by its value. It is the maximum size
of a target file, so that a file without aliases is never refused."""


def load_yaml(text: str | bytes) -> Any:
    """The value of a YAML document, or None if it is empty.

    Raises:
        yaml.YAMLError: the text is not YAML, is nested too deeply, or expands to more than
            `MAX_EXPANDED_CHARACTERS`.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MAX_EXPANDED_CHARACTERS:
            raise yaml.YAMLError(
                f"more than {MAX_EXPANDED_CHARACTERS:,} characters if each alias (*) is replaced by"
                " its value; write fewer or smaller values"
            )
        return loader.construct_document(node)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error
    finally:
        loader.dispose()


def _size(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """The number of characters of a node after its aliases are expanded. Above the limit, the limit
    plus 1."""
    if node not in known:
        known[node] = MAX_EXPANDED_CHARACTERS + 1  # a node that contains itself is infinitely large
        if isinstance(node, yaml.ScalarNode):
            size = 1 + len(node.value)
        else:
            inner = chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
            size = 1 + sum(_size(each, known) for each in inner)
        known[node] = min(size, MAX_EXPANDED_CHARACTERS + 1)
    return known[node]
