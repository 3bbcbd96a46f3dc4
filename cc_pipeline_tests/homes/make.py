"""Makes the small home that is kept as a fixture, with the code as it is: ``python -m cc_pipeline_tests.homes.make``.

Run it before a change that makes a new layout, and keep what it wrote: the archive of layout N is what later code
must still read. The place is the same on every machine, because tables and ``cc.duckdb`` name files by their paths.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cc_pipeline.cli.app import app
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.automation.flight import EXTRACTED
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.internals import recorded_versions
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.home import LAKE_NOTE, NOTE
from cc_pipeline.pagefiles.export import export_slices
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.homes.unpack import RECORDED, unpack

#: Where the home lies while it is made; tests unpack it elsewhere.
PLACE = Path("/srv/cc_pipeline_fixture")
NEW, OLD, ARC = CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012")
#: One target within another, and a set: repeats and the bridge are in the fixture too.
TARGETS = ("example.com", "host:www.example.com", "set:three = example.org, example.com, example.net")
#: A set of 16 parts, most of which found nothing.
DIVIDED = "set:many = exemple-example.fr, xn--mnchen-example-gsb.de, " + ", ".join(
    f"absent-{one:02}.example" for one in range(66)
)
#: Domains of which a source did not give some captures. The file is refused while they are run.
LACKING, REFUSED = "example-foo.com", "crawl-data/CC-MAIN-2018-05/*/warc/*-00000.warc.gz"
_LEFT_OUT = ("cache", "scratch", "publish.lock", "catalog.lock", "migrate.lock", "budget.sqlite", "dagster/schedules")
_EVENTS = Path("home/dagster/history/runs")


def main() -> None:
    """Writes ``layoutN.tar.xz`` beside this file: ``home/``, what it added to the first layout's ``bucket/``, and
    ``recorded.json``."""
    shutil.rmtree(PLACE, ignore_errors=True)
    home, bucket = unpack(1, PLACE)
    shutil.rmtree(home)
    shutil.rmtree(bucket / "sequencefiles")
    where = ["--home", str(home), "--source", str(bucket)]
    _run(where, CRAWLS, TARGETS)
    _run(where, [OLD], ["example.org"], "--subset=warc", "--subset=robotstxt")
    _run(where, [OLD], ["beispiel-example.de"], "--subset=robotstxt")
    _run(where, [NEW], ["primer-example.ru"], "--via=zipnum")
    _run(where, [NEW], [DIVIDED])
    # index files at a server are not those that were harvested from the folder
    lacking = parse_target(LACKING)
    workspace = Workspace(load_settings({}, home=str(home)))
    workspace.register_targets([lacking])
    locate_captures(workspace, OLD, [lacking.slug])
    with _from_a_source_with_trouble(home, bucket):
        _run(where[:2], [OLD], [LACKING])
    export_slices(workspace, ARC, ["example.com"])
    files = sorted((home / "lake/exports/CC-MAIN-2012/example.com").glob("*-00000"))
    (bucket / "sequencefiles").mkdir()
    keys = [shutil.copy(file, bucket / "sequencefiles" / file.name) and f"sequencefiles/{file.name}" for file in files]
    _cli("add-source", *where, "--kind=sequencefile", *keys)
    (PLACE / RECORDED).write_text(json.dumps(_recorded(home), indent=1), "utf-8")
    for name in ("runs.db", "runs/index.db"):
        _closed(home / "dagster/history" / name)
    layout = json.loads((home / NOTE).read_text("utf-8"))["layout"]
    path = Path(__file__).with_name(f"layout{layout}.tar.xz")
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for one in (home, bucket / "sequencefiles", PLACE / RECORDED):
            archive.add(one, str(one.relative_to(PLACE)), filter=_plain)
    print(f"{path}: {path.stat().st_size:,} bytes")


def _run(where: Sequence[str], crawls: Sequence[str], targets: Sequence[str], *more: str) -> None:
    _cli("run", *where, *(f"--crawl={crawl}" for crawl in crawls), *(f"--domain={one}" for one in targets), *more)


def _cli(*arguments: str) -> None:
    app(list(arguments), standalone_mode=False)


@contextmanager
def _from_a_source_with_trouble(home: Path, bucket: Path) -> Iterator[None]:
    """The home is, for a while, that of a server that does not give one file; what it lacks is no failure."""
    note = (home / NOTE).read_text("utf-8")
    (home / "lake" / LAKE_NOTE).unlink(missing_ok=True)
    with FaultServer(bucket, rules=[Rule("whole_object", key=REFUSED, times=None)]) as server:
        (home / NOTE).write_text(json.dumps(json.loads(note) | {"source": server.url.rstrip("/")}), "utf-8")
        os.environ["CC_PIPELINE_MAX_UNSETTLED"] = "1"
        yield
        del os.environ["CC_PIPELINE_MAX_UNSETTLED"]
    (home / NOTE).write_text(note, "utf-8")
    (home / "lake" / LAKE_NOTE).unlink(missing_ok=True)


def _recorded(home: Path) -> dict[str, dict[str, str]]:
    instance = open_instance(load_settings({}, home=str(home)))
    crawls, domains = (instance.get_dynamic_partitions(name) for name in ("crawl", "domain"))
    keys = [f"{crawl}|{domain}" for crawl in crawls for domain in domains]
    found = {asset: recorded_versions(instance, asset, keys) for asset in EXTRACTED}
    instance.dispose()
    return found


def _closed(database: Path) -> None:
    """Puts what is still in the write-ahead log into the database."""
    whole = database.with_suffix(".whole")
    connection = sqlite3.connect(database)
    connection.execute("VACUUM INTO ?", (str(whole),))
    connection.close()
    whole.replace(database)
    for suffix in ("-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without caches, the events of single runs, and the names of whoever made it."""
    name = Path(member.name)
    left_out = any(name.is_relative_to(f"home/{one}") for one in _LEFT_OUT)
    if left_out or (name.parent == _EVENTS and name.stem != "index"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    sys.exit(main())
