"""Harvest, lookup and fetch at servers of all manners: the same rows as from a sound one, for few requests more."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.harvesting.crawl_index import commit_row_groups, harvest_footers
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Hit, Rule
from cc_pipeline_tests.world import NEW, Bucket, copy_of, extract, harvest, harvested, workspace_of

DOMAINS = ("example.com", "example.org")
#: Other than any that a workspace has by itself, so that runs are told apart.
RATE = 2000.0


def suffixes(kind: str) -> Rule:
    return Rule(kind, ranges=("bytes=-*",), times=None)


MANNERS = {
    "whole objects for suffixes": [suffixes("whole_object")],
    "unknown totals": [Rule("unknown_total", times=None)],
    "neither suffixes nor totals": [suffixes("416"), Rule("unknown_total", times=None)],
}


def hits_of(hits: Sequence[Hit], *, index: bool) -> int:
    return sum(hit.key.startswith("cc-index/") == index for hit in hits)


def rows_of(workspace: Workspace, table: str) -> list[tuple[object, ...]]:
    names = ["warc_filename", "warc_record_offset"] + (["outcome", "digest_check"] if table == "records" else ["url"])
    return sorted(tuple(row[name] for name in names) for row in workspace.lake.read(table).to_pylist())


def run(server: FaultServer, home: Path, via: str) -> tuple[Counter[str], Workspace]:
    """A harvest, and two runs of a process of their own each; the requests of each stage."""
    asked: Counter[str] = Counter()
    workspace = workspace_of(server.url, home, index=via, rate=RATE)
    if via == "parquet":
        harvest(workspace)
        asked["harvest"] = hits_of(server.hits, index=True)
    for number, domain in enumerate(DOMAINS):
        workspace.close()
        workspace = workspace_of(server.url, home, index=via, rate=RATE)
        server.hits.clear()
        extract(workspace, domain)
        asked[f"lookup {number}"] = hits_of(server.hits, index=True)
        asked["fetch"] += hits_of(server.hits, index=False)
    return asked, workspace


@pytest.fixture(scope="module", params=["parquet", "zipnum"])
def sound(
    bucket: Bucket, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[str, Counter[str], Workspace]:
    """An index, and the run by it at a sound server."""
    via = request.param
    with FaultServer(bucket[0]) as server:
        return via, *run(server, tmp_path_factory.mktemp(via), via)


@pytest.mark.matrix
@pytest.mark.parametrize("manner", MANNERS)
def test_the_same_rows_come_from_servers_of_all_manners(
    bucket: Bucket, sound: tuple[str, Counter[str], Workspace], tmp_path: Path, manner: str
) -> None:
    via, expected, other = sound
    with FaultServer(bucket[0], rules=MANNERS[manner]) as server:
        asked, workspace = run(server, tmp_path, via)
    for table in ("captures", "records"):
        assert rows_of(workspace, table) == rows_of(other, table) != []
    files = len(list(bucket[0].glob(f"cc-index/table/cc-main/warc/crawl={NEW}/subset=warc/*.parquet")))
    more = asked - expected
    if "ETag" not in manner:
        # in each process one request finds it out, or as many as are under way by then, and a HEAD comes before each
        # end: of a footer, and in each run of a cluster.idx. The files are shorter than what is asked for, so that
        # without totals it may be their first bytes
        finding = more.pop("harvest", 0) - files
        assert 1 <= finding <= files if via == "parquet" else finding == -files
        assert more == Counter({"lookup 0": 2, "lookup 1": 2})
        assert not expected - asked


def test_a_bucket_that_was_copied_is_the_same_bucket(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    home = tmp_path / "home"
    workspace = harvested(root, home, index="parquet")
    extract(workspace, DOMAINS[0])
    workspace.close()
    footers = FooterStore(workspace.settings.footers_path).read(NEW).entries
    # other inodes and times, the same bytes
    shutil.move(root, tmp_path / "before")
    shutil.copytree(tmp_path / "before", root, copy_function=shutil.copyfile)
    workspace = workspace_of(root, home, index="parquet")
    with pytest.raises(EnvironmentFault, match="differs from the file whose footer was harvested") as refused:
        extract(workspace, DOMAINS[1])
    assert "--refresh" in str(refused.value.advice)
    assert harvest_footers(workspace, NEW, refresh=True).written == len(footers)
    assert commit_row_groups(workspace, [NEW])[NEW].written == 0, "the same index"
    located, fetched, _ = extract(workspace, DOMAINS[1])
    truth = bucket[1].captures_of(NEW, subset="warc", domain=DOMAINS[1])
    assert (located.rows, fetched.per_target[DOMAINS[1]]["fetched"]) == (len(truth), len(truth))
    assert extract(workspace, DOMAINS[0])[0].fresh_slices == 0, "nothing is located again"
