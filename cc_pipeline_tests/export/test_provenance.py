"""What is told of the targets of something that is handed on."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.api.export import export
from cc_pipeline.api.user_input import chosen_targets
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.export import wacz_export
from cc_pipeline.export.cards import DatasetDescription
from cc_pipeline.export.files import ExportedTable, write_export_documents
from cc_pipeline.export.provenance import Provenance, TargetOutcome, gather_provenance
from cc_pipeline.export.stored_state import StoredState, read_lake_state, read_published_state
from cc_pipeline.extraction.blocklist import block
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.published_file import open_home_publication
from cc_pipeline.lake.slice import FETCH, Slice
from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline_tests.checks.changed_slices import lose_rows
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, publish, rewrite_slice


def test_a_set_called_by_its_name_is_told_of_by_its_members(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    members = sorted(bucket[1].domains(NEW))[:2]
    workspace.register_targets([parse_target(f"set:press = {', '.join(members)}, nowhere.example")])
    locate_captures(workspace, NEW, ["set-press"])

    def gather(name: str) -> Provenance:
        return gather_provenance(workspace, read_lake_state(workspace, chosen_targets([name]), [NEW]), [NEW])

    provenance = gather("set:press")
    assert provenance.selection == ("targets: set:press",)
    found = provenance.targets
    counts = [len(bucket[1].captures_of(NEW, domain=name, subset="warc")) for name in members]
    assert [(one.definition, one.outcome, one.of, one.captures) for one in found] == [
        *((name, "found", "set-press", count) for name, count in zip(members, counts, strict=True)),
        ("nowhere.example", "not found", "set-press", 0),
    ]
    publish(workspace)
    with open_home_publication(workspace.settings) as connection:
        for names in (["set:press"], []):
            state = read_published_state(connection, chosen_targets(names), [NEW])
            published = gather_provenance(workspace, state, [NEW])
            assert (published.targets, published.crawls) == (provenance.targets, provenance.crawls)
    assert all(one.path_list and one.indexes for one in provenance.crawls)
    block(workspace, [parse_target("nowhere.example")])
    assert gather("set:press").targets[-1].outcome == "blocked"
    assert [one.outcome for one in gather("elsewhere.example").targets] == ["not looked up"]


def read_papers(out: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    with out.with_name(f"{out.name}.targets.csv").open(encoding="utf-8") as stream:
        return json.loads(out.with_name(f"{out.name}.provenance.json").read_text("utf-8")), [*csv.DictReader(stream)]


def test_rows_and_papers_of_tables_are_those_of_the_published_file(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    first, second = sorted(bucket[1].domains(NEW))[:2]
    extract(workspace, first)
    publish(workspace)
    # this run is not published, and a purge of the published target neither
    extract(workspace, second)
    delete_definitions(workspace.lake, [first])
    count = len(bucket[1].captures_of(NEW, domain=first, subset="warc"))
    for number, targets in enumerate(([], [first])):
        out = tmp_path / f"{number}.csv"
        export(workspace.settings, out, targets, tables=["captures"])
        provenance, outcomes = read_papers(out)
        assert provenance["counts"] == {"captures": count}
        assert [(one["definition"], one["outcome"], one["captures"]) for one in outcomes] == [
            (first, "found", str(count))
        ]
        assert [one["crawl"] for one in provenance["crawls"]] == [NEW]


def test_records_and_their_papers_are_of_one_state(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    domain = sorted(bucket[1].domains(NEW))[0]
    extract(workspace, domain)
    count = len(bucket[1].captures_of(NEW, domain=domain, subset="warc"))

    def purge_meanwhile(*arguments: Any) -> Provenance:
        provenance = gather_provenance(*arguments)
        delete_definitions(workspace.lake, [domain])
        return provenance

    monkeypatch.setattr("cc_pipeline.export.provenance.gather_provenance", purge_meanwhile)
    out = tmp_path / "records.wacz"
    exported = export(workspace.settings, out, [domain], allow_missing=True)
    provenance, [outcome] = read_papers(out)
    assert exported.notes[0].startswith(f"{count:,} captures were planned")
    assert (outcome["captures"], provenance["counts"]) == (str(count), {"records": count})


@pytest.mark.parametrize("harm", ["superseded", "records", "page_text"])
def test_rows_that_go_while_an_export_is_written_are_an_error(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    domain = sorted(bucket[1].domains(NEW))[0]
    extract(workspace, domain)

    def harm_meanwhile(*arguments: Any) -> Provenance:
        if harm == "superseded":
            rewrite_slice(workspace, FETCH, domain, workspace.lake.read("records", {"target": domain}))
            monkeypatch.setattr("cc_pipeline.lake.slices._READING", timedelta(0))
            compact(workspace.lake, "records", Bounds())
        else:
            lose_rows(workspace.lake, harm, Slice(NEW, domain))
        return gather_provenance(*arguments)

    monkeypatch.setattr("cc_pipeline.export.provenance.gather_provenance", harm_meanwhile)
    out = tmp_path / "records.wacz"
    with pytest.raises(EnvironmentFault, match=f"the rows of .* in {NEW} changed or are missing"):
        export(workspace.settings, out, [domain], allow_missing=True)
    assert not out.exists()


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


def test_advice_on_many_targets_does_not_list_them() -> None:
    targets = {target.slug: target for target in map(parse_target, ("example.com", "host:a.example.org"))}
    assert wacz_export._name_targets(StoredState(targets, (), {})) == "…"
    assert wacz_export._name_targets(StoredState({"example.com": targets["example.com"]}, (), {})) == "example.com"
