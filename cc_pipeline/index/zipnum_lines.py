"""CDXJ lines to capture rows: ``SURT timestamp {json}``. The JSON's keys are an open set: unknown ones are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.errors import DataFault
from cc_pipeline.index.btree_locator import segment_of, subset_of

_TEXTS = {
    "mime": "content_mime_type",
    "mime-detected": "content_mime_detected",
    "charset": "content_charset",
    "languages": "content_languages",
    "truncated": "content_truncated",
    "redirect": "fetch_redirect",
}
_OTHERS = frozenset({"url", "status", "digest", "length", "offset", "filename"})
_INT64 = 1 << 63


def capture_of(line: bytes, source: str, offset: int) -> Mapping[str, Any]:
    """The columns of ``CAPTURE_SCHEMA`` that a line says or implies.

    Raises ``DataFault`` (``source``, ``offset`` of its member) for a line that names no place in an archive.
    """
    key, _, rest = line.partition(b" ")
    stamp, _, text = rest.partition(b" ")
    try:
        said = json.loads(text)
    except ValueError as error:
        raise DataFault(source, offset, f"the line of {key[:200]!r} has no JSON ({error})") from error
    if not isinstance(said, dict):
        raise DataFault(source, offset, f"the line of {key[:200]!r} has no JSON object")
    file = said.get("filename")
    if not isinstance(file, str) or not file:
        raise DataFault(source, offset, f"the line of {key[:200]!r} names no file")
    url = said.get("url")
    url = url if isinstance(url, str) else ""
    columns = host_columns(url)
    extra = {name: value for name, value in said.items() if name not in _TEXTS and name not in _OTHERS}
    moment = _moment(stamp)
    if moment is None:
        extra["timestamp"] = stamp.decode("utf-8", "backslashreplace")
    return {
        **columns,
        **{column: _text(said.get(name)) for name, column in _TEXTS.items()},
        "subset": subset_of(file),
        "url_surtkey": key.decode("utf-8", "backslashreplace"),
        "url": url,
        "fetch_time": moment,
        "fetch_status": _status(said.get("status")),
        "content_digest": _digest(said.get("digest")),
        "warc_filename": file,
        "warc_record_offset": _number(said, "offset", key, source, offset),
        "warc_record_length": _number(said, "length", key, source, offset),
        "warc_segment": segment_of(file),
        "domain": columns["url_host_registered_domain"] or columns["url_host_name"] or None,
        "archive_format": "arc" if ".arc" in file.rpartition("/")[2] else "warc",
        "extra_columns": [(name, _text(value)) for name, value in extra.items()] or None,
    }


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value if value is None else value.encode("utf-8", "backslashreplace").decode()
    return json.dumps(value, ensure_ascii=False)


def _digest(value: object) -> str | None:
    return _text(value.removeprefix("sha1:")) if isinstance(value, str) else None


def _status(value: object) -> int:
    """The status as the columnar index has it: -1 where there is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else -1


def _moment(stamp: bytes) -> datetime | None:
    try:
        return datetime.strptime(stamp.decode("ascii"), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _number(said: Mapping[str, Any], name: str, key: bytes, source: str, offset: int) -> int:
    text = str(said.get(name, ""))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _INT64):
        raise DataFault(source, offset, f"the line of {key[:200]!r} has the {name} {text[:50]!r}")
    return int(text)
