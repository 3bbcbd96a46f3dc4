"""Homes of earlier layouts, unpacked with their paths made good."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

from cc_pipeline.home import LAKE_NOTE

FOLDER = Path(__file__).parent
#: Layouts of which a home is kept.
LAYOUTS = tuple(
    sorted(int(path.name.removeprefix("layout").partition(".")[0]) for path in FOLDER.glob("layout*.tar.xz"))
)
#: Beside a home since layout 3: the data versions that Dagster has recorded, by asset and partition.
RECORDED = "recorded.json"


def unpack(layout: int, place: Path) -> tuple[Path, Path]:
    """The home of ``layout`` and its bucket, below ``place``; the home's note names the bucket where it lies now.

    Layouts of before 3 have no Dagster instance, and a bucket each. Those since then share the first one's.
    """
    home, bucket = place / "home", place / "bucket"
    if layout > 2:
        _extract(1, place)
        shutil.rmtree(home)
        shutil.rmtree(bucket / "sequencefiles")
    _extract(layout, place)
    note = home / "home.json"
    note.write_text(json.dumps(json.loads(note.read_text("utf-8")) | {"source": str(bucket)}), "utf-8")
    (home / "lake" / LAKE_NOTE).unlink(missing_ok=True)
    return home, bucket


def _extract(layout: int, place: Path) -> None:
    with tarfile.open(FOLDER / f"layout{layout}.tar.xz") as archive:
        archive.extractall(place, filter="data")
