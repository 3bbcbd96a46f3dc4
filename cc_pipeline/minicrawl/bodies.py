"""Bodies that are neither HTML nor feeds: documents, pictures, text, and nothing at all."""

from __future__ import annotations

import json
import struct
import zlib
from random import Random

from cc_pipeline.minicrawl.languages import Language


def other_body(rng: Random, kind: str, language: Language) -> tuple[str | None, str, bytes]:
    """Declared content type (``None``: no header), detected type and body.

    Kinds: ``empty``, ``pdf``, ``image``, ``text``, ``json``, ``untyped`` (HTML served without a type). Raises
    ``ValueError`` for another kind: a mistake of the caller.
    """
    match kind:
        case "empty":
            return "text/html", "application/x-empty", b""
        case "pdf":
            return rng.choice(("application/pdf", "application/octet-stream")), "application/pdf", _pdf(rng)
        case "image":
            return rng.choice(("image/png", "text/html")), "image/png", _png(rng)
        case "text":
            return "text/plain; charset=utf-8", "text/plain", language.paragraph(rng, 8).encode()
        case "json":
            return "application/json", "application/json", json.dumps({"n": rng.randrange(9999), "ok": True}).encode()
        case "untyped":
            page = f"<html><title>untyped {rng.randrange(99)}</title><body>{language.paragraph(rng, 3)}</body></html>"
            return None, "text/html", page.encode()
        case _:
            raise ValueError(f"no body of kind {kind}")


def _pdf(rng: Random) -> bytes:
    stream = rng.randbytes(rng.randrange(200, 3000))
    return (
        b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Count 0/Kids[]>>endobj\n3 0 obj<</Length "
        + str(len(stream)).encode()
        + b">>stream\n"
        + stream
        + b"\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
    )


def _png(rng: Random) -> bytes:
    side = 4 + rng.randrange(12)
    rows = b"".join(b"\0" + rng.randbytes(3 * side) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
