"""Names of archive files of all years are keys of today, one by one and as a column; others stay as they are."""

from __future__ import annotations

import pyarrow as pa

from cc_pipeline.commoncrawl.paths import OLD_FOLDER, todays_key, todays_keys

KEYS = (
    "crawl-data/CC-MAIN-2015-35/segments/1440644059455.0/warc/CC-MAIN-20150827025419-00000-ip.warc.gz",
    "crawl-001/2008/06/25/11/1214440586619_11.arc.gz",
    "crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
    "parse-output/segment/1346876860567/1346913882801_4096.arc.gz",
    "projects/CC-SUPPLEMENTAL/segments/1/warc/a.warc.gz",
    "cc-index/collections/CC-MAIN-2015-35/indexes/cluster.idx",
)
#: What somebody may really have in a folder of this name, or what only looks like it.
OTHERS = (
    "common-crawl/mine/crawl-data/a.warc.gz",
    "common-crawl/crawl-003/a.arc.gz",
    "common-crawl/crawl-data",
    "common-crawl/common-crawl/crawl-data/a.warc.gz",
    "my/common-crawl/crawl-data/a.warc.gz",
    "Common-Crawl/crawl-data/a.warc.gz",
    "crawl-data/common-crawl/crawl-data/a.warc.gz",
    "file:///home/common-crawl/crawl-data/a.warc.gz",
    "",
)


def test_names_of_any_year_are_keys_of_today_one_by_one_and_as_a_column() -> None:
    names = [*KEYS, *(OLD_FOLDER + key for key in KEYS), *OTHERS]
    expected = [*KEYS, *KEYS, *OTHERS]
    assert [todays_key(name) for name in names] == expected
    names, expected = [None, *names], [None, *expected]
    assert todays_keys(pa.array(names, pa.string())).to_pylist() == expected
    assert todays_keys(pa.chunked_array([names, []], pa.string())).to_pylist() == expected
