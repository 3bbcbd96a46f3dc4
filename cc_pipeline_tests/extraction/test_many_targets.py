"""Half as many targets as there may be partitions, which ended the process, in a home that is in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline.defs.partitions import MAX_PARTITIONS
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested

pytestmark = pytest.mark.bomb

#: In a process of its own, since what is tested ended it. One of the targets is there, and is known to be.
_PROGRAM = """
import sys
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace

home, crawl, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
targets = [parse_target(text) for text in ("example.com", *(f"name-{one}.example" for one in range(1, count)))]
slugs = [target.slug for target in targets]
with open_workspace(load_settings({}, home=home)) as workspace:
    workspace.register_targets(targets)
    version = workspace.lake.version("targets")
    workspace.register_targets(targets)
    assert workspace.lake.version("targets") == version
    assert [*workspace.targets(slugs)] == slugs
    found = plan_crawl(workspace, crawl, slugs)
    assert [*found.current_targets] == ["example.com"]
    assert {todo.slice_.partition.target for todo in found.plan.slice_plans} == {*slugs[1:]}
"""


def test_tens_of_thousands_of_targets_end_no_process(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path)
    extract(workspace, "example.com")
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path), NEW, str(MAX_PARTITIONS // 2)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
