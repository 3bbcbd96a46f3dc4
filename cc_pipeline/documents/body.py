"""The type of a body by its bytes, whatever its headers say: codings still applied, and files that are no text."""

from __future__ import annotations

import re

from cc_pipeline.codings import coding_tokens, decoded, undo
from cc_pipeline.documents.headers import Kind, begins_as_markup, content_type, is_program, root_element
from cc_pipeline.documents.page import Headers

#: The first bytes of compressed data, with the coding's name.
_CODED = ((b"\x1f\x8b\x08", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
#: Rounds of unpacking that no header declares: a server and the script behind it may each compress the body.
_HIDDEN_ROUNDS = 2

#: How files begin that are no text, also those with few control characters.
_BINARY_START = re.compile(
    rb"\s*%PDF-|\s*%!PS-Adobe|\{\\rtf|\x89PNG\r\n|GIF8[79]a|\xff\xd8\xff|II\*\0|MM\0\*|\0\0\x01\0|PK\x03\x04|\x1f\x8b\x08"
    rb"|\x28\xb5\x2f\xfd|\xfd7zXZ\0|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1|\x7fELF"
    rb"|SQLite format 3\0|OggS\0|fLaC\0|FLV\x01|\x1a\x45\xdf\xa3|wOF[F2]\0|\0asm\x01\0\0\0|RIFF.{4}(?:WEBP|AVI |WAVE)"
    rb"|\0.{3}ftyp|ID3[\2-\4]\0|[FCZ]WS[\1-\x30].{2}[\0-\x7f]\0|BZh[1-9]1AY&SY",
    re.DOTALL,
)
_BINARY_FAMILIES = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip", "application/gzip")
_HEAD_BYTES = 1024
#: Control characters that no text has (charsets of seven bits have three), and the share of them above which bytes are
#: no text; compressed bytes have a tenth.
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\f\r\x0e\x0f\x1b")
_CONTROL_SHARE = 0.05


def uncoded(payload: bytes, headers: Headers, limit: int, flags: set[str], *, archived_decoded: bool) -> bytes:
    """Returns a body without the transfer and content codings it still has, at most ``limit`` bytes.

    The bytes decide; headers only say which coding to try. ``archived_decoded``: the archive is known to keep the
    headers of codings that it removed. Adds to ``flags`` what was done, and where headers and bytes disagree.
    """
    if not payload:
        return payload
    decoding = decoded(payload, headers, limit)
    body, complete = decoding.body, decoding.complete
    undone = set(decoding.codings)
    if not archived_decoded and set(coding_tokens(headers, "content-encoding")) - undone:
        flags.add("coding_mismatch")
    for _ in range(_HIDDEN_ROUNDS):
        coding = next((name for mark, name in _CODED if body.startswith(mark)), None)
        is_page = _is_page(headers)
        result = undo(coding, body, limit) if coding and (is_page or _holds_document(coding, body)) else None
        if result is None:
            break
        body, complete = result[0], complete and result[1]
        if is_page and "gzip" not in undone:
            flags.add("coding_mismatch")
        undone.add(coding or "")
    if not undone:
        return payload
    flags.add("content_decoded")
    if not complete:
        flags.add("payload_cut" if len(body) >= limit else "coding_cut")
    return body


def _is_page(headers: Headers) -> bool:
    """Whether the type is one that no compressed file has."""
    mime = content_type(headers)[0]
    return mime is None or mime.startswith(
        ("text/", "application/xhtml", "application/xml", "application/rss", "application/atom")
    )


def _holds_document(coding: str, body: bytes) -> bool:
    """Whether a compressed file is a sitemap or a feed: sites publish those as compressed files."""
    for _ in range(_HIDDEN_ROUNDS):
        begin = undo(coding, body[:_HEAD_BYTES], _HEAD_BYTES)
        body = begin[0] if begin else b""
        if root_element(body) not in (None, "html"):
            return True
    return False


def is_unread_text(mime: str | None, kind: Kind, payload: bytes, plain: bytes) -> bool:
    """Whether a body is text although its type is not parsed: a file's type, or a program's if the body begins as
    markup. ``plain`` is the body as ``narrowed`` returns it, here and below."""
    if kind != "other" and not is_program(mime):
        return False
    if is_binary(payload, plain) or not plain[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").strip():
        return False
    return begins_as_markup(plain) or not is_program(mime)


def is_mislabelled_binary(payload: bytes, plain: bytes, detected: str | None) -> bool:
    """Whether a body of a textual type is no text: by its first bytes, or by the type the crawl ``detected`` unless the
    bytes contradict it."""
    has_controls = _count_controls(plain[: 4 * _HEAD_BYTES]) > 0
    return is_binary(payload, plain) or (
        detected is not None and detected.startswith(_BINARY_FAMILIES) and has_controls
    )


def is_binary(payload: bytes, plain: bytes) -> bool:
    """Whether a body is no text: by its first bytes, or since too many of them are control characters."""
    if _BINARY_START.match(payload):
        return True
    head = plain[:_HEAD_BYTES]
    return _count_controls(head) > max(len(head) * _CONTROL_SHARE, 1)


def _count_controls(head: bytes) -> int:
    return len(head) - len(head.translate(None, _CONTROLS))
