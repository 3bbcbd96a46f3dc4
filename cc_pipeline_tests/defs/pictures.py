"""Pictures of the UI for docs/dagster.md: what each way shows of 30 scattered partitions of which two failed.

python -m cc_pipeline_tests.defs.pictures FOLDER
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import dagster as dg
from cc_pipeline.defs.partitions_in_flight import EXTRACTED

from cc_pipeline.defs.instance import open_instance_in
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline_tests.defs.restarts import _make_due as make_due
from cc_pipeline_tests.defs.test_browser import REPOSITORY, browsing
from cc_pipeline_tests.defs.test_ways import CRAWLS, Place, backfill, command_line, of_job, place_in
from cc_pipeline_tests.world import NEW

_SPEC: Final = MiniCrawlSpec(pages=300, sites=124, crawls=tuple(CrawlSpec(crawl) for crawl in CRAWLS))
_SCHEDULED: Final = dg.RunsFilter(tags={"dagster/schedule_name": "backfill_missing"})
#: Takes the path of this checkout out of all that a page shows.
_WITHOUT: Final = """(path) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) texts.currentNode.nodeValue = texts.currentNode.nodeValue.replaceAll(path, "")
}"""


def scattered(targets: Sequence[str]) -> list[str]:
    """Partitions of both crawls, five neighbours at a time, of 17 targets: a backfill of them has six runs."""
    return [f"{crawl}|{target}" for crawl in CRAWLS for place, target in enumerate(targets) if place % 6 != 5]


def ask(place: Place) -> dict[str, str]:
    """Asks for 30 partitions in each way, two of them bad; gives the page of each when all is done."""
    targets = place.truth.domains()
    asked = {
        "ui-job-backfill": scattered(targets[:17]),
        "ui-asset-backfill": scattered(targets[17:34]),
        "ui-schedule": [f"{NEW}|{target}" for target in targets[34:94:2]],
        "ui-command": [f"{crawl}|{target}" for crawl in CRAWLS for target in targets[94:124:2]],
    }
    place.bad.write_text("\n".join(keys[at] for keys in asked.values() for at in (7, -4)), "utf-8")
    of_job_backfill = backfill(place, asked["ui-job-backfill"], **of_job("extract_domain"))
    assets = [{"path": [asset]} for asset in EXTRACTED]
    of_asset_backfill = backfill(place, asked["ui-asset-backfill"], assetSelection=assets)
    watched = [key.partition("|")[2] for key in asked["ui-schedule"]]
    place.settings.watch_list_path.write_text("\n".join(watched), "utf-8")
    with open_instance_in(place.settings.dagster_home) as instance:
        make_due(instance)
        while not instance.get_runs(_SCHEDULED, limit=1):
            time.sleep(1)
    command_line(place, asked["ui-command"])
    place.wait()
    with open_instance_in(place.settings.dagster_home) as instance:
        listed = {"dagster/schedule_name" in run.tags: run.run_id for run in instance.get_runs()
                  if run.job_name == "extract_targets"}  # fmt: skip
    return {
        "ui-job-backfill": f"/runs/b/{of_job_backfill}",
        "ui-asset-backfill": f"/runs/b/{of_asset_backfill}",
        "ui-schedule": f"/runs/{listed[True]}",
        "ui-command": f"/runs/{listed[False]}",
    }


def main(pictures: Path) -> None:
    """Makes the pictures in a folder."""
    with tempfile.TemporaryDirectory() as folder, place_in(Path(folder), _SPEC, CC_PIPELINE_CRAWLS=NEW) as place:
        pages = ask(place)
        with browsing(f"http://127.0.0.1:{place.port}", pictures, pictures / "failed.png") as tab:
            for name, path in pages.items():
                tab.open(path)
                tab.page.wait_for_timeout(3_000)
                tab.page.get_by_text("Refreshing data").first.wait_for(state="hidden")
                tab.page.wait_for_timeout(8_000)
                tab.page.evaluate(_WITHOUT, f"{REPOSITORY}/")
                tab.picture(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
