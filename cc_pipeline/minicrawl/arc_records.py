"""ARC version 1 records as the crawler of 2012 wrote them.

Source: the ARC file format (1996) and real records of 2012: the length counts everything behind the header line,
a final line feed included; HTTP headers have no blank behind the colon and still speak of encodings that the
stored body no longer has.
"""

from __future__ import annotations

from datetime import datetime

from cc_pipeline.minicrawl.exchange import Exchange


def file_description(name: str, created: datetime) -> bytes:
    """The first record of a file."""
    body = "1 0 CommonCrawl\nURL IP-address Archive-date Content-type Archive-length\n"
    return f"filedesc://{name} 0.0.0.0 {created:%Y%m%d%H%M%S} text/plain {len(body)}\n{body}\n".encode()


def arc_record(exchange: Exchange) -> bytes:
    """One capture. The HTTP ``Content-Length`` is the one that was sent, not that of the stored body."""
    headers = list(exchange.headers)
    if exchange.chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    else:
        headers.append(("Content-Length", str(exchange.wire_length)))
    if exchange.encoding is not None:
        headers.append(("Content-Encoding", exchange.encoding))
    if exchange.charset is not None:
        headers.append(("x-commoncrawl-DetectedCharset", exchange.charset))
    if exchange.truncated is not None:
        headers.append(("x-commoncrawl-ContentTruncated", "TruncatedInDownload"))
    lines = [exchange.status_line, *(f"{name}:{value}" for name, value in headers)]
    content = "\r\n".join(lines).encode() + b"\r\n\r\n" + exchange.body + b"\n"
    mime = exchange.mime or "unknown"
    line = f"{exchange.url} {exchange.server_ip} {exchange.fetched:%Y%m%d%H%M%S} {mime} {len(content)}\n"
    return line.encode() + content
