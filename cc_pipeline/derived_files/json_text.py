"""Reads JSON about a page up to a maximum length: each byte of it may cost 28 bytes of memory."""

from __future__ import annotations

import json
from typing import Any, Final

#: Bytes, or characters, of one document. The metadata of a page of 5 MiB is at most half as long.
MAX_JSON: Final = 32 << 20


def load_json(text: str | bytes, *, strict: bool = True) -> Any:
    """Returns the value of a document; ``strict`` as for ``json.loads``. Raises ``ValueError`` for invalid JSON and for
    more than ``MAX_JSON``, and ``RecursionError``."""
    if len(text) > MAX_JSON:
        raise ValueError(f"it is longer than the bound of {MAX_JSON >> 20} MiB")
    return json.loads(text, strict=strict)
