"""Read secrets from configuration files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from alerts.errors import shown
from alerts.strict_yaml import MappingReader

SOURCES: Final = ("", "_env", "_file")
"""The secret itself, the name of an environment variable, or the path of a file."""
LONGEST: Final = 4_096


class Secret:
    """A text that must not be printed, logged or stored."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text. Use it only to send it to the receiver."""
        return self._value

    def __repr__(self) -> str:
        return "***"


def read_secret(
    reader: MappingReader, key: str, folder: Path, environ: Mapping[str, str]
) -> Secret | None:
    """The secret that a key contains or references, or None if the key is absent.

    Raises:
        DocumentError: more than one form is given, or the variable or file does not exist. The
            message never contains a secret.
    """
    given = [f"{key}{source}" for source in SOURCES if f"{key}{source}" in reader]
    if not given:
        return None
    if len(given) > 1:
        raise reader.error(given[1], f"{given[0]} is given too: give only one of them")
    (name,) = given
    value = reader.text(name)
    if name.endswith("_env"):
        if value not in environ:
            raise reader.error(name, f"{shown(value)}: this environment variable is not set")
        value = environ[value]
    elif name.endswith("_file"):
        value = _content(reader, name, folder / value)
    value = value.strip()
    if not value:
        raise reader.error(name, "the secret is empty")
    if len(value) > LONGEST or not (value.isascii() and value.isprintable()):
        raise reader.error(name, f"must have at most {LONGEST:,} printable ASCII characters")
    return Secret(value)


def _content(reader: MappingReader, name: str, path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            return file.read(LONGEST + 64)
    except OSError as error:
        raise reader.error(name, f"{shown(str(path))}: {error.strerror}") from error
    except UnicodeDecodeError:
        # The original exception contains the file's content, so it is not chained.
        raise reader.error(name, f"{shown(str(path))}: is not ASCII text") from None
