"""An object in memory, read as a source is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Answer:
    data: bytes
    total: int | None


class Memory:
    """A file in memory that counts its reads."""

    def __init__(self, content: bytes, total: int | None = -1) -> None:
        self.content = content
        self.total = len(content) if total == -1 else total
        self.reads: list[tuple[int, int]] = []

    def read(self, key: str, offset: int, length: int) -> Answer:
        self.reads.append((offset, length))
        return Answer(self.content[offset : offset + length], self.total)
