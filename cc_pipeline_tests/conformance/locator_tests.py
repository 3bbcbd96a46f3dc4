"""The test suite for locators: inherit :class:`LocatorTests`, and open a locator of the given captures."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.index.locator import REQUEST_BYTES, Locator, LookupResult
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.indexes import write_columnar, write_zipnum
from cc_pipeline.testing.mini_crawl.spec import spec_for
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline_tests.conformance.url_keys import KEYS

CRAWL: Final = "CC-MAIN-2024-22"
_PAGES: Final = 300
_TARGETS: Final = 25
#: SURT key, file, offset, length: compares two answers, since some indexes lose a fragment of a URL.
Place = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class IndexedBucket:
    """A bucket of one crawl, whose columnar index and ZipNum list ``captures``; ``home`` is an empty folder. The last
    captures of the crawl have the URLs of ``KEYS``."""

    root: Path
    home: Path
    captures: Sequence[Capture]


class LocatorTests:
    """Tests a locator: ``open_locator`` opens it for a bucket's captures. ``subsets`` are those it distinguishes."""

    subsets: tuple[str, ...] = SUBSETS

    def open_locator(self, bucket: IndexedBucket) -> AbstractContextManager[Locator]:
        """Opens a locator of ``CRAWL`` for the captures of the bucket's ``subsets``."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    def bucket(self, tmp_path_factory: pytest.TempPathFactory) -> IndexedBucket:
        """A crawl of some hundred captures, and one at each URL of ``KEYS``."""
        folder = tmp_path_factory.mktemp("indexed")
        spec = spec_for(_PAGES)
        spec = replace(spec, crawls=(spec.crawl(CRAWL),))
        truth = generate(folder / "bucket", spec)
        captures = [capture for capture in truth.captures_of(CRAWL) if capture.subset in self.subsets]
        pattern = next(capture for capture in captures if capture.subset == "warc")
        next_offset = max(capture.warc_record_offset for capture in captures) + 1
        captures += [
            replace(pattern, url=url_key.url, url_surtkey=url_key.key, warc_record_offset=next_offset + index)
            for index, url_key in enumerate(KEYS)
        ]
        [crawl] = spec.crawls
        for file in [*(folder / "bucket").rglob("*.parquet"), *(folder / "bucket").rglob("cdx-*.gz")]:
            file.unlink()
        write_columnar(folder / "bucket", spec, crawl, captures)
        write_zipnum(folder / "bucket", spec, crawl, captures)
        (folder / "home").mkdir()
        return IndexedBucket(folder / "bucket", folder / "home", captures)

    @pytest.fixture(scope="class")
    def locator(self, bucket: IndexedBucket) -> Iterator[Locator]:
        """The locator under test."""
        with self.open_locator(bucket) as opened:
            yield opened

    def test_each_url_is_found_by_its_key(self, locator: Locator, bucket: IndexedBucket) -> None:
        """The unusual URLs of bug reports are found too, and no other captures with them."""
        targets = [parse_target(f"url:{url_key.url}") for url_key in KEYS]
        answer = locator.locate(CRAWL, ["warc"], targets)
        key_captures = bucket.captures[-len(KEYS) :]
        for url_key, target in zip(KEYS, targets, strict=True):
            found_offsets = set(answer.captures[target.slug]["warc_record_offset"].to_pylist())
            expected_offsets = {
                capture.warc_record_offset
                for capture, other_key in zip(key_captures, KEYS, strict=True)
                if other_key.key == url_key.key
            }
            assert found_offsets >= expected_offsets, url_key
            assert found_offsets - expected_offsets <= {
                generated_capture.warc_record_offset for generated_capture in bucket.captures[: -len(KEYS)]
            }, url_key

    def test_an_answer_equals_a_scan_of_every_capture(self, locator: Locator, bucket: IndexedBucket) -> None:
        """Targets are of every kind, with any requested subsets."""
        rng = random.Random(CRAWL)
        generated = bucket.captures[: -len(KEYS)]
        for _ in range(_TARGETS):
            target = some_target(rng, rng.choice(generated))
            subsets = rng.choice([self.subsets, self.subsets[:1]])
            expected = {
                _place(surt_key(capture.url), capture)
                for capture in bucket.captures
                if capture.subset in subsets and target.matches(capture.url)
            }
            assert _places(locator.locate(CRAWL, subsets, [target])) == expected, target.definition

    def test_many_targets_are_answered_as_each_alone(self, locator: Locator, bucket: IndexedBucket) -> None:
        """One lookup of all targets has the rows of separate lookups."""
        domains = sorted({capture.domain for capture in bucket.captures[: -len(KEYS)]})
        targets = [parse_target(domain) for domain in domains]
        joint_answer = locator.locate(CRAWL, self.subsets, targets)
        assert sum(table.num_rows for table in joint_answer.captures.values()) > 0
        for target in targets:
            single_answer = locator.locate(CRAWL, self.subsets, [target])
            assert _sorted(single_answer.captures[target.slug]).equals(_sorted(joint_answer.captures[target.slug]))

    def test_rows_name_their_index_and_location(self, locator: Locator, bucket: IndexedBucket) -> None:
        """Rows have the schema of captures, and a target without captures has no rows."""
        present, absent = parse_target(bucket.captures[0].domain), parse_target("nothing-of-this-name.example")
        answer = locator.locate(CRAWL, self.subsets, [present, absent])
        rows, empty = answer.captures[present.slug], answer.captures[absent.slug]
        assert rows.schema.equals(CAPTURE_SCHEMA) and empty.schema.equals(CAPTURE_SCHEMA)
        assert (rows.num_rows > 0, empty.num_rows) == (True, 0)
        assert set(rows["located_by"].to_pylist()) == {locator.name}
        assert set(rows["crawl"].to_pylist()) == {CRAWL}
        for name in (
            "url",
            "url_surtkey",
            "url_host_name",
            "warc_filename",
            "warc_record_offset",
            "warc_record_length",
        ):
            assert rows[name].null_count == 0, name

    def test_captures_go_to_a_callback(self, locator: Locator, bucket: IndexedBucket) -> None:
        """The callback gets the rows of an answer, which then does not have them."""
        target = parse_target(bucket.captures[0].domain)
        received: list[pa.Table] = []
        answer = locator.locate(CRAWL, self.subsets, [target], lambda _, rows: received.append(rows))
        assert answer.captures[target.slug].num_rows == 0
        expected_rows = locator.locate(CRAWL, self.subsets, [target]).captures[target.slug]
        assert _sorted(pa.concat_tables(received)).equals(_sorted(expected_rows))

    def test_a_price_is_a_bound(self, locator: Locator, bucket: IndexedBucket) -> None:
        """No lookup costs more than its price, with a request counted as bytes: ``auto`` relies on it."""
        for domain in sorted({capture.domain for capture in bucket.captures[: -len(KEYS)]}):
            target = parse_target(domain)
            price = locator.price(CRAWL, self.subsets, [target])
            # the data for prices is read once, and counted with the first answer after it
            locator.locate(CRAWL, self.subsets, [target])
            answer = locator.locate(CRAWL, self.subsets, [target])
            assert answer.bytes + answer.requests * REQUEST_BYTES <= price.bytes + price.requests * REQUEST_BYTES, (
                domain
            )


def some_target(rng: random.Random, capture: Capture) -> Target:
    url = capture.url
    authority = url.split("/")[2]
    kind = rng.choice(["domain", "host", "url", "prefix", "tld", "rev", "set"])
    text = {
        "domain": capture.domain,
        "host": f"host:{authority}",
        "url": f"url:{url}",
        "prefix": f"prefix:{url[: rng.randint(len('/'.join(url.split('/')[:3])) + 1, len(url))]}",
        "tld": f"tld:{capture.domain.rsplit('.', 1)[-1]}",
        "rev": "rev:" + ".".join(reversed(authority.split(":")[0].split("."))),
        "set": f"set:some = {capture.domain}, url:{url}",
    }[kind]
    try:
        return parse_target(text)
    except UserInputError:  # the last number of an IP address is no top-level domain
        return parse_target(f"url:{url}")


def _place(key: str, capture: Capture) -> Place:
    return (key, capture.warc_filename, capture.warc_record_offset, capture.warc_record_length)


def _places(answer: LookupResult) -> set[Place]:
    columns = ("url", "warc_filename", "warc_record_offset", "warc_record_length")
    return {
        (surt_key(url), *place)
        for table in answer.captures.values()
        for url, *place in zip(*(table[name].to_pylist() for name in columns), strict=True)
    }


def _sorted(captures: pa.Table) -> pa.Table:
    return captures.sort_by([("warc_filename", "ascending"), ("warc_record_offset", "ascending")]).combine_chunks()
