"""The first member of a stored file: a warcinfo record, or an ARC file description."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping
from datetime import UTC, datetime

from warcio.warcwriter import WARCWriter

_ARC_FIELDS = b"1 0 cc_pipeline\nURL IP-address Archive-date Content-type Archive-length\n\n"


def segment_head(kind: str, name: str, info: Mapping[str, str]) -> bytes:
    """The bytes a new file of ``kind`` (``warc``, ``arc``, ``raw``) named ``name`` begins with.

    ``info`` goes into the warcinfo record: crawl, plan, software, source.
    """
    if kind == "warc":
        return _warcinfo(name, info)
    if kind == "arc":
        return _file_description(name, info)
    return b""


def _warcinfo(name: str, info: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    writer.write_record(writer.create_warcinfo_record(name, dict(info)))
    return out.getvalue()


def _file_description(name: str, info: Mapping[str, str]) -> bytes:
    """ARC version 1: what the file is stands behind the field names, as free text."""
    text = _ARC_FIELDS[:-1] + "".join(f"{key}: {value}\n" for key, value in info.items()).encode() + b"\n"
    now = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    line = f"filedesc://{name} 0.0.0.0 {now} text/plain {len(text)}\n".encode()
    return gzip.compress(line + text + b"\n", mtime=0)
