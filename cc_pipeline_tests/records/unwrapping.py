"""What a stored record says of its source, for tests that compare it with the source."""

from __future__ import annotations

from cc_pipeline.records.wrap import _ADDED


def unwrap_content(content: bytes) -> tuple[bytes, str | None, int | None, int | None]:
    """A stored record's inflated bytes as they were at the source, with source URI, offset and length.

    Bytes that carry no source come back as they are, with ``None``.
    """
    match = _ADDED.match(content)
    if match is None:
        return content, None, None, None
    first, last = int(match[2]), int(match[3])
    return content[match.end() :], match[1].decode("utf-8", "replace"), first, last - first + 1
