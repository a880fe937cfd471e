"""Read a YAML file that has exactly one document, a mapping."""

from pathlib import Path

from alerts.errors import DocumentError
from alerts.strict_yaml import MappingReader, read_documents


def read_file(path: Path, keys: tuple[str, ...]) -> MappingReader:
    """A reader of the mapping in a file.

    Raises:
        DocumentError: the file is not UTF-8 text, or not one mapping with these keys.
        OSError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(str(path), 1, "", "is not UTF-8 text") from error
    return read_mapping(text, str(path), keys)


def read_mapping(text: str, file: str, keys: tuple[str, ...]) -> MappingReader:
    """A reader of the mapping in a text.

    Raises:
        DocumentError: the text is not exactly one mapping with these keys.
    """
    documents = read_documents(text, file)
    if len(documents) != 1:
        raise DocumentError(file, 1, "", f"{len(documents)} documents; allowed: exactly one")
    return MappingReader(documents[0], file, "", keys)
