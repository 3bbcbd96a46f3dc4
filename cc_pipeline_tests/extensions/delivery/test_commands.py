"""The commands and formats of delivery beside those of the core: words, lists, holes, secrets, signals and origins."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from cc_pipeline.extensions.delivery.manifest import MANIFEST
from cc_pipeline_tests.cli.conftest import ARC, NEW, Cli, World
from cc_pipeline_tests.cli.test_credentials import GUARDED, PASSWORD, USER, files_that_leak, leaks, place_of
from cc_pipeline_tests.cli.test_incomplete import HOLE, NO_ZIPNUM, SITE
from cc_pipeline_tests.cli.written import everything_in
from cc_pipeline_tests.faultserver import FaultServer

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("cli published")]


def test_nothing_is_delivered_over_holes(cli: Cli, world: World, tmp_path: Path) -> None:
    with FaultServer(world.bucket, rules=(HOLE, NO_ZIPNUM)) as server:
        place = ("-c", NEW, "--source", server.url, "--home", tmp_path / "home")
        assert cli("index", "harvest", "--allow-gaps", *place).status == 0
        copied = ("delivery", "copy", SITE, "--to", tmp_path / "mine", *place)
        assert cli(*copied, "--allow-missing").status == 3
        # nobody knows what is planned, so nothing may say that it is all there
        assert not list((tmp_path / "mine").rglob(MANIFEST))
        server.set_rules([HOLE])
        said = cli(*copied, "--allow-missing")
        assert said.status == 0, said.err
        assert "a complete index was used instead" in said.err


def test_a_password_is_in_no_delivery(cli: Cli, world: World, tmp_path: Path) -> None:
    with FaultServer(world.bucket, manners=GUARDED) as server:
        source = f"http://{USER}:{quote(PASSWORD, safe='')}@{place_of(server)}"
        where = ("-c", NEW, "--source", source, "--home", tmp_path / "home")
        done = cli("delivery", "copy", SITE, "--to", tmp_path / "mine", "--allow-missing", *where)
        refused = cli("delivery", "copy", SITE, "--to", source, *where)
    assert (done.status, refused.status) == (0, 1), (done.err, refused.err)
    assert not leaks((done.out + done.err + refused.out + refused.err).encode())
    assert files_that_leak(tmp_path / "mine") == []


def test_nothing_that_leaves_names_a_path_of_the_home(cli: Cli, rich: Path, world: World, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    out.mkdir()
    said = [
        cli("export", SITE, "-c", ARC, "--out", out / "site.wacz", "--allow-missing", "--home", rich),
        cli("delivery", "copy", SITE, "-c", NEW, "-c", ARC, "--to", out / "copy", "--allow-missing", "--home", rich),
    ]
    assert [one.status for one in said] == [0, 0], said
    assert (out / "site.wacz.targets.csv").exists() and (out / "site.wacz.provenance.json").exists()
    seen = 0
    for path, data in everything_in(out):
        seen += 1
        # a record that became WARC says by an address from where (WARC-Source-URI)
        for place in (rich, tmp_path, *(() if path.suffix == ".wacz" else (world.bucket,))):
            assert str(place).encode() not in data, path
    assert seen > 15
    copies = json.loads((out / "copy" / MANIFEST).read_text("utf-8"))["copies"]
    assert [copy["crawl"] for copy in copies] == [NEW, ARC]
    for copy in copies:
        crawl, told = copy["crawl"], copy["provenance"]
        assert (copy["targets"], told["asked"]) == ([SITE], [f"targets: {SITE}"])
        assert [one["crawl"] for one in told["crawls"]] == [crawl] and told["crawls"][0]["indexes"]
