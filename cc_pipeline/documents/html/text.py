"""The full text of a page, as in 2012, and its languages by CLD2: for search and for data sets."""

from __future__ import annotations

import re
from typing import NamedTuple

import pycld2

from cc_pipeline.documents.html.whitespace import collapsed

_PAIRS = """
aa:aar ab:abk af:afr ak:aka am:amh ar:ara as:asm ay:aym az:aze ba:bak be:bel bg:bul bh:bih bi:bis bn:ben bo:bod
br:bre bs:bos ca:cat co:cos cs:ces cy:cym da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est
eu:eus fa:fas fi:fin fj:fij fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau hi:hin hr:hrv
ht:hat hu:hun hy:hye ia:ina id:ind ie:ile ig:ibo ik:ipk is:isl it:ita iu:iku iw:heb he:heb ja:jpn jw:jav jv:jav
ka:kat kk:kaz kl:kal km:khm kn:kan ko:kor ks:kas ku:kur ky:kir la:lat lb:ltz lg:lug ln:lin lo:lao lt:lit lv:lav
mg:mlg mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya na:nau ne:nep nl:nld nn:nno no:nor nr:nbl ny:nya
oc:oci om:orm or:ori os:oss pa:pan pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron ru:rus rw:kin sa:san sd:snd
sg:sag si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:sqi sr:srp sr-ME:cnr ss:ssw st:sot su:sun sv:swe sw:swa
ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ug:uig uk:ukr ur:urd
uz:uzb ve:ven vi:vie vo:vol wo:wol xh:xho yi:yid yo:yor za:zha zh:zho zh-Hant:zho zu:zul
"""

#: Codes that CLD2 already returns with three letters.
_THREE_LETTER_CODES = """
ceb chr crs gaa haw hmn kha kri lif loz lua luo mfe new nso pam raj sco syr tlh tum war
"""

#: CLD2 code to ISO-639-3. Script-only guesses (``xx-Latn``) name no language and are absent.
ISO_639_3: dict[str, str] = dict(pair.split(":") for pair in _PAIRS.split()) | {
    code: code for code in _THREE_LETTER_CODES.split()
}

_SAMPLE_CHARS = 64 * 1024
#: CLD2 refuses control characters and half surrogate pairs outright.
_REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def full_text(title: str | None, description: str | None, body: str) -> str:
    """Returns the 2012 text of a page: title, meta description and body, white space collapsed."""
    parts = (collapsed(part) for part in (title, description) if part)
    return " ".join(part for part in (*parts, body) if part)


class Languages(NamedTuple):
    """``codes`` as in ``content_languages`` (``None`` if nothing was found), and CLD2's own confidence."""

    codes: str | None
    reliable: bool


def detect_languages(text: str, *, content_language: str | None = None) -> Languages:
    """Detects the languages of the first 64 Ki characters. ``content_language``, a header, counts only if the text is
    ambiguous. Never raises."""
    sample = text[:_SAMPLE_CHARS]
    if not sample.isprintable():  # refused characters are not printable, and this test is cheaper
        sample = _REFUSED.sub(" ", sample)
    hints: dict[str, str] = {}
    if content_language and content_language.isascii():
        hints["hintLanguageHTTPHeaders"] = content_language
    try:
        reliable, _, details = pycld2.detect(sample, isPlainText=True, **hints)
    except (pycld2.error, UnicodeError, ValueError):
        return Languages(None, False)
    codes = dict.fromkeys(ISO_639_3[code] for _, code, _, _ in details if code in ISO_639_3)
    return Languages(",".join(codes) or None, bool(reliable))
