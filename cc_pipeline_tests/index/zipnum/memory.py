"""An object in memory, read as a source is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Answer:
    data: bytes
    total: int | None


class Memory:
    """A reader that counts."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads = 0

    def read(self, key: str, offset: int, length: int) -> Answer:
        self.reads += 1
        return Answer(self.content[offset : offset + length], len(self.content))
