"""A store that is watched: each request may be forbidden, and what came of it is seen as it came."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cc_pipeline.stores.answer import Answer, Intake, Listed, NoAnswer, Span, Store


@dataclass(frozen=True, slots=True)
class Seen:
    """One request to a store and its answer. ``asked`` is the ``Range`` header, if there was one; ``status`` is 0 and
    ``trouble`` a kind of ``NoAnswer`` where no answer came. ``bytes`` came of the body, after ``seconds``."""

    method: str
    host: str
    key: str
    asked: str | None
    status: int
    headers: Mapping[str, str]
    bytes: int
    seconds: float
    trouble: str | None = None


class Watch(Protocol):
    """``allow`` is called before each request and raises where it must not be sent; ``saw`` is told of each answer.
    Both are called on the thread of the store's event loop."""

    def allow(self) -> None: ...

    def saw(self, seen: Seen) -> None: ...


class WatchedStore:
    """``store`` with a ``watch`` over what is read. It is a ``Store``; writing is passed on unseen."""

    def __init__(self, store: Store, watch: Watch) -> None:
        self.host = store.host
        self._store = store
        self._watch = watch

    def url(self, key: str) -> str:
        return self._store.url(key)

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0, intake: Intake | None = None) -> Answer:
        asked = None if span is None else span.header
        return await self._watched("GET", key, asked, lambda: self._store.fetch(key, span, limit, intake))

    async def head(self, key: str) -> Answer:
        return await self._watched("HEAD", key, None, lambda: self._store.head(key))

    async def _watched(self, method: str, key: str, asked: str | None, send: Callable[[], Awaitable[Answer]]) -> Answer:
        self._watch.allow()
        begun = time.perf_counter()
        try:
            answer = await send()
        except NoAnswer as error:
            took = time.perf_counter() - begun
            self._watch.saw(Seen(method, self.host, key, asked, 0, {}, error.received, took, error.kind))
            raise
        took = time.perf_counter() - begun
        size = len(answer.body) + answer.handed_on
        self._watch.saw(Seen(method, self.host, key, asked, answer.status, answer.headers, size, took))
        return answer

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        return await self._store.put(key, data, only_if_absent=only_if_absent)

    async def delete(self, key: str) -> Answer:
        return await self._store.delete(key)

    async def listing(self, prefix: str) -> tuple[Answer, list[Listed]]:
        return await self._store.listing(prefix)

    async def close(self) -> None:
        await self._store.close()
