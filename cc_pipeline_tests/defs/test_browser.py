"""``cc-pipeline ui``, and a person in a real browser on it: looks at the lineage, materializes a partition by clicking,
and sees what came of it. Text of strangers stays text.

With ``CC_PIPELINE_PICTURES=docs/images`` in the environment it makes the pictures of the docs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.metadata import as_table, escape_markdown, format_list
from cc_pipeline.defs.sensors import listed_config
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.browser import Tab, browsing, needs_browser
from cc_pipeline_tests.defs.test_dagster_process import BIN, REPOSITORY, Server, environment, serving
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.world import NEW, Bucket

pytestmark = [
    needs_browser, pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(900),
]  # fmt: skip

#: Where pictures go, read before the fixtures take settings out of the environment.
PICTURES = os.environ.get("CC_PIPELINE_PICTURES")
SITE = "example.com"
PARTITION = f"view=partitions&partition={NEW}%7C{SITE}"


@dataclass(frozen=True, slots=True)
class Ui:
    """A running ``cc-pipeline ui`` over a home whose newest crawl is harvested."""

    server: Server
    settings: Settings
    address: str

    @contextmanager
    def browse(self) -> Iterator[Tab]:
        """A browser on it. The picture of what it showed last is kept if the block raises."""
        pictures = REPOSITORY / PICTURES if PICTURES else None
        with browsing(self.address, pictures, self.settings.home / "failed.png") as tab:
            yield tab

    def record(self, event: dg.AssetMaterialization | dg.AssetCheckEvaluation) -> None:
        with open_instance(self.settings) as instance:
            instance.report_runless_asset_event(event)


@pytest.fixture(scope="module")
def ui(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    folder, port = tmp_path_factory.mktemp("ui"), free_port()
    settings = load_settings({}, source=str(bucket[0]), home=str(folder / "home"))
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        runner.list_new_crawls()
        runner.harvest([NEW])
        runner.add_targets([parse_target(SITE)])
    command = [str(BIN / "cc-pipeline"), "ui", "--port", str(port), "--home", str(settings.home)]
    with serving(command, folder, environment(bucket[0], folder), port) as server:
        server.wait_until_loaded()
        yield Ui(server, settings, f"http://127.0.0.1:{port}")


@pytest.mark.smoke
def test_a_partition_is_materialized_by_clicking(bucket: Bucket, ui: Ui) -> None:
    captures = len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    with ui.browse() as tab:
        tab.open("/assets", "captures", "records")
        tab.open("/locations/cc_pipeline/asset-groups/extraction/lineage", "captures", "records")
        tab.click("Materialize all")
        tab.choose(NEW)
        tab.choose(SITE)
        tab.click("Launch 1 run")
        run = tab.page.get_by_text(re.compile("Launched run [0-9a-f]{8}")).first.inner_text().split()[2]
        tab.page.get_by_text("View", exact=True).click()
        # the label beside the run's id
        tab.sees("Success")
        tab.open(f"/assets/records?{PARTITION}", "Materialized (1)", "Failed (0)", "dagster/partition_row_count")
        text = tab.reads()
        assert run in text
        assert re.search(rf"dagster/partition_row_count\s+{captures}\b", text), text
        tab.picture("ui-partition")
        tab.open("/assets/records?view=checks", "ledger_balances", "stored_files", "nothing_missing")
        tab.open("/assets/records?view=lineage", "captures", "page_metadata", "warehouse")
        tab.picture("ui-lineage")


def test_text_of_a_stranger_is_shown_as_text_and_loads_nothing(ui: Ui) -> None:
    place, requested = f"http://127.0.0.1:{free_port()}", list[str]()
    with ui.browse() as tab:
        tab.page.on("request", lambda request: requested.append(request.url))
        run = tell_what_a_stranger_wrote(ui, place)
        for path, text in {
            f"/assets/page_text?{PARTITION}": "notes",
            "/assets/page_text?view=events": "notes",
            "/assets/page_metadata?view=checks&checkDetail=no_failed_partitions": "Latest execution",
            f"/runs/{run}": "RUN_FAILURE",
        }.items():
            tab.open(path, text)
            tab.page.wait_for_load_state("networkidle")
            assert "![x](" in tab.reads(), path
        assert requested and not [url for url in requested if url.startswith(place)]
        # and it would be seen: the same as Markdown, as one of us may write it
        ui.record(dg.AssetMaterialization("page_text", metadata={"ours": dg.MetadataValue.md(f"![x]({place}/ours)")}))
        with tab.page.expect_request(f"{place}/ours"):
            tab.open("/assets/page_text", "ours")


def tell_what_a_stranger_wrote(ui: Ui, place: str) -> str:
    """Records a partition whose notes, rows and reason of failure try to load a picture; gives the id of a run that
    fails with such words."""
    words = f"![x]({place}/markdown.png) <img src='{place}/html.png'> [![x]({place}/linked.png)]({place})"
    run = ui.server.launch("extract_targets", {}, listed_config(OWN_HOME, [f"{NEW}|{words}"]))
    partition = dg.MultiPartitionKey({"crawl": NEW, "target": SITE})
    metadata = {
        "notes": format_list([words, f"two\n{words}"]),
        "rows": as_table(["title", "rows"], [(f"a\n{words}", 3)]),
    }
    ui.record(dg.AssetMaterialization("page_text", partition=partition, metadata=metadata))
    reason = escape_markdown(f"the partition failed: {words}\n{words}")
    ui.record(dg.AssetCheckEvaluation(dg.AssetKey("page_metadata"), "no_failed_partitions", False, description=reason))
    assert ui.server.wait_for(run) == "FAILURE"
    return run
