"""Limits on texts that a client chooses, which are applied where the texts enter the process.

Both functions return at most 256 characters that can be encoded as UTF-8. They return their own
results unchanged.
"""

from hashlib import blake2b

TEXT_LIMIT = 256
"""Maximum number of characters of any text that a client can choose. The README states this
limit.
"""

_DIGEST_BYTES = 12
"""96 bits of a digest: finding two ids with the same digest takes about 2**48 attempts, too many
for a client.
"""

_KEPT_BEFORE_DIGEST = TEXT_LIMIT - 2 * _DIGEST_BYTES - 1


def bounded_text(text: str) -> str:
    """Return the first 256 characters, with a question mark for each lone surrogate."""
    text = text[:TEXT_LIMIT]
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def bounded_id(text: str) -> str:
    """Return a request id within the limit. Different ids stay different.

    The front end and the engine core both apply this function, so that an account still matches its
    request. An id that had to be changed ends with a digest of the whole original id.
    """
    fitting = bounded_text(text)
    if fitting == text:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES)
    return f"{fitting[:_KEPT_BEFORE_DIGEST]}~{digest.hexdigest()}"
