"""Files that are read whole, as Common Crawl writes them: 2012 SequenceFiles, and records of WAT and WET files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cc_pipeline.derived_files.sequencefile import SequenceFileWriter
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.publish.lake_pages import CRAWL

WARC_NAME = "CC-MAIN-20240517233122-20240518023122-00000"
WAT_KEY = f"crawl-data/{CRAWL}/segments/1715971057516.1/wat/{WARC_NAME}.warc.wat.gz"
WET_KEY = WAT_KEY.replace("/wat/", "/wet/").replace(".wat.", ".wet.")
#: A metadata document of 2012.
DOCUMENT: dict[str, Any] = {
    "attempt_time": 1328767770376,
    "disposition": "SUCCESS",
    "server_ip": "77.229.63.16",
    "http_result": 200,
    "http_headers": {"response": "HTTP/1.1 200 OK", "content-type": "text/html"},
    "parsed_as": "html",
    "content": {
        "type": "html-doc",
        "title": "Título",
        "links": [{"type": "a", "href": "http://www.example.com/next", "text": "next", "rel": "next"}],
    },
    "archiveInfo": {
        "arcSourceSegmentId": 1341690147253,
        "arcFileDate": 1341708194671,
        "arcFileParition": 0,
        "arcFileOffset": 156,
        "compressedSize": 9775,
    },
}


def sequencefile(path: Path, pairs: list[tuple[str, str]], **header: str) -> Path:
    with path.open("wb") as stream, SequenceFileWriter(stream, metadata=header.items()) as writer:
        for key, value in pairs:
            writer.append(key, value)
    return path


def wat_record(url: str, offset: int, record_type: str = "response", **html: Any) -> bytes:
    document = {
        "Container": {
            "Filename": f"{WARC_NAME}.warc.gz", "Offset": str(offset), "Gzip-Metadata": {"Deflate-Length": "423"},
        },
        "Envelope": {
            "WARC-Header-Metadata": {
                "WARC-Type": record_type, "WARC-Date": "2024-05-18T01:58:10Z", "WARC-Target-URI": url,
                "WARC-IP-Address": "203.0.113.7", "WARC-Payload-Digest": "sha1:ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
                "WARC-Identified-Payload-Type": "text/html",
            },
            "Payload-Metadata": {
                "HTTP-Response-Metadata": {
                    "Response-Message": {"Version": "HTTP/1.1", "Status": "200", "Reason": "OK"},
                    "Headers": {
                        "Content-Type": "text/html",
                        "X-Crawler-Content-Encoding": "gzip",
                        "X-Crawler-Content-Length": "1234",
                    },
                    "Entity-Length": "4096",
                    "HTML-Metadata": html or {
                        "Head": {
                            "Title": "T", "Base": "http://www.example.com/base/",
                            "Metas": [{"name": "description", "content": "D"}],
                            "Link": [{"path": "LINK@/href", "url": "/f.ico", "rel": "icon"}],
                        },
                        "Links": [
                            {"path": "A@/href", "url": "b", "text": "B", "title": "t"},
                            {"path": "A@/href", "url": "#top"},
                            {"path": "STYLE/#text", "href": "/c.css"},
                        ],
                    },
                }
            },
        },
    }  # fmt: skip
    fields = [("WARC-Type", "metadata"), ("WARC-Date", "2024-05-31T01:17:49Z"), ("Content-Type", "application/json")]
    return builders.warc(json.dumps(document).encode(), fields)


def wet_record(url: str, text: str, languages: str = "") -> bytes:
    fields = [("WARC-Type", "conversion"), ("WARC-Target-URI", url), ("WARC-Date", "2024-05-18T01:58:10Z")]
    if languages:
        fields.append(("WARC-Identified-Content-Language", languages))
    return builders.warc(text.encode(), fields)


def warcinfo(text: bytes = b"isPartOf: CC-MAIN-2016-50\r\n") -> bytes:
    return builders.warc(text, [("WARC-Type", "warcinfo"), ("WARC-Date", "2024-05-31T01:16:45Z")])
