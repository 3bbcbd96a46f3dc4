"""HTTP headers as rows: the 2012 object, and the whole list.

Common Crawl stores bodies decoded and renames the headers that no longer fit to ``X-Crawler-...``; here they
count under their own names again.
"""

from __future__ import annotations

from cc_pipeline.documents.page import Headers

#: What the 2012 writer left out of its headers object.
NOT_KEPT_IN_2012 = frozenset(
    {
        "proxy-connection",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "te",
        "trailer",
        "proxy-authorization",
        "proxy-authenticate",
        "upgrade",
        "set-cookie",
        "content-encoding",
    }
)
_REWRITTEN = "x-crawler-"
_MAX_LENGTH_DIGITS = 18


def header(headers: Headers, name: str) -> str | None:
    """The first value of a header as the server sent it; ``name`` in lower case."""
    renamed = _REWRITTEN + name
    plain = None
    for key, value in headers:
        lowered = key.lower()
        if lowered == renamed:
            return value
        if plain is None and lowered == name:
            plain = value
    return plain


def headers_map(headers: Headers, status_line: str | None) -> dict[str, str]:
    """Lower-case names to values, the status line under ``response``. Repeated headers are joined with a comma,
    cookies with a line feed."""
    found: dict[str, str] = {}
    if status_line is not None:
        found["response"] = status_line
    restored = {key.lower().removeprefix(_REWRITTEN) for key, _ in headers if key.lower().startswith(_REWRITTEN)}
    for key, value in headers:
        name = key.lower()
        if name in restored:
            continue
        name = name.removeprefix(_REWRITTEN)
        glue = "\n" if name == "set-cookie" else ", "
        found[name] = found[name] + glue + value if name in found else value
    return found


def header_list(headers: Headers) -> list[dict[str, str]]:
    """Every header as archived, in order."""
    return [{"name": name, "value": value} for name, value in headers]


def was_gzip(headers: Headers) -> bool:
    """Whether the body travelled gzipped."""
    coding = header(headers, "content-encoding")
    return coding is not None and "gzip" in coding.lower()


def original_length(headers: Headers) -> int | None:
    """The Content-Length the server sent, in bytes on the wire, ``None`` where it is missing or no number."""
    value = (header(headers, "content-length") or "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= _MAX_LENGTH_DIGITS else None
