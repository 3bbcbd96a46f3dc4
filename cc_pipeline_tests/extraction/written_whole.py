"""SequenceFiles of 2012, which are read whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cc_pipeline_tests.archive.sequencefile_writer import write_sequencefile

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


def sequencefile(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_bytes(write_sequencefile(pairs))
    return path
