"""Homes of earlier layouts, unpacked with their paths made good."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent
#: Layouts of which a home is kept.
LAYOUTS = tuple(
    sorted(int(path.name.removeprefix("layout").partition(".")[0]) for path in FOLDER.glob("layout*.tar.xz"))
)


def unpack(layout: int, place: Path) -> tuple[Path, Path]:
    """The home of ``layout`` and its bucket, below ``place``; the home's note names the bucket where it lies now."""
    with tarfile.open(FOLDER / f"layout{layout}.tar.xz") as archive:
        archive.extractall(place, filter="data")
    home, bucket = place / "home", place / "bucket"
    note = home / "home.json"
    note.write_text(json.dumps(json.loads(note.read_text("utf-8")) | {"source": str(bucket)}), "utf-8")
    return home, bucket
