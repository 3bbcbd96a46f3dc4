"""The languages of a text, named as Common Crawl's index names them.

CLD2 finds up to three; the index lists their ISO-639-3 codes, separated by commas, best first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pycld2

from cc_pipeline.documents.iso639 import ISO_639_3

_SAMPLE_CHARS = 64 * 1024
#: CLD2 refuses control characters and half surrogate pairs outright.
_REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Languages(NamedTuple):
    """``codes`` as in ``content_languages`` (``None`` where nothing was found), and CLD2's own trust in them."""

    codes: str | None
    reliable: bool


def detect_languages(text: str, *, content_language: str | None = None, tld: str | None = None) -> Languages:
    """Looks at the first 64 Ki characters. The hints (a Content-Language header, a top-level domain) only weigh
    where the text leaves room. Never raises."""
    sample = _REFUSED.sub(" ", text[:_SAMPLE_CHARS])
    hints: dict[str, str] = {}
    if content_language and content_language.isascii():
        hints["hintLanguageHTTPHeaders"] = content_language
    if tld and tld.isascii():
        hints["hintTopLevelDomain"] = tld
    try:
        reliable, _, details = pycld2.detect(sample, isPlainText=True, **hints)
    except (pycld2.error, UnicodeError, ValueError):
        return Languages(None, False)
    codes = dict.fromkeys(ISO_639_3[code] for _, code, _, _ in details if code in ISO_639_3)
    return Languages(",".join(codes) or None, bool(reliable))
