"""What is kept of a cluster.idx between runs: never of another file, never damaged, and what it saves."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.lookup import IndexSources, look_up
from cc_pipeline.index.zipnum import cluster_cache as kept_module
from cc_pipeline.index.zipnum.cluster_cache import Clusters, cluster_version
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline_tests.faultserver import FaultServer

CRAWL, OTHER = "CC-MAIN-2024-22", "CC-MAIN-2024-18"


def bucket(root: Path, crawl: str, hosts: Sequence[int], captures: int = 3) -> None:
    """A ZipNum index with a member for each of ``hosts``."""
    shard, cluster = b"", b""
    for number in hosts:
        key = f"com,example,h{number:04d})/"
        said = {"url": f"https://h{number:04d}.example.com/", "filename": "a/segments/1.2/warc/f.warc.gz"}
        lines = [
            f"{key}{n} 20240518010203 {json.dumps(said | {'offset': str(n), 'length': '7'})}\n" for n in range(captures)
        ]
        member = gzip.compress("".join(lines).encode(), mtime=0)
        cluster += b"%s0 20240518010203\tcdx-00000.gz\t%d\t%d\t1\n" % (key.encode(), len(shard), len(member))
        shard += member
    folder = (root / cluster_key(crawl)).parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cdx-00000.gz").write_bytes(shard)
    (root / cluster_key(crawl)).write_bytes(cluster)


def asked(server: FaultServer, home: Path, crawl: str, host: int, clusters: Clusters | None = None) -> list[str]:
    """What a lookup of one host in a run of its own asks for: the files' names."""
    before = len(server.hits)
    target = parse_target(f"host:h{host:04d}.example.com")
    with Transport(server.url) as transport:
        found = look_up(crawl, ["warc"], [target], IndexSources(transport, clusters=clusters or Clusters(home)))
    assert found.captures[target.slug].num_rows == 3
    hits = server.hits[before:]
    assert found.requests == len(hits)
    return [hit.key.rpartition("/")[2] for hit in hits]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # as 110 MB are to the stretches of a real file
    for name, value in (("PROBE", 500), ("WHOLE_READ_BYTES", 1000), ("FIRST_READ_BYTES", 300)):
        monkeypatch.setattr(f"cc_pipeline.index.zipnum.cluster.{name}", value)
    monkeypatch.setattr(kept_module, "_TAIL", 200)
    bucket(tmp_path / "bucket", CRAWL, range(2000))
    return tmp_path / "bucket"


def test_a_second_run_knows_what_the_first_has_read(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "cache"
    with FaultServer(root) as server:
        first = asked(server, home, CRAWL, 700)
        assert len(first) > 3
        assert first[-1] == "cdx-00000.gz"
        assert asked(server, home, CRAWL, 700) == ["cluster.idx", "cdx-00000.gz"]
        assert asked(server, home, CRAWL, 701) == ["cluster.idx", "cdx-00000.gz"], "its lines were read along"
        assert len(asked(server, home, CRAWL, 720)) < len(first)
        one = Clusters(home)
        asked(server, home, CRAWL, 300, one)
        # within a run neither the file nor its members are asked for again
        with Transport(server.url) as transport:
            again = look_up(
                CRAWL, ["robotstxt"], [parse_target("host:h0300.example.com")], IndexSources(transport, clusters=one)
            )
        assert again.requests == 0


def test_a_file_that_was_published_again_is_read_anew(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "cache"
    with Transport(str(root)) as transport:
        before = Clusters(home).find(transport, CRAWL)
    with FaultServer(root) as server:
        asked(server, home, CRAWL, 700)
        bucket(root, CRAWL, range(1, 1999))
        assert len(asked(server, home, CRAWL, 700)) > 3
    with Transport(str(root)) as transport:
        after = Clusters(home).find(transport, CRAWL)
        assert Clusters().find(transport, OTHER) is None
    assert before is not None and after is not None
    assert before.version != after.version
    content = (root / cluster_key(CRAWL)).read_bytes()
    assert after.version == cluster_version(len(content), content[-200:]), "whatever its ETag is"


def test_a_file_that_changes_between_two_reads_is_an_error(root: Path) -> None:
    with FaultServer(root) as server, Transport(server.url) as transport:
        found = Clusters().find(transport, CRAWL)
        bucket(root, CRAWL, range(1, 1999))
        assert found is not None
        with pytest.raises(RangeFault, match="changed_object"):
            list(found.cluster.members(parse_target("host:h0700.example.com").ranges))


def test_what_is_damaged_on_disk_is_read_anew_and_kept_again(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "cache"
    with FaultServer(root) as server:
        first = asked(server, home, CRAWL, 700)
        for spoil in (os.truncate, lambda path, size: path.write_bytes(b"x" * (size + 9))):
            for path in [path for path in home.rglob("*") if path.is_file()]:
                spoil(path, path.stat().st_size // 2)
            assert asked(server, home, CRAWL, 700) == first
            assert asked(server, home, CRAWL, 700) == ["cluster.idx", "cdx-00000.gz"]
