"""Makes the small home that is kept as a fixture, with the code as it is: ``python -m cc_pipeline_tests.homes.make``.

Run it before a change that makes a new layout, and keep what it wrote: the archive of layout N is what later code
must still read. The place is the same on every machine, because tables and ``cc.duckdb`` name files by their paths.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

from cc_pipeline.cli.app import app
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import TEST
from cc_pipeline.settings import load_settings
from cc_pipeline.stages.handing.export import export_slices
from cc_pipeline.stages.workspace import Workspace

#: Where the home lies while it is made; tests unpack it elsewhere.
PLACE = Path("/srv/cc_pipeline_fixture")
CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012")
#: One target within another, and a set: repeats and the bridge are in the fixture too.
TARGETS = ("example.com", "host:www.example.com", "set:three = example.org, example.com, example.net")
_LEFT_OUT = ("cache", "dagster", "scratch", "publish.lock", "catalog.lock", "migrate.lock", "budget.sqlite")


def main() -> None:
    """Writes ``layoutN.tar.xz`` beside this file: ``home/`` and the ``bucket/`` it belongs to."""
    shutil.rmtree(PLACE, ignore_errors=True)
    home, bucket = PLACE / "home", PLACE / "bucket"
    ensure(bucket, TEST)
    where = ["--home", str(home), "--source", str(bucket)]
    _cli("run", *where, *(f"--crawl={crawl}" for crawl in CRAWLS), *(f"--domain={target}" for target in TARGETS))
    exported = Workspace(load_settings({}, home=str(home)))
    export_slices(exported, "CC-MAIN-2012", ["example.com"])
    files = sorted((home / "lake/exports/CC-MAIN-2012/example.com").glob("*-00000"))
    (bucket / "sequencefiles").mkdir()
    keys = [shutil.copy(file, bucket / "sequencefiles" / file.name) and f"sequencefiles/{file.name}" for file in files]
    _cli("add-source", *where, "--kind=sequencefile", *keys)
    layout = json.loads((home / "home.json").read_text("utf-8"))["layout"]
    path = Path(__file__).with_name(f"layout{layout}.tar.xz")
    with tarfile.open(path, "w:xz") as archive:
        for folder in (home, bucket):
            archive.add(folder, folder.name, filter=_plain)
    print(f"{path}: {path.stat().st_size:,} bytes")


def _cli(*arguments: str) -> None:
    app(list(arguments), standalone_mode=False)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without caches, the Dagster instance, and the names of whoever made it."""
    parts = Path(member.name).parts
    if len(parts) > 1 and parts[0] == "home" and parts[1] in _LEFT_OUT:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    sys.exit(main())
