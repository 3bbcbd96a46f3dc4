"""One of several processes that use a home at once; a program of the tests.

``python -m cc_pipeline_tests.maintenance.at_once ROLE SOURCE HOME`` plays one role until its work is done
(``backfill``, ``purge``) or, for the others, until the file ``HOME/../done`` is there. It ends with an error when
anything goes wrong, and prints how often it did what it does."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.maintenance.maintain import merge_and_publish, run_maintenance
from cc_pipeline.maintenance.purge import purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.world import NEW, OLD

#: Purged meanwhile; what is asked for again under another name, and shares its bytes; what else is made meanwhile.
GOES = "example.com"
SHARES = "host:www.example.com"
COMES = ("example.org", "beispiel-example.de", SHARES)
CRAWLS = (NEW, OLD)
#: Tables of one stage: each slice is in all of them or in none.
TOGETHER = (("captures",), ("records",), ("page_metadata", "page_text", "page_links", "feed_items"))
#: A few files are many here, so that there is always something to merge.
_FEW_FILES = 2
#: Two cores are shared by five processes.
_PAUSE_SECONDS = 0.3
_PATIENCE_SECONDS = 400


def backfill(workspace: Workspace) -> int:
    """Everything that comes, one partition after the other; the last one when all others are at it."""
    for crawl in CRAWLS:
        for text in COMES:
            if (crawl, text) == (CRAWLS[-1], COMES[-1]):
                wait_for_others(workspace.settings.home.parent)
            for stage in (locate_captures, fetch_captures, parse_records):
                stage(workspace, crawl, [parse_target(text).slug])
    return len(CRAWLS) * len(COMES)


def wait_for_others(folder: Path) -> None:
    """Waits until each that acts again and again has acted twice, however slowly its process started."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while not all((folder / f"{act.__name__} goes on").exists() for act in (publish, tidy, read)):
        if time.monotonic() > until:
            raise AssertionError(f"only these go on: {[path.name for path in folder.glob('* goes on')]}")
        time.sleep(0.1)


def publish(workspace: Workspace) -> None:
    """A publication, with what is due before it."""
    merge_and_publish(workspace)


def tidy(workspace: Workspace) -> None:
    """Merges nearly everything, publishes, and deletes what nobody needs."""
    run_maintenance(workspace, max_files=_FEW_FILES, retention_hours=1)


def purge_target(workspace: Workspace) -> int:
    """Purges one target, as ``targets remove --purge`` does."""
    purge(workspace, plan_purge(workspace, GOES, GOES))
    return 1


def counted(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int]]:
    """Rows by table and by ``crawl domain``, each read to its end."""
    return {
        table: {
            f"{crawl} {domain}": count
            # the hash makes it read every column of every file
            for crawl, domain, count, _ in connection.execute(
                f"SELECT crawl, domain, count(*), bit_xor(hash(t)) FROM {table} t GROUP BY 1, 2"
            ).fetchall()
        }
        for tables in TOGETHER
        for table in tables
    }


def read(workspace: Workspace) -> None:
    """Opens what is published, reads all of it twice, and holds it against what each slice has when it is whole."""
    home = workspace.settings.home
    whole = json.loads((home.parent / "whole.json").read_text("utf-8"))
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        first = counted(connection)
        time.sleep(0.5)  # others merge, publish and delete meanwhile
        if counted(connection) != first:
            raise AssertionError("one connection saw two states")
    for tables in TOGETHER:
        for key in whole["captures"]:
            if key.endswith(f" {GOES}"):
                continue  # of two targets, one of which comes while the other goes
            there = [first[table].get(key, 0) for table in tables]
            complete = [whole[table].get(key, 0) for table in tables]
            if there not in (complete, [0] * len(tables)):
                raise AssertionError(f"{key} of {tables}: {there}, and whole it has {complete}")


def again_and_again(act: Callable[[Workspace], None], workspace: Workspace) -> int:
    """Does it until others are done; gives how often."""
    folder = workspace.settings.home.parent
    times = 0
    while not (folder / "done").exists():
        act(workspace)
        times += 1
        if times == 2:
            (folder / f"{act.__name__} goes on").touch()
        time.sleep(_PAUSE_SECONDS)
    return times


def main(role: str, source: str, home: str) -> None:
    """Plays a role."""
    once = {"backfill": backfill, "purge": purge_target}
    often = {"publish": publish, "tidy": tidy, "read": read}
    with open_workspace(load_settings({}, source=source, home=home, workers=1)) as workspace:
        times = once[role](workspace) if role in once else again_and_again(often[role], workspace)
    sys.stdout.write(f"{times}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
