"""How a server answers what is in order: as S3 does, or with the manners of the front that stands before it.

Each of CloudFront's manners can be had alone, and so can those of other servers that hold the same objects.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

from cc_pipeline_tests.faultbodies import error_xml
from cc_pipeline_tests.faultlies import lied

#: Of Common Crawl's front, as its answers were seen by others.
_FRONT = {
    "Server": "AmazonS3",
    "Via": "1.1 0123456789abcdef.cloudfront.net (CloudFront)",
    "X-Amz-Cf-Pop": "FRA50-C1",
    "X-Amz-Cf-Id": "0123456789abcdef",
    "Accept-Ranges": "bytes",
}
_REFUSED = b"<html><head><title>403 Forbidden</title></head><body><h1>ERROR: Request blocked.</h1></body></html>\n"
_MISSING = b"<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1></body></html>\n"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")

#: A status, headers and a body.
Reply = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True, slots=True)
class Wave:
    """After ``after`` requests of keys that match ``key`` (shell pattern) every request gets ``status`` (503, 403) for
    ``seconds``. That happens once."""

    after: int
    seconds: float
    status: int = 503
    key: str = "*"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the front sees it. Header names are in lower case."""

    key: str
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Manners:
    """The defaults are those of a plain S3 server. Times are seconds.

    A firewall counts each address: it gets an HTML 403 for whatever it asks while more than ``most`` of its requests,
    refused ones too, came within the last ``window``. ``lone_503`` is the share of requests that get a 503, by chance.

    ``front`` adds CloudFront's headers, ``missing`` is the form of a 404 (``xml``, ``html``). ETags are those of
    objects uploaded in ``parts``. ``user`` and ``password`` are wanted as Basic authorization, ``query`` behind each
    address, where given.
    """

    latency: float = 0.0
    most: int | None = None
    window: float = 60.0
    front: bool = False
    missing: str = "xml"
    parts: int = 1
    lone_503: float = 0.0
    wave: Wave | None = None
    user: str = ""
    password: str = ""
    query: str = ""

    def __post_init__(self) -> None:
        if self.missing not in ("xml", "html"):
            raise ValueError(f"no such form of a 404: {self.missing}")

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Manners:
        """The manners that ``dataclasses.asdict`` made ``fields`` of."""
        wave = fields.get("wave")
        return cls(**{**fields, "wave": None if wave is None else Wave(**wave)})


#: What is known of data.commoncrawl.org; how much it takes before it refuses is not.
CLOUDFRONT = Manners(latency=0.08, front=True, missing="html", parts=15)


@dataclass(slots=True)
class Front:
    """One server's manners, and what it has counted."""

    manners: Manners = field(default_factory=Manners)
    asked: dict[str, deque[float]] = field(default_factory=dict)
    before_wave: int = 0
    wave_until: float | None = None
    chance: Random = field(default_factory=lambda: Random(7))

    def refuse(self, request: Request) -> tuple[Reply, str] | None:
        """The answer to a request that is not served whatever it asks for, and the reason in a word; else ``None``.

        A lone 503 is drawn for requests that nothing else refuses.
        """
        if self.is_blocked(request):
            return self._blocked(), "refused"
        if self._is_in_wave(request.key):
            assert self.manners.wave is not None
            return (self._blocked() if self.manners.wave.status == 403 else self._unavailable()), "wave"
        if self.manners.lone_503 and self.chance.random() < self.manners.lone_503:
            return self._unavailable(), "lone_503"
        return self._unauthorized(request)

    def is_blocked(self, request: Request) -> bool:
        """Whether this request of its address is one too many."""
        manners, now = self.manners, time.monotonic()
        if manners.most is None:
            return False
        times = self.asked.setdefault(request.address, deque())
        times.append(now)
        while times[0] <= now - manners.window:
            times.popleft()
        return len(times) > manners.most

    def _is_in_wave(self, key: str) -> bool:
        wave = self.manners.wave
        if wave is None:
            return False
        if self.wave_until is None and self.before_wave >= wave.after:
            self.wave_until = time.monotonic() + wave.seconds
        self.before_wave += fnmatchcase(key, wave.key)
        return self.wave_until is not None and time.monotonic() < self.wave_until

    def _unauthorized(self, request: Request) -> tuple[Reply, str] | None:
        manners = self.manners
        pair = b64encode(f"{manners.user}:{manners.password}".encode()).decode()
        if manners.user and request.headers.get("authorization") != f"Basic {pair}":
            return (401, {"WWW-Authenticate": "Basic"}, b""), "unauthorized"
        if manners.query and request.query != manners.query:
            return (403, {}, b""), "unauthorized"
        return None

    def _blocked(self) -> Reply:
        """The answer to an address that asks too often."""
        return 403, self._dressed({"Content-Type": "text/html", "Server": "CloudFront"}, "Error"), _REFUSED

    def _unavailable(self) -> Reply:
        """S3's answer where it cannot serve at once."""
        return 503, self._dressed({"Content-Type": "application/xml"}, "Error"), error_xml("SlowDown")

    def reply(self, root: Path, key: str, asked: str | None, lie: str | None = None) -> Reply:
        """The answer to a request of ``key``, of the file that has ``lie`` told about it; ``asked`` is the header."""
        path = root / key
        if ".." in key.split("/") or not path.is_file():
            return self.missing()
        content = path if lie is None else lied(lie, path)
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        fields = self._dressed(self._etag(key, size), "Miss")
        match = _RANGE.match(asked or "")
        if match is None or not any(match.groups()):
            return 200, fields, _part(content, 0, size)
        first, last = match.groups()
        start = int(first) if first else max(0, size - int(last))
        stop = min(size, int(last) + 1) if first and last else size
        if start >= stop:
            return 416, self._dressed({"Content-Range": f"bytes */{size}"}, "Error"), error_xml("InvalidRange")
        return 206, {**fields, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}, _part(content, start, stop)

    def missing(self) -> Reply:
        """The answer where nothing is."""
        if self.manners.missing == "html":
            return 404, self._dressed({"Content-Type": "text/html"}, "Error"), _MISSING
        return 404, self._dressed({"Content-Type": "application/xml"}, "Error"), error_xml("NoSuchKey")

    def _etag(self, key: str, size: int) -> dict[str, str]:
        return {"ETag": f'"{zlib.crc32(key.encode()):08x}{size:x}-{self.manners.parts}"'}

    def _dressed(self, fields: dict[str, str], cache: str) -> dict[str, str]:
        if not self.manners.front:
            return fields
        return {**_FRONT, "X-Cache": f"{cache} from cloudfront", **fields}


def _part(content: Path | bytes, start: int, stop: int) -> bytes:
    if isinstance(content, bytes):
        return content[start:stop]
    with open(content, "rb") as file:
        return os.pread(file.fileno(), stop - start, start)
