"""Files of the user: their kinds, their partition keys, and those registered in a home."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cc_pipeline.errors import UserInputError
from cc_pipeline.workspace.workspace import Workspace

FileKind = Literal["sequencefile", "wat", "wet", "warc"]
#: The kind of WARC and ARC files: they are not read into tables; an index of them is built.
ARCHIVE: Final = "warc"

FAULTS = "source_faults"
#: Maximum faults of a file that become rows; all are counted.
MAX_FAULT_ROWS = 1_000

_UNSAFE_CHARS = re.compile(r"[^a-z0-9.-]+|\.{2,}")
_MAX_NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the user, of one ``crawl``. ``location`` is an absolute path or a key of the source."""

    kind: FileKind
    location: str
    crawl: str

    @property
    def slug(self) -> str:
        """The partition key: kind, file name in safe characters, and 64 bits of a hash of kind, location and crawl."""
        safe_name = (
            _UNSAFE_CHARS.sub("-", self.location.rpartition("/")[2].lower()).strip(".-")[:_MAX_NAME_CHARS].rstrip(".-")
        )
        text = "\n".join((self.kind, self.location, self.crawl))
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return "_".join(part for part in (self.kind, safe_name, digest) if part)


def read_source_files(workspace: Workspace, slugs: Sequence[str] | None = None) -> dict[str, SourceFile]:
    """Returns the files of partition keys (default: all), without archive files.

    Raises ``UserInputError`` for a key that is not registered.
    """
    where = None if slugs is None else {"slug": list(slugs)}
    rows = workspace.lake.read("source_files", where).to_pylist() if slugs is None or slugs else []
    files = {
        row["slug"]: SourceFile(row["source_kind"], row["source_file"], row["crawl"])
        for row in rows
        if row["source_kind"] != ARCHIVE
    }
    unknown_slugs = [slug for slug in slugs or () if slug not in files]
    if unknown_slugs:
        raise UserInputError(
            f"this home has no file with the partition key {unknown_slugs[0]!r}; to add a file: cc-pipeline files add "
            "FILE"
        )
    return files
