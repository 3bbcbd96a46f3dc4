"""From a WARC record's header and block to an ``ArchivedRecord``."""

from __future__ import annotations

from cc_pipeline.archive import digests
from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.chunked import dechunked
from cc_pipeline.archive.dates import warc_date
from cc_pipeline.archive.headers import decode_url, first_values, media_type
from cc_pipeline.archive.http import HttpMessage, parse_request, parse_response
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.archive.warcheader import WarcHeader

_TYPES = frozenset(("warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation"))
_NO_URL = frozenset(("warcinfo", "metadata", "unknown"))
_HTTP_TYPES = frozenset(("response", "revisit", "request"))


def build_record(
    header: WarcHeader, data: bytes, start: int, stop: int, source: str, odd: tuple[str, ...] = ()
) -> ArchivedRecord:
    """Make the record of a header and its complete block ``data[start:stop]``; ``odd`` are flags found so far."""
    values = header.values
    found = [*header.flags, *odd]
    record_type = values.get("warc-type", "").lower()
    if record_type not in _TYPES:
        record_type = record_type or "unknown"
        found.append(flag.UNKNOWN_TYPE)
    url = _url(values.get("warc-target-uri"), record_type, found)
    time, plain = warc_date(values.get("warc-date", ""))
    if not plain:
        found.append(flag.UNREADABLE_DATE if time is None else flag.ODD_DATE)
    message = _message(record_type, values, url, data, start, stop)
    http: dict[str, str] = {}
    claimed = digests.declared(values.get("warc-payload-digest"))
    if message is None:
        payload = data[start:stop]
        mime = values.get("content-type")
        claimed = claimed or digests.declared(values.get("warc-block-digest"))
    else:
        payload = message.body
        http = first_values(message.headers)
        mime = http.get("content-type")
        found += message.flags
    computed = digests.sha1_base32(payload)
    if claimed != computed and record_type != "revisit":
        if message is not None and payload[:2] == b"\r\n" and _surplus_crlf(payload, claimed, http, source):
            payload = payload[2:]
            computed = digests.sha1_base32(payload)
            found.append(flag.EXTRA_CRLF)
        if claimed is not None and claimed != computed and "warc-segment-number" not in values:
            verdict = _digest_flag(claimed, payload, computed, http, None if message is None else data[start:stop])
            found += verdict
    return ArchivedRecord(
        container="warc",
        record_type=record_type,
        url=url,
        fetch_time=time,
        server_ip=values.get("warc-ip-address") or None,
        record_headers=header.fields,
        http_status=None if message is None else message.status,
        http_status_line=None if message is None else message.start_line,
        http_headers=() if message is None else message.headers,
        payload=payload,
        payload_digest=computed,
        declared_digest=claimed,
        truncated=_truncated(values),
        declared_mime=media_type(mime),
        flags=tuple(dict.fromkeys(found)),
    )


def _url(raw: str | None, record_type: str, found: list[str]) -> str:
    if not raw:
        if record_type not in _NO_URL:
            found.append(flag.MISSING_URL)
        return ""
    if raw.startswith("<") and raw.endswith(">"):
        raw = raw[1:-1]
        found.append(flag.BRACKETED_URL)
    url, odd = decode_url(raw)
    if odd:
        found.append(flag.ODD_URL)
    return url


def _message(
    record_type: str, values: dict[str, str], url: str, data: bytes, start: int, stop: int
) -> HttpMessage | None:
    if record_type not in _HTTP_TYPES or start == stop:
        return None
    kind = media_type(values.get("content-type"))
    if kind == "application/http" or (kind is None and url[:4].lower() == "http"):
        parse = parse_request if record_type == "request" else parse_response
        return parse(data, start, stop)
    return None


def _surplus_crlf(payload: bytes, claimed: str | None, http: dict[str, str], source: str) -> bool:
    """CC-MAIN-2018-34 wrote one CRLF too many behind the HTTP header; the digest or the length tells."""
    if claimed is not None and digests.matches(claimed, payload[2:], digests.sha1_base32(payload[2:])):
        return True
    wanted = str(len(payload) - 2)
    return "CC-MAIN-2018-34" in source and http.get("content-length", wanted) == wanted


def _digest_flag(
    claimed: str, payload: bytes, computed: str, http: dict[str, str], block: bytes | None
) -> tuple[str, ...]:
    verdict = digests.matches(claimed, payload, computed)
    if verdict is None:
        return (flag.DIGEST_UNKNOWN,)
    if verdict:
        return ()
    plain = dechunked(payload) if "chunked" in http.get("transfer-encoding", "").lower() else None
    if plain is not None and digests.matches(claimed, plain, digests.sha1_base32(plain)):
        return (flag.DIGEST_OF_DECHUNKED,)
    if block is not None and digests.matches(claimed, block, digests.sha1_base32(block)):
        return (flag.DIGEST_OF_BLOCK,)
    return (flag.DIGEST_MISMATCH,)


def _truncated(values: dict[str, str]) -> str | None:
    reason = values.get("warc-truncated")
    return None if reason is None else (reason.strip().lower() or "unspecified")
