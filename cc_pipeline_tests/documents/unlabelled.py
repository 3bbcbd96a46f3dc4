"""Documents of the corpus whose folder names their charset, and their right text."""

from __future__ import annotations

from cc_pipeline_tests.corpus import CORPUS

#: Folder names that Python's codecs spell otherwise, or of which the web means a superset.
_CODECS = {
    "gb2312": "gb18030",
    "tis-620": "cp874",
    "euc-kr": "cp949",
    "shift_jis": "cp932",
    "maccyrillic": "mac-cyrillic",
}
_LANGUAGES = ("hungarian", "bulgarian", "russian", "greek", "slovak", "turkish", "hebrew")


def unlabelled_documents() -> list[tuple[bytes, str]]:
    """(bytes, text without a byte order mark)."""
    found = []
    for path in sorted((CORPUS / "charset" / "chardet").glob("*/*")):
        charset = path.parent.name.lower()
        for language in _LANGUAGES:
            charset = charset.removesuffix(f"-{language}")
        data = path.read_bytes()
        found.append((data, data.decode(_CODECS.get(charset, charset), "replace").lstrip("\ufeff")))
    return found
