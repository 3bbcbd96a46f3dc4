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

#: The first bytes of files, and their media types.
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/vnd.microsoft.icon"),
    (b"PK\3\4", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"\x7fELF", "application/x-elf"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"OggS\0", "application/ogg"),
    (b"fLaC\0", "audio/flac"),
    (b"FLV\1", "video/x-flv"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"wOFF\0", "font/woff"),
    (b"wOF2\0", "font/woff2"),
    (b"\0asm\1\0\0\0", "application/wasm"),
    (b"{\\rtf", "application/rtf"),
    (b"%!PS-Adobe", "application/postscript"),
)
#: The same for files with a number in between.
_PATTERNS = (
    (re.compile(rb"RIFF.{4}(?:WEBP|AVI |WAVE)", re.DOTALL), "application/x-riff"),
    (re.compile(rb"\0.{3}ftyp", re.DOTALL), "video/mp4"),
    (re.compile(rb"ID3[\2-\4]\0", re.DOTALL), "audio/mpeg"),
    (re.compile(rb"[FCZ]WS[\1-\x30].{2}[\0-\x7f]\0", re.DOTALL), "application/x-shockwave-flash"),
    (re.compile(rb"BZh[1-9]1AY&SY", re.DOTALL), "application/x-bzip2"),
)
_BINARY_FAMILIES = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip", "application/gzip")
_SPACE = b" \t\r\n\f"
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
    if binary_type(payload, plain) is not None or not plain[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").strip():
        return False
    return begins_as_markup(plain) or not is_program(mime)


def is_binary(payload: bytes, plain: bytes, detected: str | None) -> bool:
    """Whether a body of a textual type is no text: by its first bytes, or by the type the crawl ``detected`` unless the
    bytes contradict it."""
    if binary_type(payload, plain) is not None:
        return True
    head = plain[: 4 * _HEAD_BYTES]
    return (
        detected is not None
        and detected.startswith(_BINARY_FAMILIES)
        and len(head.translate(None, _CONTROLS)) < len(head)
    )


def binary_type(payload: bytes, plain: bytes) -> str | None:
    """Returns the media type of a file that is no text, by its first bytes; ``application/octet-stream`` for bytes with
    too many control characters; ``None`` if it may be text."""
    head = payload[:_HEAD_BYTES]
    start = head.lstrip(_SPACE)
    for mark, kind in _MAGIC:
        if head.startswith(mark) or (mark[:1] == b"%" and start.startswith(mark)):
            return kind
    for pattern, kind in _PATTERNS:
        if pattern.match(head):
            return kind
    head = plain[:_HEAD_BYTES]
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls > len(head) * _CONTROL_SHARE and controls > 1:
        return "application/octet-stream"
    return None
