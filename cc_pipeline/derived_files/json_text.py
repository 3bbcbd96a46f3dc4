"""JSON that a file holds about a page, read within a bound: each byte of it may cost 28 bytes of memory."""

from __future__ import annotations

import json
from typing import Any, Final

#: Bytes, or characters, of one document. What a page of 5 MiB says of itself is at most half as long.
MAX_JSON: Final = 32 << 20


def load_json(text: str | bytes, *, strict: bool = True) -> Any:
    """The value of a document; ``strict`` as ``json.loads`` has it. Raises ``ValueError`` for what is no JSON or longer
    than ``MAX_JSON``, and ``RecursionError``."""
    if len(text) > MAX_JSON:
        raise ValueError(f"it is longer than the bound of {MAX_JSON >> 20} MiB")
    return json.loads(text, strict=strict)
