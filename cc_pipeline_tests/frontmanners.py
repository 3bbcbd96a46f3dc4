"""How a server answers what is in order: as S3 does, or with the manners of the front that stands before it.

Each of CloudFront's manners can be had alone, and so can those of other servers that hold the same objects.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from cc_pipeline_tests.faultbodies import error_xml
from cc_pipeline_tests.faultlies import is_archive, lied

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
class Manners:
    """The defaults are those of a plain S3 server. Times are seconds.

    An address that asks more than ``most`` times within ``window`` gets an HTML 403 for ``refused``, whatever it asks
    for; then its count begins anew. That happens at most ``waves`` times (``None``: always). ``front`` adds
    CloudFront's headers, ``missing`` is the form of a 404 (``xml``, ``html``). ``etags`` are ``strong``, ``weak``,
    ``two`` (by turns, as behind a load balancer) or ``none``, as of an object uploaded in ``parts``. A suffix range is
    answered by that ``part``, by the ``whole`` object, or ``refused`` with 416. Without ``totals`` no ``Content-Range``
    says how long the object is; without ``archives`` all files of records are missing. Each ``cut_every``-th answer
    ends in the midst of its body.
    """

    latency: float = 0.0
    most: int | None = None
    window: float = 60.0
    refused: float = 60.0
    waves: int | None = None
    front: bool = False
    missing: str = "xml"
    etags: str = "strong"
    parts: int = 1
    suffixes: str = "part"
    totals: bool = True
    archives: bool = True
    bytes_per_second: int | None = None
    cut_every: int | None = None

    def __post_init__(self) -> None:
        chosen = (self.missing, self.etags, self.suffixes)
        known = (("xml", "html"), ("strong", "weak", "two", "none"), ("part", "whole", "refused"))
        if wrong := [one for one, among in zip(chosen, known, strict=True) if one not in among]:
            raise ValueError(f"no such manners: {', '.join(wrong)}")


#: What is known of data.commoncrawl.org; how much it takes before it refuses is not.
CLOUDFRONT = Manners(latency=0.08, front=True, missing="html", parts=15)


@dataclass(slots=True)
class Front:
    """One server's manners, and what it has counted."""

    manners: Manners = field(default_factory=Manners)
    clock: Callable[[], float] = time.monotonic
    asked: dict[str, list[float]] = field(default_factory=dict)
    blocked: dict[str, float] = field(default_factory=dict)
    waves: int = 0
    answers: count[int] = field(default_factory=lambda: count(1))
    tags: dict[str, int] = field(default_factory=dict)

    def refuses(self, address: str) -> bool:
        """Whether this request of ``address`` is one too many, or comes while it is refused."""
        manners, now = self.manners, self.clock()
        if manners.most is None:
            return False
        if now < self.blocked.get(address, now):
            return True
        times = [at for at in self.asked.get(address, ()) if at > now - manners.window]
        self.asked[address] = [*times, now]
        if len(times) < manners.most or self.waves == manners.waves:
            return False
        self.waves += 1
        self.asked[address] = []
        self.blocked[address] = now + manners.refused
        return True

    def refusal(self) -> Reply:
        """What an address gets that asks too often."""
        return 403, self._dressed({"Content-Type": "text/html", "Server": "CloudFront"}, "Error"), _REFUSED

    def cuts(self) -> bool:
        """Whether this answer is to end early."""
        every = self.manners.cut_every
        return every is not None and next(self.answers) % every == 0

    def reply(self, root: Path, key: str, asked: str | None, lie: str | None = None) -> Reply:
        """The answer to a request of ``key``, of the file that has ``lie`` told about it; ``asked`` is the header."""
        path = root / key
        hidden = is_archive(key) and not self.manners.archives
        if hidden or ".." in key.split("/") or not path.is_file():
            return self.missing()
        content = path if lie is None else lied(lie, path)
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        fields = self._dressed(self._etag(key, size), "Miss")
        match = _RANGE.match(asked or "")
        if match is None or not any(match.groups()):
            return 200, fields, _part(content, 0, size)
        first, last = match.groups()
        if not first and self.manners.suffixes == "whole":
            return 200, fields, _part(content, 0, size)
        start = int(first) if first else max(0, size - int(last))
        stop = min(size, int(last) + 1) if first and last else size
        if start >= stop or (not first and self.manners.suffixes == "refused"):
            return 416, self._dressed({"Content-Range": f"bytes */{size}"}, "Error"), error_xml("InvalidRange")
        total = size if self.manners.totals else "*"
        return 206, {**fields, "Content-Range": f"bytes {start}-{stop - 1}/{total}"}, _part(content, start, stop)

    def missing(self) -> Reply:
        """The answer where nothing is."""
        if self.manners.missing == "html":
            return 404, self._dressed({"Content-Type": "text/html"}, "Error"), _MISSING
        return 404, self._dressed({"Content-Type": "application/xml"}, "Error"), error_xml("NoSuchKey")

    def _etag(self, key: str, size: int) -> dict[str, str]:
        manners = self.manners
        if manners.etags == "none":
            return {}
        turn = 0
        if manners.etags == "two":
            turn = self.tags[key] = 1 - self.tags.get(key, 1)
        etag = f'"{zlib.crc32(key.encode(), turn):08x}{size:x}-{manners.parts}"'
        return {"ETag": f"W/{etag}" if manners.etags == "weak" else etag}

    def _dressed(self, fields: dict[str, str], cache: str) -> dict[str, str]:
        if not self.manners.front:
            return fields
        return {**_FRONT, "X-Cache": f"{cache} from cloudfront", **fields}


def _part(content: Path | bytes, start: int, stop: int) -> bytes:
    if isinstance(content, bytes):
        return content[start:stop]
    with open(content, "rb") as file:
        return os.pread(file.fileno(), stop - start, start)
