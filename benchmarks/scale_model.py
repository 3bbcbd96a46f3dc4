"""What two large jobs would cost, computed: requests, bytes, core hours, dollars, hours. ``docs/scale.md`` shows it.

    python -m benchmarks.scale_model          the tables of that page, and what goes in

How many requests captures take, and what is read, is what the planner of a fetch says of files that are drawn
(``Share``). Every other figure that goes in is a measurement of ours or a published one; ``FIGURES`` says which, and
whether it is an assumption. Nothing here was run at this scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from cc_pipeline.lake.layout import FILE_BYTES
from cc_pipeline.records.range_plan import FetchPrice, price_of
from cc_pipeline.records.segments import DEFAULT_ROTATION
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
    "crawl_files": Figure(
        90_000, "90,000", "WARC files of a crawl", "assumed",
        "their path lists have about as many lines; half as many files of twice the size change little"
    ),
    "between_bytes": Figure(
        1_000, "1 KB", "between two captures of a file", "assumed", "the record of the request, and that of metadata"
    ),
    "spread": Figure(
        1, "1", "sigma of the sizes of records, lognormal", "assumed",
        "their mean is that of the crawl; which captures of a file are wanted is drawn, each as likely as any",
    ),
    "lookup_requests": Figure(
        14, "14", "requests of a look-up, all columns", "measured", f"{_LOCATORS}, a domain alone; sets share them"
    ),
    "lookup_bytes": Figure(6.8e6, "6.8 MB", "bytes of a look-up", "measured", "the same, of 850 rows"),
    "fetch_ms": Figure(
        2 / 1_500 * 1e3, "1.3 ms", "core time to fetch, check and store a record", "measured",
        f"{_RECORDS}: 1,500 a second on two cores that also carry the server, so it is less",
    ),
    "locate_us": Figure(
        23, "23 µs", "core time to locate a capture, in one process", "measured",
        "`python -m benchmarks.large_target`, a million captures of one target, November 2026",
    ),
    "take_ms": Figure(
        0.46, "0.46 ms", "core time of the one process that fetches, checks and stores a record", "measured",
        "`python -m benchmarks.range_bounds`, 16,353 records that lie together, November 2026: 0.45 to 0.60 on a "
        "machine with 16 others at work; threads beside it do a part where there are cores",
    ),
    "hand_ms": Figure(
        0.33, "0.33 ms", "core time of the one process that hands a page to parsers and keeps its rows", "measured",
        "600 pages of 47 KB, two parsers, November 2026: 0.33 and 0.56 on a machine with 16 others at work, where "
        "parsing took 15 to 16",
    ),
    "analyst_ms": Figure(
        0.38, "0.38 ms", "a question to a view, for each file of its table", "measured",
        "3.8 s at 10,000 files that upkeep has not merged",
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
        "our default ([faults.md](faults.md#the-budget-and-the-breaker))",
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


#: Files that are drawn, and wanted captures that are in them together at least.
_FILES, _WANTED = 4, 4_000


@cache
def planned(share: float) -> FetchPrice:
    """What a crawl costs of which this share of captures is wanted, wherever they lie: a fetch's own planner is asked
    about files that are drawn, and the rest of the crawl is like them."""
    captures, files = value("crawl_captures"), value("crawl_files")
    each = round(captures / files)
    mean = value("crawl_bytes") / captures - value("between_bytes")
    draw = np.random.default_rng(27)
    drawn = max(_FILES, int(_WANTED / (each * share)) + 1)
    total = FetchPrice(0, 0, 0, 0, 0)
    for number in range(drawn):
        sigma = value("spread")
        lengths = draw.lognormal(np.log(mean) - sigma**2 / 2, sigma, each).astype(np.int64) + 1
        offsets = np.cumsum(lengths + int(value("between_bytes"))) - lengths
        wanted = np.sort(draw.choice(each, max(1, round(each * share)), replace=False))
        total += price_of(_captures(f"f{number}", offsets[wanted], lengths[wanted]))
    times = captures * share / total.captures
    return FetchPrice(
        round(captures * share), round(files), *(round(n * times) for n in (total.requests, total.bytes)),
        round(total.record_bytes * times),
    )  # fmt: skip


def _captures(key: str, offsets: np.ndarray, lengths: np.ndarray) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(offsets), np.int32)), [key])
    return pa.table({"warc_filename": names, "warc_record_offset": offsets, "warc_record_length": lengths})


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read: ``share`` of the captures of each of ``crawls``, those of ``domains``."""

    name: str
    crawls: int
    domains: int
    share: float

    @property
    def captures(self) -> float:
        return self.crawls * self.share * value("crawl_captures")

    @property
    def price(self) -> FetchPrice:
        """Of the records of one crawl."""
        return planned(self.share)

    @property
    def bytes(self) -> float:
        """Of records."""
        return self.crawls * self.price.record_bytes

    @property
    def lookups(self) -> float:
        """Requests to the index: each domain in each crawl by itself, which is the most it can be."""
        return self.crawls * self.domains * value("lookup_requests")

    @property
    def requests(self) -> float:
        """All requests."""
        return self.lookups + self.crawls * self.price.requests

    @property
    def read(self) -> float:
        """Bytes read, the index with them."""
        return self.crawls * (self.price.bytes + self.domains * value("lookup_bytes"))

    @property
    def core_hours(self) -> float:
        """Of fetching and parsing."""
        return self.captures * (value("fetch_ms") + value("parse_ms")) / 1e3 / HOUR

    @property
    def table_bytes(self) -> float:
        """Bytes of tables."""
        return self.captures * value("table_bytes")

    @property
    def written(self) -> float:
        """Bytes of stored records and tables."""
        return self.bytes + self.table_bytes

    @property
    def files(self) -> float:
        """Files of all tables, once upkeep has merged what is small."""
        return self.table_bytes / FILE_BYTES


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
            "the home": job.captures * self.home_ms / 1e3 / HOUR,
            "line": job.read / (self.line * max(1, self.cores // 16)) / HOUR,
            "cores": self.core_hours(job) / self.cores,
        }

    @property
    def home_ms(self) -> float:
        """Of its one process, for a capture: Spark's workers fetch and keep rows themselves."""
        return value("locate_us") / 1e3 + (0 if self.serverless else value("take_ms") + value("hand_ms"))

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


DOMAINS: Final = Job(
    "100,000 domains × 100 crawls", 100, 100_000, 100_000 * value("domain_captures") / value("crawl_captures")
)
CRAWL: Final = Job("one whole crawl", 1, 0, 1.0)
JOBS: Final = (DOMAINS, CRAWL)
#: Parts of a crawl, whichever captures they are.
SHARES: Final = (0.0001, 0.001, 0.01, 0.1, 0.5, 1.0)
#: Files of a table that a home was measured with: what it is for, of all tables together.
MANY_FILES: Final = 10_000
PLACES: Final = (
    Place("HTTPS, one machine of 16 cores, your own", value("public_rate"), value("line"), 16),
    Place("us-east-1, one host of 16 cores (EC2)", value("bucket_rate"), value("region_line"), 16, serverless=False),
    # fewer workers than requests at the same time, as ``doctor`` wants it
    Place("us-east-1, Spark on 112 (EMR Serverless)", value("bucket_rate"), value("region_line"), 112, serverless=True),
)


def tables() -> str:
    """The tables of ``docs/scale.md``, as Markdown."""
    return "\n\n".join([_volumes(), *(_places(job) for job in JOBS), _shares(), _homes()])


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
                place.name, *(_hours(hours[limit]) for limit in ("requests", "line", "cores", "the home")),
                f"**{_hours(hours[binding])}** ({binding})",
                "yours" if place.serverless is None else _money(dollars["cores"]),
                "yours" if place.serverless is None else _money(dollars["writing"]),
            ]
        )  # fmt: skip
    return _table([job.name, "by requests", "by the line", "by cores", "by the home", "takes", "cores", "PUTs"], rows)


def _shares() -> str:
    rows = []
    for share in SHARES:
        price, job = planned(share), Job("", 1, 0, share)
        hours = [place.hours(job) for place in PLACES]
        rows.append(
            [
                f"{share * 100:g} %" if share < 1 else "all of it", _count(price.captures), _count(price.requests),
                f"{price.captures / price.requests:,.1f}", _percent(price.bytes / value("crawl_bytes")),
                *(_hours(max(each.values())) for each in hours), _count(job.files),
            ]
        )  # fmt: skip
    head = ["share of a crawl", "captures", "requests", "captures a request", "of its bytes read"]
    return _table([*head, "HTTPS", "EC2", "Spark", "files of all tables"], rows)


def _homes() -> str:
    rows = [
        [
            job.name, *_alone(job.captures), _count(job.bytes / DEFAULT_ROTATION),
            _count(job.files), _minutes(job.files * value("analyst_ms") / 1e3),
        ]
        for job in JOBS
    ]  # fmt: skip
    pages = MANY_FILES * FILE_BYTES / value("table_bytes")
    opened = _minutes(MANY_FILES * value("analyst_ms") / 1e3)
    rows.append([f"what a home is for: {_count(pages)} pages", *_alone(pages), "", _count(MANY_FILES), opened])
    head = ["what the one home does", "locating", "fetching", "handing pages on", "files of records"]
    return _table([*head, "files of all tables", "a question that opens all"], rows)


def _alone(captures: float) -> list[str]:
    """Hours of the one process that keeps a home, without an engine beside it."""
    each = (value("locate_us") / 1e3, value("take_ms"), value("hand_ms"))
    return [_hours(captures * ms / 1e3 / HOUR) for ms in each]


def _percent(part: float) -> str:
    return f"{part * 100:.0f} %" if part > 0.1 else f"{part * 100:.2g} %"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:,.0f} min"


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
