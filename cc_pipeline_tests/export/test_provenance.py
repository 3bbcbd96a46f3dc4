"""What is told of the targets of something that is handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cc_pipeline.api.user_input import chosen_targets
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.export.cards import DatasetDescription
from cc_pipeline.export.files import ExportedTable, write_export_documents
from cc_pipeline.export.provenance import Provenance, TargetOutcome, gather_provenance
from cc_pipeline.extraction.blocklist import block
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.lake import Lake
from cc_pipeline_tests.world import NEW, Bucket, harvested


def test_a_set_called_by_its_name_is_told_of_by_its_members(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    members = sorted(bucket[1].domains(NEW))[:2]
    workspace.register_targets([parse_target(f"set:press = {', '.join(members)}, nowhere.example")])
    locate_captures(workspace, NEW, ["set-press"])
    provenance = gather_provenance(workspace, chosen_targets(["set:press"]), [NEW])
    assert provenance.selection == ("targets: set:press",)
    found = provenance.targets
    counts = [len(bucket[1].captures_of(NEW, domain=name, subset="warc")) for name in members]
    assert [(one.definition, one.outcome, one.of, one.captures) for one in found] == [
        *((name, "found", "set-press", count) for name, count in zip(members, counts, strict=True)),
        ("nowhere.example", "empty", "set-press", 0),
    ]
    block(workspace, [parse_target("nowhere.example")])
    assert gather_provenance(workspace, chosen_targets(["set:press"]), [NEW]).targets[-1].outcome == "refused"
    [other] = gather_provenance(workspace, chosen_targets(["elsewhere.example"]), [NEW]).targets
    assert other.outcome == "not here"


def test_look_ups_are_not_read_as_one(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    first, second = sorted(bucket[1].domains(NEW))[:2]
    workspace.register_targets([parse_target(f"set:press = {first}"), parse_target(second)])
    locate_captures(workspace, NEW, ["set-press", second])
    real, asked = Lake.read, list[str]()

    def noted(self: Lake, table: str, where: Any = None, columns: Any = None) -> pa.Table:
        asked.append(table)
        return real(self, table, where, columns)

    monkeypatch.setattr(Lake, "read", noted)
    every = gather_provenance(workspace, [], [])
    assert "lookups" not in asked
    assert {(one.definition, one.outcome) for one in every.targets} == {(first, "found"), (second, "found")}
    assert [one.crawl for one in every.crawls] == [NEW]
    assert every.crawls[0].indexes


def test_pages_are_told_of_what_is_counted_by_registered_domain_alone() -> None:
    named = ("example.com", "example.co.uk", "blog.example.com", "example.com where status=200", "host:example.com",
             "co.uk", "192.0.2.1")  # fmt: skip
    before = Provenance(targets=tuple(TargetOutcome(name, "found") for name in named))
    after = before.with_pages({"example.com": 3})
    assert [one.pages for one in after.targets] == [3, 0, None, None, None, None, None]


def test_papers_of_an_earlier_export_go_and_files_of_others_stay(tmp_path: Path) -> None:
    out, about = tmp_path / "rows.csv", DatasetDescription("rows")
    out.write_text("url\n", "utf-8")
    (tmp_path / "rows.csv.targets.csv").write_text("mine", "utf-8")
    table = ExportedTable("rows", 0, columns=(("url", "VARCHAR"),))
    write_export_documents(out, about, Provenance(), [table], [out])
    assert (tmp_path / "rows.csv.targets.csv").read_text("utf-8") == "mine"
    write_export_documents(out, about, Provenance(targets=(TargetOutcome("example.com", "found"),)), [table], [out])
    assert {"rows.csv.targets.csv", "rows.csv.croissant.json"} < {path.name for path in tmp_path.iterdir()}
    write_export_documents(out, about, Provenance(), [ExportedTable("records", 0)], [out])
    papers = ["rows.csv", "rows.csv.README.md", "rows.csv.provenance.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == papers
