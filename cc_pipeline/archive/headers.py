"""Lines of ``Name: value`` as WARC, ARC and HTTP headers have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cc_pipeline.archive.record import Headers

_PLAIN_FIELD = re.compile(r"\r\n([^:\s][^:\r\n]*):[ \t]*([^\r\n]*)")


class FieldLines(NamedTuple):
    """The first line, the fields in order, and what was odd about the lines."""

    first: str
    fields: Headers
    lf_only: bool
    folded: bool
    malformed: bool


def header_end(data: bytes, start: int = 0, stop: int | None = None) -> tuple[int, int]:
    """(end of the last header line's text, begin of what follows the empty line); (-1, -1) if there is none."""
    stop = len(data) if stop is None else stop
    crlf = data.find(b"\n\r\n", start, stop)
    bare = data.find(b"\n\n", start, stop if crlf < 0 else crlf + 1)
    if bare >= 0:
        return bare, bare + 2
    return (crlf, crlf + 3) if crlf >= 0 else (-1, -1)


def split_fields(block: bytes) -> FieldLines:
    """Split a header block (without the empty line) into its first line and its fields.

    A folded line is joined to the one before with one space; a line without a colon is kept under an empty name.
    """
    text = block.decode("latin-1").rstrip("\r ")
    fields = _PLAIN_FIELD.findall(text)
    if not len(fields) == text.count("\n") == text.count("\r"):
        return _split_odd_fields(text)
    if " \r" in text or " :" in text or "\t" in text:
        fields = [(name.strip(), value.strip(" \t")) for name, value in fields]
    return FieldLines(text.partition("\r\n")[0], tuple(fields), False, False, False)


def _split_odd_fields(text: str) -> FieldLines:
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    folded = malformed = False
    fields: list[tuple[str, str]] = []
    for line in lines[1:]:
        if line[:1] in (" ", "\t"):
            folded = True
            if fields:
                last, before = fields[-1]
                fields[-1] = (last, f"{before} {line.strip()}".strip())
                continue
        name, colon, value = line.partition(":")
        if colon and name.strip():
            fields.append((name.strip(), value.strip(" \t")))
        elif line:
            malformed = True
            fields.append(("", line))
    return FieldLines(lines[0], tuple(fields), "\n" in text and "\r\n" not in text, folded, malformed)


def first_values(fields: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Lower-cased name to the first value it has."""
    return {name.lower(): value for name, value in reversed(fields)}


def media_type(value: str | None) -> str | None:
    """``text/html; charset=x`` to ``text/html``; ``None`` where nothing is left."""
    if value is None:
        return None
    return value.partition(";")[0].strip().lower() or None


def decode_url(raw: str) -> tuple[str, bool]:
    """A URL out of latin-1 decoded header text: (UTF-8 where the bytes are, is it odd?)."""
    if raw.isascii():
        return raw, not raw.isprintable() or " " in raw
    try:
        url = raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return raw, True
    return url, " " in url


def lost_carriage_returns(block: bytes, declared: int) -> bool:
    """Whether ``block`` can be ``declared`` bytes of text with CR LF line ends after a conversion to LF.

    What ends a record may be counted in ``block``, so a few bytes more than lines are allowed for.
    """
    return b"\r" not in block and 0 < declared - len(block.rstrip(b"\n")) <= block.count(b"\n") + 4
