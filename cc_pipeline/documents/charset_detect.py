"""The charset of bytes that nobody labelled: by their shape where that decides, else by statistics."""

from __future__ import annotations

import re
from typing import NamedTuple

from resiliparse.parse.encoding import detect_encoding

from cc_pipeline.documents.charset_labels import CODECS, encoding_for_label

_SAMPLE_BYTES = 256 * 1024
_NUL_SAMPLE = 4096
_NUL_SHARE = 0.3
_ASCII = bytes(range(128))

#: What text in a multi-byte charset is mostly made of; tried where statistics have no answer.
_SCRIPTS = (
    ("EUC-KR", re.compile("[\uac00-\ud7a3]")),
    ("Johab", re.compile("[\uac00-\ud7a3]")),
    ("EUC-JP", re.compile("[\u3040-\u30ff]")),
    ("Shift_JIS", re.compile("[\u3040-\u30ff]")),
    ("Big5", re.compile("[\u4e00-\u9fff]")),
    ("GBK", re.compile("[\u4e00-\u9fff]")),
)
_SCRIPT_SHARE = 0.5
#: An ISO charset has no letters where windows charsets have quotes and dashes.
_WINDOWS_TWIN = {
    "ISO-8859-2": "windows-1250",
    "ISO-8859-5": "windows-1251",
    "ISO-8859-7": "windows-1253",
    "ISO-8859-8": "windows-1255",
    "ISO-8859-15": "windows-1252",
}


class Detected(NamedTuple):
    """A charset's WHATWG name, and whether the bytes' shape alone decided."""

    charset: str
    by_shape: bool


def detect(payload: bytes) -> Detected | None:
    """The charset of unlabelled bytes, ``None`` where nothing speaks for any."""
    sample = payload[:_SAMPLE_BYTES]
    if not sample:
        return None
    if (wide := _wide(sample[:_NUL_SAMPLE])) is not None:
        return Detected(wide, True)
    if sample.isascii() or _valid_utf8(sample, whole=len(sample) == len(payload)):
        return Detected("UTF-8", True)
    high = sample.translate(None, _ASCII)
    if max(high) <= 0x9F and len(high) * 20 < len(sample):
        return Detected("windows-1252", False)  # quotes, dashes and dots in English text
    name = _guess(sample)
    if name in _WINDOWS_TWIN and any(0x80 <= byte <= 0x9F for byte in set(high)):
        name = _WINDOWS_TWIN[name]
    if name is None or not _decodes(sample, name):
        name = _by_script(sample) or name
    return Detected(name, False) if name else None


def _guess(sample: bytes) -> str | None:
    guess = detect_encoding(sample, max_len=len(sample), html5_compatible=False)
    return encoding_for_label(guess) or encoding_for_label(guess.replace("_", "-")) if guess else None


def _wide(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark, by where the zero bytes of ASCII characters lie."""
    if head.count(0) < len(head) * _NUL_SHARE:
        return None
    zeros = [head[place::4].count(0) * 4 / len(head) for place in range(4)]
    often = [share > _NUL_SHARE for share in zeros]
    names = {
        (False, True, True, True): "UTF-32LE",
        (True, True, True, False): "UTF-32BE",
        (False, True, False, True): "UTF-16LE",
        (True, False, True, False): "UTF-16BE",
    }
    name = names.get((often[0], often[1], often[2], often[3]))
    # a character above U+FFFF has no zero in the third byte, yet the fourth is always one
    return name if name is None or _decodes(head[: len(head) // 4 * 4], name) else None


def _valid_utf8(sample: bytes, *, whole: bool) -> bool:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return not whole and error.start >= len(sample) - 3
    return True


def _decodes(sample: bytes, name: str) -> bool:
    try:
        sample.decode(CODECS[name])
    except UnicodeDecodeError as error:
        return error.start >= len(sample) - 4 and len(sample) >= _SAMPLE_BYTES
    except UnicodeError:
        return False
    return True


def _by_script(sample: bytes) -> str | None:
    for name, letters in _SCRIPTS:
        try:
            text = sample.decode(CODECS[name])
        except UnicodeError:
            continue
        foreign = sum(1 for character in text if not character.isascii())
        if foreign and len(letters.findall(text)) >= _SCRIPT_SHARE * foreign:
            return name
    return None
