"""The index files of a crawl: those that its path list or the user's own list names, or those that are built here."""

from __future__ import annotations

from typing import Final

from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.commoncrawl.paths import (
    IndexFile,
    describe_faulty_lines,
    parse_path_list,
    path_list_key,
    refuse_faulty_list,
)
from cc_pipeline.errors import DataFault, DataKind, SourceRefuses
from cc_pipeline.harvesting.archives import list_archives, read_user_list
from cc_pipeline.harvesting.path_lists import path_list_fault, read_path_list
from cc_pipeline.index.shards import SUBSET
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.workspace.workspace import Workspace

#: Real crawls have some 900 index files, 300 a subset; each becomes an object, a row, and a footer to fetch.
MAX_INDEX_FILES: Final = 100_000


def listed_files(workspace: Workspace, crawl: str) -> tuple[list[IndexFile], int, int, tuple[str, ...]]:
    """Returns the files of a crawl's columnar index, the requests and bytes for the list, and notes on lines that name
    no such file.

    The files are in the order of ``index_manifest``, so that a list in another order counts as the same.
    """
    stats = workspace.transport.stats
    requests, read = stats.requests, stats.bytes
    key, user_list = path_list_key(crawl, "cc-index-table"), read_user_list(workspace.settings, crawl)
    try:
        if index_is_built(crawl):
            shards, notes = list_archives(workspace, crawl)
            files = [IndexFile(shard.key, crawl, SUBSET, shard.part) for shard in shards]
        else:
            data = read_path_list(workspace, key) if user_list is None else user_list
            files, notes = parse_index_list(data, key, crawl)
    except SourceRefuses:
        raise
    except RangeFault as fault:
        raise path_list_fault(crawl, key, fault) from fault
    files.sort(key=lambda file: (file.subset, file.path))
    return files, stats.requests - requests, stats.bytes - read, notes


def parse_index_list(data: bytes, key: str, crawl: str) -> tuple[list[IndexFile], tuple[str, ...]]:
    """Returns the index files of ``crawl`` that a path list names, each once, and notes on lines that name none. Raises
    ``DataFault`` if these are more than one and a tenth of all: then it is not a list of this crawl."""
    faults: list[DataFault] = []
    files: dict[IndexFile, None] = {}
    for path in parse_path_list(data, key, max_lines=MAX_INDEX_FILES, faults=faults):
        try:
            file = IndexFile.from_path(path)
        except DataFault as fault:
            faults.append(fault)
            continue
        if file.crawl == crawl:
            files[file] = None
        else:
            faults.append(DataFault(DataKind.MISMATCH, path, None, f"is an index file of {file.crawl}, not of {crawl}"))
    refuse_faulty_list(faults, len(files))
    return [*files], describe_faulty_lines(faults, key)
