"""Removing targets, and purging them, as a person does it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from cc_pipeline.automation.known_keys import find_target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs import partitions
from cc_pipeline.defs.dynamic_keys import refuse_too_many
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.errors import UserInputError
from cc_pipeline.maintenance import purge as maintenance_purge
from cc_pipeline.records.file_leases import lease
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.cli.conftest import NEW, Cli, Said, World

pytestmark = pytest.mark.xdist_group("cli homes")


@pytest.fixture(scope="module")
def used(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The used home, with another target and a mistyped one."""
    # the place of a copied home is another one, whose publication would be of another home
    others = shutil.ignore_patterns("published")
    home = shutil.copytree(world.untouched, tmp_path_factory.mktemp("removing") / "home", ignore=others)
    settings = load_settings({}, source=str(world.bucket), home=str(home))
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        runner.extract([NEW], [parse_target(text) for text in ("example.org", "exmaple.com")])
    (home / "domains.txt").write_text("# mine\nexample.com\nexample.org\nexmaple.com\nset:press = example.net\n")
    return home


@pytest.fixture
def home(used: Path, tmp_path: Path) -> Path:
    return shutil.copytree(used, tmp_path / "home", ignore=shutil.ignore_patterns("published"))


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    instance = open_instance(load_settings({}, home=str(home)))
    yield instance
    instance.dispose()


def plan_of(said: Said) -> str:
    """The digest of the plan that a dry run showed."""
    return said.shown.rpartition("--plan ")[2].split()[0]


def purge(cli: Cli, target: str, home: Path, *words: str) -> Said:
    """Purges as a script does: what a dry run showed."""
    remove = ("targets", "remove", target, "--purge")
    return cli(*remove, *words, "--plan", plan_of(cli(*remove, "--dry-run", "--home", home)), "--home", home)


def made(instance: dg.DagsterInstance, asset: str) -> set[str]:
    return {key.rpartition("|")[2] for key in instance.get_materialized_partitions(dg.AssetKey(asset))}


def test_purging_hides_and_deletes_and_others_stay(home: Path, cli: Cli, instance: dg.DagsterInstance) -> None:
    said = cli("targets", "remove", "example.com", "--purge", "--dry-run", "--home", home)
    assert said.status == 0, said.err
    assert re.search(r"\d+ stored records \([\d,]+ bytes\) that only this target uses", said.shown)
    assert "kept: deliveries" in said.out
    refused = cli("targets", "remove", "example.com", "--purge", "--home", home)
    assert (refused.status, "--yes" in refused.err) == (1, True)
    plan = plan_of(said)
    for wrong in (("--yes",), ("--plan", "0" * len(plan)), ("--yes", "--plan", "")):
        refused = cli("targets", "remove", "example.com", "--purge", "--now", *wrong, "--home", home)
        assert (refused.status, "nothing was changed" in refused.told) == (1, True)
    assert "example.com" in (home / "domains.txt").read_text()
    done = cli("targets", "remove", "example.com", "--purge", "--now", "--plan", plan, "--home", home)
    assert done.status == 0, done.err
    assert "open it again" in " ".join(done.out.split())
    assert "purged: example.com; its rows and bytes are deleted" in done.out
    assert "LEFT" not in done.out
    assert (home / "domains.txt").read_text() == "# mine\nexample.org\nexmaple.com\nset:press = example.net\n"
    assert "example.com" not in instance.get_dynamic_partitions("target")
    for asset in ("captures", "records", "page_metadata", "page_text"):
        assert made(instance, asset) & {*instance.get_dynamic_partitions("target")} == {"example.org", "exmaple.com"}
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as published:
        domains = published.execute("SELECT DISTINCT domain FROM page_metadata").fetchall()
    assert domains == [("example.org",)]
    looked = cli("doctor", "--verify", "--all", "--home", home)
    assert looked.status == 0, looked.out
    again = cli("targets", "remove", "example.com", "--purge", "--plan", plan, "--home", home)
    assert (again.status, "this home has no target 'example.com'" in again.err) == (1, True)


def contents(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """All files and folders below ``folder``: size, time of the last change, and what is in them."""
    files = [(path, path.stat()) for path in (folder, *folder.rglob("*"))]
    return {path: (at.st_size, at.st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path, at in files}


@pytest.mark.parametrize("state", ["used", "without its note", "a lake elsewhere", "only a list"])
def test_a_dry_run_changes_nothing(
    state: str, used: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    if state == "only a list":
        home.mkdir()
        shutil.copy(used / "domains.txt", home)
    else:
        shutil.copytree(used, home)
    if state == "without its note":
        (home / "home.json").unlink()
    if state == "a lake elsewhere":
        monkeypatch.setenv("CC_PIPELINE_LAKE", str(home / "lake"))
        home = tmp_path / "other home"
    before = contents(tmp_path)
    for flags in ((), ("--yes",), ("--now",)):
        said = cli("targets", "remove", "example.com", "--purge", "--dry-run", *flags, "--home", home)
        assert (said.status, "nothing was changed" in said.out) == (0, True), said.err
        assert contents(tmp_path) == before


def texts_of(home: Path, target: str) -> set[str]:
    """Everything in the lake that strangers wrote, or that names a page or host of a target, if it is long enough to
    be told from other words."""
    found: set[str] = set()
    columns = {"page_text": ["title", "main_content", "text"], "page_links": ["href", "text"], "page_metadata": ["url"]}
    with open_workspace(load_settings({}, home=str(home))) as workspace:
        for table, names in columns.items():
            for row in workspace.lake.read(table, {"target": target}, names).to_pylist():
                found |= {line for text in row.values() if text for line in text.splitlines()}
    return {text for text in found if len(text) > len(target) + len("https:///") and text != f"https://{target}/"}


def test_no_text_or_path_of_a_page_is_in_the_files_of_dagster(
    home: Path, cli: Cli, instance: dg.DagsterInstance
) -> None:
    texts = texts_of(home, "example.com") - texts_of(home, "example.org")
    assert len(texts) > 50

    def written() -> list[str]:
        files = b"\n".join(path.read_bytes() for path in (home / "dagster").rglob("*") if path.is_file())
        assert NEW.encode() in files
        return [text for text in texts if json.dumps(text)[1:-1].encode() in files or text.encode() in files]

    assert not written()
    run = instance.create_run_for_job(dg.job(name="maintenance")(lambda: None))
    said = purge(cli, "example.com", home, "--now")
    assert (said.status, run.run_id in said.err) == (1, True), "files that runs use are not deleted at once"
    settings = load_settings({}, home=str(home))
    with open_workspace(settings) as workspace, lease(workspace.storage, NEW, "fetch", ["example.com"]):
        said = purge(cli, "example.com", home)
    assert (said.status, "1 fetch is of example.com running" in said.shown) == (0, True), said.err
    assert not written()


def test_a_mistyped_target_is_removed_whole_and_others_say_that_pages_stay(
    home: Path, cli: Cli, instance: dg.DagsterInstance
) -> None:
    names = ("set-press", "press", "set:press", "set:press = example.net")
    assert {find_target(name, {"example.com", "set-press"}) for name in names} == {"set-press"}
    said = cli("targets", "remove", "example.cmo", "--home", home)
    assert (said.status, "Did you mean example.com" in said.err) == (1, True)
    done = cli("targets", "remove", "exmaple.com", "example.org", "press", "--home", home)
    assert done.status == 0, done.err
    assert (home / "domains.txt").read_text() == "# mine\nexample.com\n"
    assert "removed: exmaple.com has no captures" in done.out
    assert "removed from the watch list: example.org; extracted rows are kept" in done.out
    assert "exmaple.com" not in instance.get_dynamic_partitions("target")
    assert "example.org" in instance.get_dynamic_partitions("target")
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as published:
        slugs = published.execute("SELECT slug FROM targets ORDER BY slug").fetchall()
    assert slugs == [("example.com",), ("example.org",)]


def test_a_killed_purge_has_hidden_all_and_goes_on_without_a_digest(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = ("targets", "remove", "example.com", "--purge")
    plan = plan_of(cli(*remove, "--dry-run", "--home", home))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(maintenance_purge, "finish_purges", killed)
        assert cli(*remove, "--plan", plan, "--home", home).status != 0
    assert "rows of purged targets are hidden, and not deleted yet" in cli("doctor", "--home", home).shown
    done = cli(*remove, "--yes", "--now", "--home", home)
    assert (done.status, "its rows and bytes are deleted" in done.out) == (0, True), done.err
    assert "purged targets" not in cli("doctor", "--home", home).shown


def test_a_purge_needs_no_instance_from_before(home: Path, cli: Cli) -> None:
    shutil.rmtree(home / "dagster")
    done = purge(cli, "example.com", home, "--now")
    assert done.status == 0, done.err
    assert "purged: example.com; its rows and bytes are deleted" in done.out
    with open_workspace(load_settings({}, home=str(home))) as workspace:
        assert workspace.lake.read("records", {"target": "example.com"}).num_rows == 0


def test_a_clean_home_keeps_its_keys(home: Path, cli: Cli, instance: dg.DagsterInstance) -> None:
    keys = instance.get_dynamic_partitions("target")
    assert cli("automation", "clean", "--home", home).status == 0
    assert instance.get_dynamic_partitions("target") == keys


def test_the_cap_holds_where_targets_are_added(
    home: Path, cli: Cli, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawls = len(instance.get_dynamic_partitions("crawl"))
    monkeypatch.setattr(partitions, "MAX_PARTITIONS", crawls * 4)
    assert cli("targets", "add", "example.com", "--home", home).status == 0, "it is there already"
    said = cli("targets", "add", "one.org", "--home", home)
    assert (said.status, "domains that belong together into a set" in said.told) == (1, True), "five with the set"
    # the cap comes before anything that is asked of each target
    for asked in ("extraction.crawl_plan.plan_crawl", "workspace.workspace.Workspace.register_targets"):
        monkeypatch.setattr(f"cc_pipeline.{asked}", lambda *_: pytest.fail("the lake was asked"))
    ran = cli("run", "-c", NEW, "three.org", "--home", home)
    assert (ran.status, "into a set" in ran.err) == (1, True)
    assert "three.org" not in instance.get_dynamic_partitions("target")
    with pytest.raises(UserInputError, match="into a set"):
        refuse_too_many(instance, crawls=["CC-MAIN-1999-01", "CC-MAIN-1999-02"])
