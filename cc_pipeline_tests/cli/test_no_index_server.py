"""A person's commands while the host with the list of crawls refuses connections."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline.progress import format_count
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import closed_port

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture
def source(world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The bucket on loopback, and a list of crawls at an address that refuses connections."""
    with FaultServer(world.bucket) as server:
        monkeypatch.setenv("CC_PIPELINE_COLLINFO", f"{closed_port()}/collinfo.json")
        monkeypatch.setenv("CC_PIPELINE_SOURCE", server.url)
        yield server.url


@pytest.mark.process
@pytest.mark.usefixtures("source")
def test_an_old_copy_and_every_command_says_how_old_it_is(cli: Cli, world: World, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copytree(world.untouched / "cache", home / "cache")
    then = time.time() - 9.5 * 86_400
    os.utime(home / "cache" / "collinfo.json", (then, then))
    old = "the copy from 9 days ago is used instead"
    said = cli("run", "--crawl", "newest", "example.com", "--home", home)
    assert (said.status, old in said.told) == (0, True), said.err
    for command in (("crawls",), ("lookup", "--count", "example.com", "-c", "newest"), ("index", "harvest", "-c", NEW),
                    ("plan", "example.com", "-c", "2024"), ("lookup", "example.com", "-c", NEW, "--format", "csv"),
                    ("get", "http://example.com/", "-c", "newest", "--format", "text")):  # fmt: skip
        said = cli(*command, "--home", home)
        assert (said.status, old in said.told) == (0, True), (command, said.err)
    said = cli("doctor", "--home", home)
    assert (said.status, old in " ".join(said.out.split())) == (0, True), said.out


@pytest.mark.process
@pytest.mark.usefixtures("source")
def test_a_crawl_without_path_lists_is_harvested_from_a_list_of_ones_own(
    cli: Cli, world: World, tmp_path: Path
) -> None:
    lists = tmp_path / "files.txt"
    keys = sorted(str(path.relative_to(world.bucket)) for path in world.bucket.rglob(f"crawl={NEW}/**/*.parquet"))
    lists.write_text("\n".join(keys))
    home = tmp_path / "home"
    said = cli("index", "harvest", "-c", NEW, "--index-files", lists, "--home", home)
    assert said.status == 0, said.err
    assert f"read {format_count(len(keys), 'index file')} of {NEW} from" in said.told
    said = cli("lookup", "--count", "example.com", "-c", NEW, "--home", home)
    assert said.status == 0, said.err
    said = cli("index", "harvest", "-c", NEW, "-c", OLD, "--index-files", lists, "--home", home)
    assert (said.status, "one crawl" in said.told) == (1, True)
