"""The test suite for stores: inherit :class:`StoreTests`, and open a store with the given objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeVar

import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import Answer, Span, Store

T = TypeVar("T")

_DATA: Final = random.Random(0).randbytes(100_000)
_KEY: Final = "crawl-data/CC-MAIN-2024-22/warc.paths.gz"
#: Keys with characters that have a meaning in addresses, forms and shells.
_KEYS: Final = (_KEY, "a=b/c d+e,f.bin", "ü/%41~x.bin", "plus+and&question?.bin", "hash#mark;semi'quote.bin")
_REQUESTS_AT_ONCE: Final = 40


class StoreTests:
    """Tests a store: ``open_place`` opens one with given objects. ``is_writable``: it allows writes, deletes and
    listings; otherwise it refuses all three."""

    is_writable: bool = True

    def open_place(self, objects: Mapping[str, bytes]) -> AbstractContextManager[Store]:
        """Opens a store with exactly these objects. It is used in one event loop, and closed there."""
        raise NotImplementedError

    def _run(self, objects: Mapping[str, bytes], work: Callable[[Store], Awaitable[T]]) -> T:
        async def work_and_close(store: Store) -> T:
            try:
                return await work(store)
            finally:
                await store.close()

        with self.open_place(objects) as store:
            return asyncio.run(work_and_close(store))

    def test_a_range_has_its_bytes_and_location(self) -> None:
        """Ranges start at an offset, reach the end of the object, or count from its end."""
        size = len(_DATA)
        spans = {
            Span(0, 1): (0, 1),
            Span(70_000, 20_000): (70_000, 90_000),
            Span(0, size): (0, size),
            Span(size - 5, 500): (size - 5, size),
            Span(None, 7): (size - 7, size),
            Span(None, 10 * size): (0, size),
        }

        async def work(store: Store) -> None:
            for span, (start, stop) in spans.items():
                answer = await store.fetch(_KEY, span)
                assert (answer.status, answer.body) == (206, _DATA[start:stop]), span
                assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"

        self._run({_KEY: _DATA, "other": b"other"}, work)

    def test_a_range_after_the_end_is_refused(self) -> None:
        """The answer has the status 416; nothing is raised."""

        async def work(store: Store) -> None:
            for span in (Span(len(_DATA), 1), Span(1 << 50, 1 << 20)):
                assert (await store.fetch(_KEY, span)).status == 416

        self._run({_KEY: _DATA}, work)

    def test_a_whole_object_is_read_up_to_the_limit_and_a_byte_more(self) -> None:
        """The extra byte shows that the object is longer; the head has its size."""

        async def work(store: Store) -> None:
            for limit, length in ((10, 11), (len(_DATA), len(_DATA)), (10 * len(_DATA), len(_DATA))):
                answer = await store.fetch(_KEY, limit=limit)
                assert (answer.status, answer.body) == (200, _DATA[:length])
                assert int(answer.headers["content-length"]) == len(_DATA)
            empty = await store.fetch("empty", limit=10)
            assert (empty.status, empty.body) == (200, b"")

        self._run({_KEY: _DATA, "empty": b""}, work)

    def test_a_head_has_the_size_and_no_body(self) -> None:
        """An empty object has the size 0."""

        async def work(store: Store) -> None:
            for key, size in ((_KEY, len(_DATA)), ("empty", 0)):
                answer = await store.head(key)
                assert (answer.status, answer.body) == (200, b"")
                assert int(answer.headers["content-length"]) == size

        self._run({_KEY: _DATA, "empty": b""}, work)

    def test_a_missing_object_is_an_answer(self) -> None:
        """No error is raised: the caller decides by the status."""

        async def work(store: Store) -> None:
            for key in ("none", "crawl-data", f"{_KEY}/below"):
                for answer in (
                    await store.head(key),
                    await store.fetch(key, limit=10),
                    await store.fetch(key, Span(0, 5)),
                ):
                    assert answer.status == 404, key

        self._run({_KEY: _DATA}, work)

    def test_an_etag_stays_as_long_as_the_object(self) -> None:
        """It is the same for the head, a range and the complete object."""

        async def work(store: Store) -> None:
            answers = [
                await store.head(_KEY),
                await store.fetch(_KEY, limit=len(_DATA)),
                await store.fetch(_KEY, Span(5, 5)),
                await store.fetch(_KEY, Span(None, 5)),
            ]
            assert len({answer.headers.get("etag") for answer in answers}) == 1
            if self.is_writable and answers[0].headers.get("etag"):
                await store.put(_KEY, _DATA[::-1])
                assert (await store.head(_KEY)).headers["etag"] != answers[0].headers["etag"]

        self._run({_KEY: _DATA}, work)

    def test_any_key_names_its_object(self) -> None:
        """Each key has a distinct address without credentials, so that it can be stored."""
        objects = {key: key.encode() for key in _KEYS}

        async def work(store: Store) -> None:
            assert store.host
            assert len({store.url(key) for key in objects}) == len(objects)
            for key, data in objects.items():
                assert (await store.fetch(key, Span(0, 1000))).body == data
                assert "://" in store.url(key) and "@" not in store.url(key)

        self._run(objects, work)

    def test_many_requests_at_once_get_their_own_answers(self) -> None:
        """No answer is mixed up with another, and none is lost."""
        spans = [Span(number * 1_000, 1_000 + number) for number in range(_REQUESTS_AT_ONCE)]

        async def work(store: Store) -> list[Answer]:
            return await asyncio.gather(*(store.fetch(_KEY, span) for span in spans))

        for span, answer in zip(spans, self._run({_KEY: _DATA}, work), strict=True):
            assert span.offset is not None
            assert answer.body == _DATA[span.offset : span.offset + span.length]

    def test_the_first_bytes_of_a_whole_object_can_be_dropped(self) -> None:
        """As many as it has at most: of a shorter object some bytes come."""

        async def work(store: Store) -> None:
            part = await store.fetch(_KEY, limit=89_999, skip=1_000)
            assert (part.status, part.body) == (200, _DATA[1_000:91_000])
            short = await store.fetch(_KEY, limit=9, skip=len(_DATA) + 1)
            assert _DATA.startswith(short.body) and short.body

        self._run({_KEY: _DATA}, work)

    def test_a_read_only_store_refuses_writes(self) -> None:
        """The fault has advice."""

        async def work(store: Store) -> None:
            for attempt in (store.put("new", b"1"), store.delete(_KEY), store.listing("")):
                with pytest.raises(EnvironmentFault) as refused:
                    await attempt
                assert refused.value.advice
            assert (await store.fetch(_KEY, limit=len(_DATA))).body == _DATA

        if self.is_writable:
            pytest.skip("it takes writes")
        self._run({_KEY: _DATA}, work)

    def test_a_written_object_is_complete(self, tmp_path: Path) -> None:
        """Objects are written from memory and from a file, replace an older one, and may be empty."""
        self._skip_unless_writable()
        (tmp_path / "file").write_bytes(_DATA)

        async def work(store: Store) -> None:
            for key in _KEYS:
                for source, data in ((b"first", b"first"), (tmp_path / "file", _DATA), (b"", b"")):
                    assert (await store.put(key, source)).status == 200
                    assert (await store.fetch(key, limit=len(_DATA))).body == data

        self._run({}, work)

    def test_an_existing_object_is_not_replaced(self) -> None:
        """The second write fails by its status, and nothing is changed."""
        self._skip_unless_writable()

        async def work(store: Store) -> None:
            assert (await store.put("once", b"1", only_if_absent=True)).status == 200
            assert (await store.put("once", b"2", only_if_absent=True)).status == 412
            assert (await store.fetch("once", limit=10)).body == b"1"

        self._run({}, work)

    def test_a_deleted_object_is_missing_and_may_be_deleted_again(self) -> None:
        """Other objects stay."""
        self._skip_unless_writable()

        async def work(store: Store) -> None:
            for _ in range(2):
                assert (await store.delete(_KEY)).status in (200, 204)
                assert (await store.head(_KEY)).status == 404
            assert (await store.head("crawl-data/other")).status == 200

        self._run({_KEY: _DATA, "crawl-data/other": b"1"}, work)

    def test_a_listing_has_the_objects_below_a_prefix_now(self) -> None:
        """It has all objects with sizes and keys as written, and no deleted ones."""
        self._skip_unless_writable()
        objects = {**{key: key.encode() for key in _KEYS}, **{f"many/{number:03}": b"12" for number in range(30)}}

        async def work(store: Store) -> None:
            async def list_sizes(prefix: str) -> dict[str, int]:
                answer, listed_objects = await store.listing(prefix)
                assert answer.status == 200 and len({listed_object.key for listed_object in listed_objects}) == len(
                    listed_objects
                )
                return {listed_object.key: listed_object.size for listed_object in listed_objects}

            assert await list_sizes("") == {key: len(data) for key, data in objects.items()}
            assert await list_sizes("many/01") == {f"many/01{digit}": 2 for digit in range(10)}
            assert await list_sizes("nothing/") == {}
            await store.delete("many/010")
            await store.put("many/01", b"123")
            assert await list_sizes("many/01") == {"many/01": 3, **{f"many/01{digit}": 2 for digit in range(1, 10)}}

        self._run(objects, work)

    def _skip_unless_writable(self) -> None:
        if not self.is_writable:
            pytest.skip("it is only read")
