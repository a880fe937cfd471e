"""A strict YAML parser that keeps the line and the text of every value.

Numbers stay text, so that a target of 0.999 is exact. Anchors and aliases are errors, because they
can expand to billions of nodes. Tags, duplicate keys, and keys that are not text are errors too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from alerts.errors import DocumentError, shown
from telemetry import durations

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 32
MAX_NODES = 20_000

_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters can change a terminal or end a PromQL comment. Lone surrogates are not
UTF-8."""


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """One value, as the file contains it. `plain` means without quotes."""

    line: int
    text: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence."""

    line: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping. `lines` has the line number of each key."""

    line: int
    fields: Mapping[str, "Node"]
    lines: Mapping[str, int]


Node = YamlScalar | Items | Fields


def read_documents(text: str, file: str) -> list[Node]:
    """The non-empty documents of a text.

    Raises:
        DocumentError: the text is not YAML, or contains something that is not allowed.
    """
    if len(text) > MAX_CHARACTERS:
        raise DocumentError(
            file, 1, "", f"{len(text):,} characters; allowed: at most {MAX_CHARACTERS:,}"
        )
    try:
        return list(_Builder(yaml.parse(text, Loader=yaml.SafeLoader), file).documents())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(file, line, "", f"not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise DocumentError(
            file, line, "", "contains a character that YAML does not allow"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentError(file, 1, "", f"not YAML: {error}") from error


class _Builder:
    """Each node is checked before it is built."""

    def __init__(self, events: Iterator[yaml.Event], file: str) -> None:
        self._events = events
        self._file = file
        self._nodes = 0

    def documents(self) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                node = self._node(next(self._events), 1)
                if not (isinstance(node, YamlScalar) and node.plain and node.text == ""):
                    yield node

    def _node(self, event: yaml.Event, depth: int) -> Node:
        line = event.start_mark.line + 1 if event.start_mark else 1
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise DocumentError(self._file, line, "", f"contains more than {MAX_NODES:,} values")
        if depth > MAX_DEPTH:
            raise DocumentError(self._file, line, "", f"nested more than {MAX_DEPTH} deep")
        if getattr(event, "anchor", None) is not None:
            raise DocumentError(
                self._file,
                line,
                "",
                "anchors and aliases (& and *) are not allowed: write the value out",
            )
        # `tag` is set only for explicit tags.
        if getattr(event, "tag", None) is not None:
            raise DocumentError(self._file, line, "", "tags (!) are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            if found := _NOT_TEXT.search(event.value):
                raise DocumentError(
                    self._file,
                    line,
                    "",
                    f"a text with the character U+{ord(found[0]):04X}; allowed: printable"
                    " characters, tabs and line ends",
                )
            return YamlScalar(line, event.value, event.style is None)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(line, tuple(self._items(depth)))
        return self._fields(line, depth)

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _fields(self, line: int, depth: int) -> Fields:
        fields: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key, YamlScalar):
                raise DocumentError(self._file, key.line, "", "a key must be text")
            if key.text in fields:
                raise DocumentError(
                    self._file,
                    key.line,
                    key.text,
                    f"given twice, first on line {lines[key.text]}",
                )
            lines[key.text] = key.line
            fields[key.text] = self._node(next(self._events), depth + 1)
        return Fields(line, fields, lines)


class MappingReader:
    """Reads a mapping key by key. Unknown keys are errors. `file` is the path as the user
    gave it."""

    def __init__(self, node: Node, file: str, path: str, keys: tuple[str, ...]) -> None:
        self.file = file
        self.path = path
        self.line = node.line
        self._keys = keys
        if not isinstance(node, Fields):
            raise DocumentError(
                file, node.line, path, f"must be a mapping with the keys {', '.join(keys)}"
            )
        self._node = node
        for key in node.fields:
            if key not in keys:
                raise DocumentError(
                    file,
                    node.lines[key],
                    self._at(key),
                    f"no such key; allowed: {', '.join(keys)}",
                )

    def __contains__(self, key: str) -> bool:
        return key in self._node.fields

    def node(self, key: str) -> Node:
        """The value of a required key."""
        if key not in self._node.fields:
            raise DocumentError(self.file, self.line, self._at(key), "is missing")
        return self._node.fields[key]

    def inner(self, key: str, keys: tuple[str, ...]) -> "MappingReader":
        """Return a reader for a key's value, which must be a mapping."""
        return MappingReader(self.node(key), self.file, self._at(key), keys)

    def each(self, key: str, keys: tuple[str, ...]) -> list["MappingReader"]:
        """Return a reader for each item of a key's value. The value must be a sequence of
        mappings."""
        node = self.node(key)
        if not isinstance(node, Items):
            raise self.error(key, "must be a sequence (- …)")
        return [
            MappingReader(item, self.file, f"{self._at(key)}[{place}]", keys)
            for place, item in enumerate(node.items)
        ]

    def text(self, key: str, default: str | None = None) -> str:
        """The value of a key as text, or the default."""
        if default is not None and key not in self:
            return default
        node = self.node(key)
        if not isinstance(node, YamlScalar):
            raise self.error(key, "must be text")
        if not node.text.strip() or (node.plain and node.text in ("null", "Null", "NULL", "~")):
            raise self.error(key, "is empty")
        return node.text

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """One of the allowed texts."""
        text = self.text(key)
        if text not in allowed:
            raise self.error(key, f"{shown(text)}; allowed: {', '.join(allowed)}")
        return text

    def choices(self, key: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """Return a key's value, a sequence of different allowed texts. If the key is absent, return
        all of them."""
        if key not in self:
            return allowed
        chosen = self.texts(key, f"items from: {', '.join(allowed)}")
        for each in chosen:
            if each not in allowed:
                raise self.error(key, f"{shown(each)}; allowed: {', '.join(allowed)}")
        return chosen

    def texts(self, key: str, allowed: str = "texts") -> tuple[str, ...]:
        """A key's value, a sequence of different texts. `allowed` is the noun for these texts in
        errors."""
        node = self.node(key)
        chosen = [each.text for each in getattr(node, "items", ()) if isinstance(each, YamlScalar)]
        if not isinstance(node, Items) or not chosen or len(chosen) != len(node.items):
            raise self.error(key, f"must be a sequence of {allowed}")
        for each in chosen:
            if not each.strip():
                raise self.error(key, "contains an empty text")
            if chosen.count(each) > 1:
                raise self.error(key, f"{shown(each)} is given twice")
        return tuple(chosen)

    def duration_s(self, key: str, default: str | None = None) -> int:
        """A duration such as `30d` in seconds, or the default."""
        try:
            return durations.parse_s(self.text(key, default))
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def flag(self, key: str, default: bool) -> bool:
        """The boolean of a key, or the default."""
        if key not in self:
            return default
        return self.choice(key, ("true", "false")) == "true"

    def error(self, key: str, problem: str) -> DocumentError:
        """An error about the value of a key."""
        line = self._node.lines.get(key, self.line)
        return DocumentError(self.file, line, self._at(key), problem)

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
