"""Numbered SequenceFiles of a fixed number of records each, the same bytes for the same records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, get_args

from cc_pipeline.archive.sequenceheader import Compression
from cc_pipeline.archive.sequencewriter import SequenceFileWriter
from cc_pipeline.errors import UserInputError
from cc_pipeline.extraction.record_shelf import disk_trouble

Codec = Literal["gzip", "default"]
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How SequenceFiles are written: ``block`` and ``gzip`` as in 2012. ``records_per_file`` cuts text and metadata
    alike; ``compat="2012"`` writes the JSON with the 2012 writer's bugs.

    Raises ``UserInputError`` for a value nobody knows.
    """

    compression: Compression = "block"
    codec: Codec = "gzip"
    records_per_file: int = 10_000
    compat: Literal["2012"] | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("compression", self.compression, get_args(Compression)),
            ("codec", self.codec, get_args(Codec)),
            ("compat", self.compat, (None, "2012")),
        ):
            if value not in known:
                raise UserInputError(f"{name} is {value!r}; choose one of {', '.join(map(str, known))}")
        if self.records_per_file < 1:
            raise UserInputError(f"records_per_file is {self.records_per_file}; it must be 1 or more")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One complete file: its name, records, bytes, and the hexadecimal SHA-256 of its bytes."""

    name: str
    records: int
    bytes: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def write_files(
    records: Iterable[tuple[str, str]],
    prefix: str,
    folder: Path,
    options: ExportOptions,
    header: tuple[tuple[str, str], ...],
) -> Iterator[tuple[ExportedFile, Path]]:
    """``records`` (URL, text) in their order as ``prefix-00000`` and on in ``folder``, each yielded when complete.

    ``header`` becomes the files' header metadata; it and the name decide the sync marker. No records, no files.
    Raises ``EnvironmentFault`` when the disk refuses.
    """
    waiting = iter(records)
    number = 0
    while (first := next(waiting, None)) is not None:
        name = f"{prefix}-{number:05d}"
        path = folder / name
        count = 0
        with disk_trouble(path), path.open("wb") as stream:
            seed = "\n".join((name, *(text for entry in header for text in entry)))
            with SequenceFileWriter(stream, options.compression, options.codec, seed, header) as writer:
                for url, text in chain((first,), islice(waiting, options.records_per_file - 1)):
                    writer.append(url, text)
                count = writer.count
        yield ExportedFile(name, count, path.stat().st_size, _sha256(path)), path
        number += 1


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()
