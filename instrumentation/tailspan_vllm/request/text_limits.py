"""Limits texts that a client chooses to 256 characters that can be encoded as UTF-8. Idempotent."""

from hashlib import blake2b

TEXT_LIMIT = 256

_DIGEST_BYTES = 12
"""A digest has 96 bits. A client needs about 2**48 attempts for two ids with the same digest."""

_KEPT_BEFORE_DIGEST = TEXT_LIMIT - 2 * _DIGEST_BYTES - 1


def bounded_text(text: str) -> str:
    """The first 256 characters, with a question mark for each lone surrogate."""
    text = text[:TEXT_LIMIT]
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def bounded_id(text: str) -> str:
    """Limit the length of a request id. A changed id ends with a digest, so different ids stay
    different.

    The front end and the engine core both apply this function.
    """
    fitting = bounded_text(text)
    if fitting == text:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES)
    return f"{fitting[:_KEPT_BEFORE_DIGEST]}~{digest.hexdigest()}"
