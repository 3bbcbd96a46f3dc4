"""What datasets keyed by URL say of captures: by the SURT key of the URL and the time of its fetch."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.key_ranges import KeyRange, merge_ranges, prefix_range
from cc_pipeline.hostfacts.dataset_question import Columns, Facts, all_facts, ask, check_kinds
from cc_pipeline.hostfacts.datasets import Dataset
from cc_pipeline.hostfacts.keyed_lookup import Endings, Keep, folded
from cc_pipeline.workspace.workspace import Workspace

URL, TIME = "url_surtkey", "fetch_time"
#: What names a capture in a dataset keyed by URL.
CAPTURE_OF_URL: Final = (URL, TIME)
#: URLs that are asked for one by one; of more, all that is said of their hosts is read.
_MOST_KEYS: Final = 20_000


def facts_of_captures(workspace: Workspace, crawl: str, captures: pa.Table, datasets: Sequence[Dataset]) -> Facts:
    """``captures`` of one crawl, in their order, with the columns of ``datasets`` behind: null where a dataset lacks
    a capture. Those that an inner or filtering dataset lacks are left out.

    ``captures`` has at least ``url_surtkey`` and ``fetch_time``. Nothing is kept. Raises ``UserInputError`` for
    datasets about hosts, and as :func:`~cc_pipeline.hostfacts.host_facts.facts_of_hosts` does.
    """
    started = time.monotonic()
    ranges = _ranges_of(captures)
    check_kinds(datasets, by_url=True)
    answers = {one.name: ask(workspace, crawl, one, _OfUrls(one, ranges), keep=False) for one in datasets}
    rows = captures
    places = {one.name: _places(rows, answers[one.name].table) for one in datasets}
    held = [places[one.name].is_valid() for one in datasets if one.inner or one.action == "filter"]
    if held:
        mask = reduce(pc.and_, held)
        rows = rows.filter(mask)
        places = {name: place.filter(mask) for name, place in places.items()}
    columns = Columns({name: rows[name] for name in rows.column_names})
    for one in datasets:
        columns.add(one, answers[one.name], CAPTURE_OF_URL, places[one.name])
    return all_facts(columns.table(), answers, time.monotonic() - started)


def _places(rows: pa.Table, answer: pa.Table) -> pa.Array:
    """Where ``answer`` has the capture of each row; null where it has none."""
    numbered = answer.select(list(CAPTURE_OF_URL)).append_column("_at", _counted(answer.num_rows))
    asked = pa.table({URL: rows[URL], TIME: rows[TIME].cast(TIMESTAMP, safe=False), "_row": _counted(rows.num_rows)})
    joined = asked.join(numbered, list(CAPTURE_OF_URL), join_type="left outer").sort_by("_row")
    return joined["_at"].combine_chunks()


def _counted(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _ranges_of(captures: pa.Table) -> tuple[KeyRange, ...]:
    """The keys of ``captures``; of very many the keys of their hosts, so that memory follows the hosts."""
    keys = pc.unique(captures[URL]).drop_null()
    if len(keys) <= _MOST_KEYS:
        return merge_ranges(KeyRange(key, key + b"\0") for key in _encoded(keys))
    hosts = pc.unique(pc.list_element(pc.split_pattern(keys, ")", max_splits=1), 0))
    return merge_ranges(prefix_range(host + b")") for host in _encoded(hosts))


def _encoded(texts: pa.Array) -> list[bytes]:
    return [text.encode("utf-8", "surrogateescape") for text in texts.to_pylist()]


class _OfUrls:
    """What ``dataset`` says of captures whose keys lie in ``ranges``: see ``asking.Question``."""

    keep: Keep | None = None
    endings: Endings | None = None

    def __init__(self, dataset: Dataset, ranges: Sequence[KeyRange]) -> None:
        self._dataset = dataset
        self.ranges = ranges
        self.columns: Mapping[str, pa.DataType] = {dataset.time: TIMESTAMP}
        told = hashlib.sha256()
        for each in ranges:
            told.update(repr((each.start, each.end)).encode())
        self.named: object = ["urls", told.hexdigest()]

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows under their keys and times, one a capture."""
        dataset = self._dataset
        shown: Mapping[str, pa.DataType | None] | None = dataset.columns
        said = dict(zip(table.column_names[1:], table.columns[1:], strict=True))
        others = [name for name in said if name != dataset.time]
        if shown is not None and dataset.time in shown:
            others.append(dataset.time)
        columns = {URL: table.column(0), TIME: said[dataset.time]}
        taken = pa.table(columns | {name: said[name] for name in others if name not in columns})
        return folded(taken, len(CAPTURE_OF_URL), None, dataset.fold)
