"""Limits on the text that a client chooses, applied where it enters the process.

Both functions return at most 256 characters that can be encoded as UTF-8, and return their
own results unchanged.
"""

from hashlib import blake2b

TEXT_LIMIT = 256
"""Maximum length of any text that a client can choose. The README states this limit."""

_DIGEST_BYTES = 12
"""96 bits: no client can find two ids with the same digest (about 2**48 attempts)."""

_KEPT_BEFORE_DIGEST = TEXT_LIMIT - 2 * _DIGEST_BYTES - 1


def bounded_text(text: str) -> str:
    """Return the first 256 characters; a lone surrogate becomes a question mark."""
    text = text[:TEXT_LIMIT]
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def bounded_id(text: str) -> str:
    """Return a request id within the limit. Different ids stay different.

    The front end and the engine core both apply this function, so that an account still joins
    its request: an id that had to be changed ends with a digest of the whole original id.
    """
    fitting = bounded_text(text)
    if fitting == text:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES)
    return f"{fitting[:_KEPT_BEFORE_DIGEST]}~{digest.hexdigest()}"
