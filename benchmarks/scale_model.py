"""What two large jobs would cost, computed: requests, bytes, core hours, dollars, hours. ``docs/scale.md`` shows it.

    python -m benchmarks.scale_model          the tables of that page, and what goes in

Every figure that goes in is a measurement of ours or a published one; ``FIGURES`` says which, and whether it is an
assumption. Nothing here was run at this scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cc_pipeline.transport.rates import default_limits

_HTTPS, _BUCKET = default_limits("https://data.commoncrawl.org"), default_limits("s3://commoncrawl")
HOUR: Final = 3_600.0
TB, GB, KIB, MIB = 1e12, 1e9, 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that goes in. ``kind``: ``measured``, ``published`` or ``assumed``; ``source`` says where, and when."""

    value: float
    shown: str
    what: str
    kind: str
    source: str


_LOCATORS, _RECORDS = "[finding.md](finding.md#measured)", "[records.md](records.md#measured)"
_EMR = "AWS, *EMR best practices*, its example for x86 in us-west-2 (undated copy, read November 2026)"
_S3 = "c3x.dev, *S3 request fees explained* (read November 2026)"

FIGURES: Final[dict[str, Figure]] = {
    "crawl_captures": Figure(
        2_709_877_975, "2.71 billion", "captures of a crawl", "published",
        "rows of subset `warc` of CC-MAIN-2024-22 (Common Crawl's whirlwind tour)",
    ),
    "crawl_bytes": Figure(
        75 * TB, "75 TB", "a crawl's WARC files", "published", "arXiv 2404.09770 (April 2024): “on the order of 75TB”"
    ),
    "domain_captures": Figure(
        69, "69", "captures of a domain in a crawl", "published",
        "CC-MAIN-2024-51: 2.64 billion pages of 38.3 million registered domains (Common Crawl, December 2024); domains "
        "that people ask for have far more",
    ),
    "range_bytes": Figure(
        256 * MIB, "256 MiB", "a request for part of a file that is read whole", "assumed", "the most a task reads"
    ),
    "lookup_requests": Figure(
        14, "14", "requests of a look-up, all columns", "measured", f"{_LOCATORS}, a domain alone; sets share them"
    ),
    "lookup_bytes": Figure(6.8e6, "6.8 MB", "bytes of a look-up", "measured", "the same, of 850 rows"),
    "fetch_ms": Figure(
        2 / 1_500 * 1e3, "1.3 ms", "core time to fetch, check and store a record", "measured",
        f"{_RECORDS}: 1,500 a second on two cores that also carry the server, so it is less",
    ),
    "parse_ms": Figure(
        1e3 / 118 + 1e3 / 1_023, "9.5 ms", "core time to parse a page and make its rows", "measured",
        "`make bench-documents` in November 2026, on a loaded machine: 118 pages a second, 1,023 of rows; pages of 179 "
        "KB, where a crawl's have 160 on average",
    ),
    "spark_ms": Figure(
        2.1, "2.1 ms", "core time that Spark adds to a record and its page", "measured",
        "`make bench-engine`, the short form, [above](#measured), with what starts once; in the long form it was none",
    ),
    "table_bytes": Figure(
        30 * 1e3, "30 KB", "bytes of tables of a page, Parquet", "measured",
        "the same 87 pages, with 200 links each; in large files it is less",
    ),
    "public_rate": Figure(
        _HTTPS.rate or 0, f"{_HTTPS.rate:g} a second", "requests to data.commoncrawl.org", "assumed",
        "our default, once it is earned ([faults.md](faults.md#the-budget-and-the-breaker))",
    ),
    "bucket_rate": Figure(
        _BUCKET.rate or 0, f"{_BUCKET.rate:g} a second", "requests to the bucket, of all hosts", "assumed",
        "our default; more with a contact; Common Crawl asks for “a few thousand” of everyone together",
    ),
    "line": Figure(125e6, "1 Gbit/s", "a line from outside", "assumed", "whatever yours is"),
    "region_line": Figure(
        12.5 / 8 * GB, "12.5 Gbit/s", "a line inside us-east-1, for 16 cores", "assumed", "look at your instance type"
    ),
    "emr_core": Figure(0.052624, "$0.052624", "EMR Serverless, a vCPU-hour", "published", _EMR),
    "emr_gb": Figure(0.0057785, "$0.0057785", "EMR Serverless, a GB-hour", "published", "the same"),
    "core_gb": Figure(4, "4 GB", "memory a core", "assumed", "EMR Serverless' own default"),
    "ec2_core": Figure(
        1.008 / 16, "$0.063", "EC2 on demand, a vCPU-hour", "published", "the same: r5.4xlarge, $1.008 for 16 vCPU"
    ),
    "get": Figure(0.0004 / 1e3, "$0.0004", "a thousand GETs", "published", _S3),
    "put": Figure(0.005 / 1e3, "$0.005", "a thousand PUTs", "published", "the same"),
    "part_bytes": Figure(
        16 * MIB, "16 MiB", "bytes a PUT", "measured", "parts of an upload ([records.md](records.md#writing-to-s3))"
    ),
    "stored_month": Figure(
        0.023, "$0.023", "S3 Standard, a GB and month", "assumed", "no dated source was at hand; look it up"
    ),
}  # fmt: skip


def value(name: str) -> float:
    """A figure's number."""
    return FIGURES[name].value


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read: ``captures`` in ``crawls``, of ``domains`` each; ``whole``: all files from begin to end."""

    name: str
    crawls: int
    domains: int
    captures: float
    whole: bool = False

    @property
    def bytes(self) -> float:
        """Of records."""
        return self.captures * value("crawl_bytes") / value("crawl_captures")

    @property
    def lookups(self) -> float:
        """Requests to the index: each domain in each crawl by itself, which is the most it can be."""
        return 0 if self.whole else self.crawls * self.domains * value("lookup_requests")

    @property
    def requests(self) -> float:
        """All requests: of records one each, since those of a domain lie in as many files, or long ranges."""
        return self.lookups + (self.bytes / value("range_bytes") if self.whole else self.captures)

    @property
    def read(self) -> float:
        """Bytes read, the index with them."""
        return self.bytes + (0 if self.whole else self.crawls * self.domains * value("lookup_bytes"))

    @property
    def core_hours(self) -> float:
        """Of fetching and parsing."""
        return self.captures * (value("fetch_ms") + value("parse_ms")) / 1e3 / HOUR

    @property
    def written(self) -> float:
        """Bytes of stored records and tables."""
        return self.bytes + self.captures * value("table_bytes")


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is done: ``rate`` of requests a second for all, ``line`` in bytes a second for each 16 cores."""

    name: str
    rate: float
    line: float
    cores: int
    serverless: bool | None = None

    def core_hours(self, job: Job) -> float:
        """Of the job here: Spark takes its own."""
        return job.core_hours + (job.captures * value("spark_ms") / 1e3 / HOUR if self.serverless else 0)

    def hours(self, job: Job) -> dict[str, float]:
        """The hours that each limit alone would take."""
        return {
            "requests": job.requests / self.rate / HOUR,
            "line": job.read / (self.line * max(1, self.cores // 16)) / HOUR,
            "cores": self.core_hours(job) / self.cores,
        }

    def core_price(self) -> float:
        """Dollars of a core hour, with its memory."""
        if self.serverless is None:
            return 0.0
        return value("emr_core") + value("core_gb") * value("emr_gb") if self.serverless else value("ec2_core")

    def dollars(self, job: Job) -> dict[str, float]:
        """What cores cost until the job has ended, whether they work or wait for their turn to ask; and writing."""
        return {
            "cores": self.cores * max(self.hours(job).values()) * self.core_price(),
            "writing": job.written / value("part_bytes") * value("put"),
        }


DOMAINS: Final = Job("100,000 domains × 100 crawls", 100, 100_000, 100 * 100_000 * value("domain_captures"))
CRAWL: Final = Job("one whole crawl", 1, 0, value("crawl_captures"), whole=True)
JOBS: Final = (DOMAINS, CRAWL)
PLACES: Final = (
    Place("HTTPS, one machine of 16 cores, your own", value("public_rate"), value("line"), 16),
    Place("us-east-1, one host of 16 cores (EC2)", value("bucket_rate"), value("region_line"), 16, serverless=False),
    Place("us-east-1, Spark on 256 (EMR Serverless)", value("bucket_rate"), value("region_line"), 256, serverless=True),
)


def tables() -> str:
    """The tables of ``docs/scale.md``, as Markdown."""
    return "\n\n".join([_volumes(), *(_places(job) for job in JOBS)])


def _volumes() -> str:
    rows = [
        [
            job.name, _count(job.captures), _count(job.lookups), _count(job.requests), _tb(job.read),
            _count(job.core_hours), _money(job.requests * value("get")), _tb(job.written),
            _money(job.written / GB * value("stored_month")),
        ]
        for job in JOBS
    ]  # fmt: skip
    head = ["job", "captures", "requests to the index", "all requests", "read", "core hours", "GETs at list price"]
    return _table([*head, "written", "a month of keeping it"], rows)


def _places(job: Job) -> str:
    rows = []
    for place in PLACES:
        hours, dollars = place.hours(job), place.dollars(job)
        binding = max(hours, key=lambda limit: hours[limit])
        rows.append(
            [
                place.name, *(_hours(hours[limit]) for limit in ("requests", "line", "cores")),
                f"**{_hours(hours[binding])}** ({binding})",
                "yours" if place.serverless is None else _money(dollars["cores"]),
                "yours" if place.serverless is None else _money(dollars["writing"]),
            ]
        )  # fmt: skip
    return _table([job.name, "by requests", "by the line", "by cores", "takes", "cores", "PUTs"], rows)


def figures() -> str:
    """What goes in, and where each figure is from, as Markdown."""
    rows = [[figure.what, figure.shown, figure.kind, figure.source] for figure in FIGURES.values()]
    return _table(["what goes in", "", "", "from"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _count(number: float) -> str:
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:,.3g}{name}"
    return f"{number:,.0f}" if number < 1_000 else f"{round(number, -2):,.0f}"


def _tb(size: float) -> str:
    return f"{size / TB:,.0f} TB"


def _money(dollars: float) -> str:
    return f"${dollars:,.0f}" if dollars >= 1 else "under $1"


def _hours(hours: float) -> str:
    if hours < 1:
        return "under 1 h"
    return f"{hours:,.0f} h" if hours < 72 else f"{hours / 24:,.0f} days"


if __name__ == "__main__":
    print(tables(), figures(), sep="\n\n")
