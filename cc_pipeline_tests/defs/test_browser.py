"""``cc-pipeline ui``, and a person in a real browser on it: adds a domain, materializes it by clicking, looks at what
came, runs every check.

With ``CC_PIPELINE_PICTURES=docs/images`` in the environment it makes the pictures of the docs.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from cc_pipeline.defs.launcher import Launcher
from PIL import Image

from cc_pipeline.defs.instance import open_instance, prepare_files
from cc_pipeline.defs.metadata import as_table, escape_markdown, format_list
from cc_pipeline.defs.partitions import CHECK_SCOPE_TAG, range_tags
from cc_pipeline.defs.recording import failure_metadata
from cc_pipeline.extraction.run import TABLES
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.test_dagster_process import (
    BIN,
    PATIENCE_SECONDS,
    REPOSITORY,
    Server,
    environment,
    serving,
)
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.world import NEW, Bucket

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]

SITE = "example.com"
#: Browsers that the packages of systems install; Playwright's own would have to be downloaded.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PROGRAM = next(filter(None, map(shutil.which, _BROWSERS)), None)
_QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync")  # fmt: skip
#: Looked at before anything is started.
needs_browser = pytest.mark.skipif(
    _PROGRAM is None or find_spec("playwright") is None,
    reason="no browser here: install Debian's package chromium, and the package playwright",
)
_WIDTH, _HEIGHT = 1400, 900
_SHOWN_WITHIN_SECONDS = 120


class Tab:
    """A page of the browser on the UI at ``address``, with what a person does there; ``pictures`` is where pictures
    go, if they are asked for."""

    def __init__(self, page: Any, address: str, pictures: Path | None) -> None:
        self.page, self._address, self._pictures = page, address, pictures

    def open(self, path: str, *texts: str) -> None:
        """Goes to a page and waits until it shows the texts."""
        self.page.goto(self._address + path)
        for text in texts:
            self.sees(text)

    def sees(self, text: str) -> None:
        """Waits until some element shows the text."""
        self.page.get_by_text(text, exact=True).first.wait_for()

    def click(self, button: str) -> None:
        """Presses the first button that has this text in its name, once it can be pressed."""
        self.page.get_by_role("button", name=button).first.click()

    def choose(self, key: str) -> None:
        """Picks a partition in the first list of the open dialog that has no choice yet."""
        hints = self.page.get_by_role("dialog").first.get_by_text("Select a partition or create one")
        left = hints.count()
        hints.first.click()
        self.page.get_by_role("menuitem", name=key).click()
        self.page.keyboard.press("Escape")
        hints.nth(left - 1).wait_for(state="detached")

    def reads(self) -> str:
        """All text of the page."""
        return str(self.page.inner_text("body"))

    def picture(self, name: str) -> None:
        """A picture of what the page shows, where pictures are asked for."""
        if self._pictures is None:
            return
        self._pictures.mkdir(parents=True, exist_ok=True)
        self.page.wait_for_timeout(1_000)  # what fades in or is being drawn
        self.page.get_by_text("Loading").first.wait_for(state="hidden")
        path = self._pictures / f"{name}.png"
        self.page.screenshot(path=path)
        with Image.open(path) as shown:
            small = shown.convert("RGB").quantize(256)
        small.save(path, optimize=True)


@contextmanager
def browsing(address: str, pictures: Path | None, failed: Path) -> Iterator[Tab]:
    """A tab of a headless browser; what it showed last is kept as ``failed`` when the block raises."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # the other test goes without

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_PROGRAM, args=_QUIET)
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.set_default_timeout(_SHOWN_WITHIN_SECONDS * 1_000)
        tab = Tab(page, address, pictures)
        try:
            yield tab
        except BaseException:
            page.screenshot(path=failed)
            raise
        finally:
            browser.close()


@dataclass(frozen=True, slots=True)
class Ui:
    """A running ``cc-pipeline ui``, its port, and its home."""

    server: Server
    port: int
    home: Path
    source: str


@pytest.fixture(scope="module")
def ui(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """What ``make dev`` starts, on a home that it makes; the ``.env`` where it is started names another one."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    assert re.search(r"^dev:.*\n\t@\$\(VENV\)/cc-pipeline ui$", makefile, re.MULTILINE)
    folder, port = tmp_path_factory.mktemp("ui"), free_port()
    home = folder / "other home"
    prepare_files(load_settings({}, source=str(bucket[0]), home=str(folder / "data")), folder)
    command = [str(BIN / "cc-pipeline"), "ui", "--port", str(port), "--home", str(home)]
    with serving(command, folder, environment(bucket[0], folder), port) as server:
        yield Ui(server, port, home, str(bucket[0]))


@pytest.mark.process
def test_make_dev_opens_the_ui_on_a_home_wherever_it_is(ui: Ui) -> None:
    assert "warehouse" in ui.server.wait_until_loaded()
    ui.server.add_partition("target", "only-here.example")
    listed = ui.server.launch("list_crawls", {})
    assert ui.server.wait_for(listed) == "SUCCESS", ui.server.failure(listed)
    assert (ui.home / "dagster" / "dagster.yaml").exists()
    assert (ui.home / "home.json").exists()


def checks_of(server: Server) -> dict[tuple[str, str], dict[str, Any] | None]:
    """The latest execution of every check, by asset and name."""
    nodes = server.ask(
        """{ assetNodes { assetKey { path } assetChecksOrError { ... on AssetChecks { checks { name
            executionForLatestMaterialization { runId status evaluation { success severity description } } } } } } }"""
    )["assetNodes"]
    return {
        (node["assetKey"]["path"][-1], check["name"]): check["executionForLatestMaterialization"]
        for node in nodes
        for check in node["assetChecksOrError"].get("checks", [])
    }


def wait_for_checks(server: Server, run: str, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The executions of the ``wanted`` checks by one run, once all of them ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = {
            check: last for check, last in checks_of(server).items()
            if check in wanted and last and last["runId"].startswith(run) and last["evaluation"]
        }  # fmt: skip
        if set(found) == wanted:
            return found
        assert time.monotonic() < deadline, wanted - set(found)
        time.sleep(1)


@dataclass(frozen=True, slots=True)
class Seen:
    """The UI in a browser, and the run of the domain that was added there."""

    tab: Tab
    server: Server
    run: str


@pytest.fixture(scope="module")
def seen(bucket: Bucket, ui: Ui, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """The newest crawl was harvested from the command line."""
    ui.server.wait_until_loaded()
    settings = load_settings({}, source=str(bucket[0]), home=str(ui.home))
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.list_crawls()
        launcher.harvest([NEW])
        launcher.publish()
    asked = os.environ.get("CC_PIPELINE_PICTURES")
    failed = tmp_path_factory.mktemp("seen") / "failed.png"
    with browsing(f"http://127.0.0.1:{ui.port}", REPOSITORY / asked if asked else None, failed) as tab:
        yield Seen(tab, ui.server, materialize(tab))


@needs_browser
@pytest.mark.browser
@pytest.mark.smoke
def test_a_domain_is_added_and_materialized_by_clicking(bucket: Bucket, seen: Seen) -> None:
    sees_the_partition(seen.tab, seen.run, len(bucket[1].captures_of(NEW, subset="warc", domain=SITE)))


@needs_browser
@pytest.mark.browser
def test_its_lineage_is_shown_and_every_check_runs_by_clicking(seen: Seen) -> None:
    sees_the_lineage(seen.tab)
    runs_every_check(seen.tab, seen.server)


@needs_browser
@pytest.mark.browser
def test_a_partition_that_failed_says_why_and_its_neighbours_were_checked(seen: Seen) -> None:
    bad = "two words.com"
    seen.server.add_partition("target", bad)
    run = seen.server.launch("extract_domain", range_tags(f"{NEW}|{SITE}", f"{NEW}|{bad}"))
    assert seen.server.wait_for(run) == "FAILURE"
    ours = {check for check in checks_of(seen.server) if check[0] in TABLES}
    wrong = {name for (_, name), one in wait_for_checks(seen.server, run, ours).items()
             if not one["evaluation"]["success"]}  # fmt: skip
    assert wrong == {"no_failed_partitions"}
    seen.tab.open(f"/assets/records?view=partitions&partition={NEW}%7C{bad}", "Failed (1)", run[:8])
    seen.tab.click("View all historical events")
    dialog = seen.tab.page.get_by_role("dialog").first
    dialog.get_by_text(f"{NEW}|{bad}").nth(1).click()
    dialog.get_by_text(f"'{bad}' is not a host name: it has a space").wait_for()
    seen.tab.picture("ui-failed")
    seen.tab.open("/runs", run[:8])
    seen.tab.picture("ui-runs")
    chips = {line for line in seen.tab.reads().splitlines() if line.startswith("cc_pipeline/")}
    assert {chip.partition(":")[0] for chip in chips} == {CHECK_SCOPE_TAG}, "what only programs read is hidden"


@needs_browser
@pytest.mark.browser
def test_text_of_a_stranger_is_shown_as_text_and_loads_nothing(ui: Ui, seen: Seen) -> None:
    asked: list[str] = []
    with listening(asked) as place:
        run = tell_what_a_stranger_wrote(ui, seen.server, place)
        partition = f"view=partitions&partition={NEW}%7C{SITE}"
        pages = {
            f"/assets/page_text?{partition}": ("notes", "rows", "failed because"),
            "/assets/page_text": ("notes",),
            "/assets/page_text?view=events": ("failed because",),
            "/assets/page_text?view=checks&checkDetail=texts_are_there": ("Latest execution",),
            f"/runs/{run}": ("RUN_FAILURE",),
        }
        for path, texts in pages.items():
            seen.tab.open(path, *texts)
            seen.tab.page.wait_for_load_state("networkidle")
            assert "![x](" in seen.tab.reads(), path
        assert not asked
        # and it would be seen: the same as Markdown, as one of us may write it
        record(ui, dg.AssetMaterialization("page_text", metadata={"ours": dg.MetadataValue.md(f"![x]({place}/ours)")}))
        seen.tab.open("/assets/page_text", "ours")
        wait_until(lambda: "/ours" in asked)


@contextmanager
def listening(asked: list[str]) -> Iterator[str]:
    """A server of this machine that notes which paths it was ``asked`` for; its address."""

    class Noting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Noting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def tell_what_a_stranger_wrote(ui: Ui, server: Server, place: str) -> str:
    """The instance is told of a partition whose pages, notes and reasons of failure try to load a picture; gives the
    id of a run that fails with such words."""
    words = f"![x]({place}/markdown.png) <img src='{place}/html.png'> [![x]({place}/linked.png)]({place})"
    run = server.launch_listed([f"{NEW}|{words}"])
    partition = dg.MultiPartitionKey({"crawl": NEW, "target": SITE})
    shown = {
        "notes": format_list([words, f"two\n{words}"]),
        "rows": as_table(["title", "rows"], [(f"a\n{words}", 3)]),
    }
    record(ui, dg.AssetMaterialization("page_text", partition=partition, metadata=shown))
    record(ui, dg.AssetObservation("page_text", partition=partition, metadata=failure_metadata(words, run)))
    told = f"the check failed with an error, so its result is not known: {words}\n{words}"
    record(
        ui,
        dg.AssetCheckEvaluation(dg.AssetKey("page_text"), "texts_are_there", False, description=escape_markdown(told)),
    )
    assert server.wait_for(run) == "FAILURE"
    return run


def record(ui: Ui, event: dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation) -> None:
    with open_instance(load_settings({}, source=ui.source, home=str(ui.home))) as instance:
        instance.report_runless_asset_event(event)


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def materialize(tab: Tab) -> str:
    """Adds the domain in the dialog of the job, launches, and waits for the run; the beginning of its id."""
    open_dialog(tab)
    tab.page.get_by_role("dialog").first.get_by_role("button", name="Add a partition").nth(1).click()
    tab.page.get_by_placeholder("name").fill(SITE)
    tab.click("Save")
    tab.page.get_by_placeholder("name").wait_for(state="detached")
    # on a slow machine the dialog does not find the partition that it has just added, and says so
    open_dialog(tab)
    tab.choose(NEW)
    tab.choose(SITE)
    tab.picture("ui-launch")
    tab.click("Launch 1 run")
    launched = tab.page.get_by_text(re.compile("Launched run [0-9a-f]{8}")).first
    run = str(launched.inner_text()).split()[2]
    tab.page.get_by_text("View", exact=True).click()
    # the label beside the run's id
    tab.sees("Success")
    return run


def open_dialog(tab: Tab) -> None:
    """The dialog that launches the job for partitions."""
    tab.open("/locations/cc_pipeline/jobs/extract_domain")
    tab.click("Materialize all")
    tab.page.get_by_role("dialog").first.get_by_text("Partition selection").wait_for()


def sees_the_partition(tab: Tab, run: str, pages: int) -> None:
    """Green, by this run, with its own figures."""
    tab.open(f"/assets/page_metadata?view=partitions&partition={NEW}%7C{SITE}", "Materialized (1)", "Failed (0)")
    tab.sees("dagster/partition_row_count")
    text = tab.reads()
    assert run in text
    assert re.search(rf"dagster/partition_row_count\s+{pages}\b", text), text
    tab.picture("ui-partition")


def sees_the_lineage(tab: Tab) -> None:
    """What a table is made from, and what is made from it."""
    tab.open("/assets/page_metadata?view=lineage", "records", "warehouse")
    tab.picture("ui-lineage")


def runs_every_check(tab: Tab, server: Server) -> None:
    """All checks at once from the job, and those of one asset from its page."""
    every = set(checks_of(server))
    assert {"row_groups", "captures", "records"} <= {asset for asset, _ in every}
    tab.open("/locations/cc_pipeline/jobs/check_everything", "Launchpad")
    tab.page.get_by_text("Launchpad", exact=True).first.click()
    tab.click("Launch Run")
    tab.page.wait_for_url(re.compile("/runs/[0-9a-f-]{36}"))
    run = str(tab.page.url).rsplit("/runs/", 1)[1][:36]
    tab.sees("Success")
    for check, execution in wait_for_checks(server, run, every).items():
        told = execution["evaluation"]
        # green, or amber with the reason in the text
        assert told["success"] or (told["severity"] == "WARN" and told["description"]), (check, told)
    tab.open("/assets/records?view=checks", "ledger_balances", "Passed")
    tab.click("Execute all")
    again = tab.page.get_by_text(re.compile("Launched run [0-9a-f]{8}")).first
    here = {check for check in every if check[0] == "records"}
    wait_for_checks(server, str(again.inner_text()).split()[2], here)
    tab.page.reload()
    tab.sees("Passed")
    tab.picture("ui-checks")
