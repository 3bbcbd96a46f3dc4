"""What a run says of captures that a source did not give, and of those that an index no longer lists."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import OLD, Cli, World
from cc_pipeline_tests.world import copy_of

pytestmark = pytest.mark.xdist_group("cli")


def test_pending_captures_are_a_line_and_an_error_above_the_limit(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    bucket = copy_of(world.bucket, tmp_path / "bucket")
    mine = world.truth.captures_of(OLD, subset="warc", domain="example.com")
    (bucket / mine[0].warc_filename).unlink()
    gone = sum(one.warc_filename == mine[0].warc_filename for one in mine)
    assert cli("settings", f"source={bucket}", "--home", home).status == 0
    refused = cli("run", "example.com", "-c", OLD, "--home", home)
    assert refused.status == 3
    assert f"did not give {gone} of {len(mine)} captures" in " ".join(refused.told.split())
    monkeypatch.setenv("CC_PIPELINE_MAX_PENDING", "1")
    said = cli("run", "example.com", "-c", OLD, "--home", home)
    assert said.status == 0, said.err
    line = rf"{gone} captures of {len(mine)} \([\d.]+ %\) pending, asked 1 of 3 times, next after \d{{4}}-\d\d-\d\d"
    assert re.search(line, said.out), said.out
